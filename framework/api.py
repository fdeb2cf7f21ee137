"""From names to a running engine: the command line's job in one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .config import as_dict, compose
from .config.build import Built, build
from .decoding import Parts
from .engine import Defaults, Engine
from .errors import ConfigError, InputError
from .interfaces import Drafter, Observer, Target
from .listening import close_all
from .plugins.registry import CHOSEN
from .times.profiles import times_from

if TYPE_CHECKING:
    from .constraints import Constraint


def load(
    *overrides: str,
    model: Any = None,
    tokenizer: Any = None,
    target: Target | str | None = None,
    config_dir: Path | str | None = None,
    observers: Sequence[Observer] = (),
    **choices: object,
) -> Engine:
    """Builds an engine from the same config, with the same defaults, as ``foredraft generate``.

    Args:
        overrides: as on the command line, ``"policy.gamma=5"``.
        model: a transformers causal LM that you have loaded, used as the target.
        tokenizer: its tokenizer; None when only ids go in and out.
        target: a built target of any kind, in place of ``model``; or a name, as any other group.
        config_dir: a folder with presets and experiments of your own.
        observers: listeners of your own, besides those that the config lists
            (``"observers=[jsonl]"``); you close them.
        choices: names by group, ``drafter="prompt_lookup"``.

    Raises:
        ForedraftError: one sentence that names the key, the value and what is possible.
    """
    texts = [*(f"{group}={name}" for group, name in choices.items()), *overrides]
    if isinstance(target, str):
        texts, target = [f"target={target}", *texts], None
    given = _given(model, tokenizer, target, texts)
    return engine_from(compose(texts, config_dir), given, observers=observers)


def _given(model: Any, tokenizer: Any, target: Target | None, texts: list[str]) -> Target | None:
    """The caller's own target, if there is one; nothing in the config may then speak of another."""
    if model is None and target is None:
        return None
    if model is not None and target is not None:
        raise ConfigError("model and target are both given; load takes one of them.")
    named = next((text for text in texts if text.startswith("target")), None)
    if named is not None:
        raise ConfigError(f"{named} has no effect on a target that is given as an object; drop it.")
    if target is not None and not isinstance(target, Target):
        raise ConfigError(f"target={target!r} is not a Target; give one, a name, or model=.")
    if target is not None:
        return target
    from .targets.causal_lm import CausalLM

    return CausalLM(model, tokenizer)


def _constraint(path: str, target: Target, stop_ids: list[int]) -> Constraint:
    """The grammar in a file, for the target's own tokens."""
    from .config.schema import GRAMMARS
    from .grammar import grammar_constraint

    file = Path(path).expanduser()
    try:
        source = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise InputError(f"grammar={path} cannot be read: {error}.") from None
    kind, ends = GRAMMARS[file.suffix], sorted(target.eos_ids | set(stop_ids))
    return grammar_constraint(kind, source, target.tokenizer, ends, target.vocab_size)


def engine_from(
    config: Any,
    target: Target | None = None,
    same_target: bool = False,
    observers: Sequence[Observer] = (),
    drafter: Drafter | None = None,
) -> Engine:
    """An engine from a composed config.

    Args:
        target, drafter: used in place of the config's.
        same_target: it was built from this very config; results name it as the config does.
        observers: more of them than the config lists; whoever made them closes them.
    """
    built = build(config, target, drafter)
    own = type(target).__name__ if target is not None and not same_target else None
    try:
        engine = _engine(built, as_dict(config), observers, own)
    except BaseException:
        close_all(built.observers)
        raise
    engine.owns(built.observers)
    return engine


def _engine(
    built: Built, record: dict[str, Any], observers: Sequence[Observer], own_target: str | None
) -> Engine:
    names = {kind: getattr(built.parts, kind).spec.name for kind in CHOSEN}
    if own_target is not None:
        names["target"] = record["target"] = own_target
    run, runtime = built.parts.run, built.parts.runtime
    defaults = Defaults(
        max_new_tokens=run.max_new_tokens,
        sampling=built.sampling,
        seed=run.seed,
        stop=tuple(run.stop),
        stop_ids=tuple(run.stop_ids),
        samples=run.samples,
        logprobs=run.logprobs,
        prompt_logprobs=run.prompt_logprobs,
        constraint=_constraint(run.grammar, built.target, run.stop_ids) if run.grammar else None,
        chat=run.chat,
        batch_size=runtime.batch_size,
        memory_check=runtime.memory_check,
    )
    times = times_from(runtime.times, built.target, built.drafter, record, own_target is None)
    parts = Parts(built.target, built.drafter, built.verifier, built.policy, names, times)
    return Engine(parts, defaults, record, [*built.observers, *observers])
