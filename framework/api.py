"""From names to a running engine: the command line's job in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .config import as_dict, compose
from .config.build import build
from .decoding import Parts
from .engine import Defaults, Engine
from .interfaces import Target


def load(
    *overrides: str,
    model: Any = None,
    tokenizer: Any = None,
    target: Target | None = None,
    config_dir: Path | str | None = None,
    **choices: object,
) -> Engine:
    """Builds an engine from the same config, with the same defaults, as ``foredraft generate``.

    Args:
        overrides: as on the command line, ``"policy.gamma=5"``.
        model: a transformers causal LM that you have loaded, used as the target.
        tokenizer: its tokenizer; None when only ids go in and out.
        target: a built target of any kind, in place of ``model``.
        config_dir: a folder with presets and experiments of your own.
        choices: names by group, ``drafter="prompt_lookup"``.

    Raises:
        ForedraftError: one sentence that names the key, the value and what is possible.
    """
    texts = [f"{group}={name}" for group, name in choices.items()]
    config = compose([*texts, *overrides], config_dir)
    if model is not None:
        from .targets.causal_lm import CausalLM

        target = CausalLM(model, tokenizer)
    return engine_from(config, target)


def engine_from(config: Any, target: Target | None = None) -> Engine:
    """An engine from a composed config."""
    built = build(config, target)
    kinds = ("target", "drafter", "verifier", "policy")
    names = {kind: getattr(built.parts, kind).spec.name for kind in kinds}
    if target is not None:
        names["target"] = type(target).__name__
    run, runtime = built.parts.run, built.parts.runtime
    defaults = Defaults(
        max_new_tokens=run.max_new_tokens,
        sampling=built.sampling,
        seed=run.seed,
        stop=tuple(run.stop),
        chat=run.chat,
        batch_size=runtime.batch_size,
        memory_check=runtime.memory_check,
    )
    parts = Parts(built.target, built.drafter, built.verifier, built.policy, names)
    return Engine(parts, defaults, as_dict(config))
