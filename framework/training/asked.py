"""``foredraft train``'s words, composed and checked before a model is loaded. Imports no torch."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..bench.composer import composer
from ..bench.options import TaskConfig
from ..bench.tasks import BenchPrompt, read_task
from ..config.composing import to_objects
from ..config.overrides import parse
from ..config.parts import Part
from ..config.values import read_record
from ..errors import ConfigError
from ..specs import DrafterSpec
from .options import TrainOptions

# Keys that mean nothing in a training, and what does their job here.
PROMPTS = "prompts come from task=own, or task=file task.file=FILE"
PLAIN = "answers come from plain decoding"
NOT_HERE = {
    "prompt": PROMPTS, "prompts": PROMPTS, "policy": PLAIN, "verifier": PLAIN,
    "output": "weights go to the folder out=FOLDER", "samples": "each prompt is answered once",
    "logprobs": "it keeps no log-probabilities", "prompt_logprobs": "it keeps no log-probabilities",
    "observers": "no observer listens to it", "observer": "no observer listens to it",
    **dict.fromkeys(("bench", "grid", "zip", "exclude"), "it is no sweep; its keys are train.KEY=VALUE"),
}  # fmt: skip
# How answers are made, whatever an experiment says of these.
ALONE = {
    "drafter": {"name": "none"}, "verifier": {"name": "token"}, "policy": {"name": "fixed", "gamma": 0},
}  # fmt: skip
# What an answer depends on, beside the target and the prompts.
SAMPLED = ("sampling", "max_new_tokens", "seed", "stop", "stop_ids", "chat", "grammar")


BESIDE = ("tensorboard",)  # of the keys of train: no weight depends on it


@dataclass(frozen=True)
class Asked:
    """A training that can begin.

    Args:
        drafter: what is trained.
        config: the whole config, as ``as_dict`` has it, of plain decoding.
        options: the keys of ``train``.
        prompts: of the task.
        out: where the weights go.
        record: what a resumed training has to have in common.
    """

    drafter: Part
    config: dict[str, Any]
    options: TrainOptions
    prompts: list[BenchPrompt]
    out: Path
    record: dict[str, Any]


def asked(words: Sequence[str], config_dir: str | None = None) -> Asked:
    """Reads the words.

    Raises:
        ConfigError: the first thing that cannot be honoured.
        InputError: prompts that cannot be read.
    """
    values, about, fixed, out = _split(words)
    options = read_record(TrainOptions, values, "train")
    with composer(config_dir, about) as composed:
        task = read_record(TaskConfig, composed.blocks(fixed)["task"], "task")
        whole = composed.config(fixed)
    drafter = to_objects(whole).drafter
    _check(drafter)
    prompts = read_task(task)
    record = {
        "drafter": whole["drafter"], "target": whole["target"],
        **{key: whole[key] for key in SAMPLED}, "task": asdict(task),
        "prompts": {"count": len(prompts), "sha256": _digest(prompts)},
        "train": {key: value for key, value in asdict(options).items() if key not in BESIDE},
    }  # fmt: skip
    return Asked(drafter, {**whole, **ALONE}, options, prompts, out, _written(record))


def _digest(prompts: Sequence[BenchPrompt]) -> str:
    return hashlib.sha256(json.dumps([asdict(one) for one in prompts]).encode()).hexdigest()[:16]


def _written(value: Any) -> Any:
    """A record as JSON gives it back; infinite numbers, which it does not have, as text."""
    if isinstance(value, dict):
        return {str(key): _written(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_written(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _check(drafter: Part) -> None:
    spec = drafter.spec
    if not isinstance(spec, DrafterSpec) or not spec.trainee:
        raise ConfigError(
            f"drafter={spec.name} has nothing to train; drafters that can be trained: "
            f"{', '.join(trainable())}."
        )
    for key in ("path", "model"):
        if getattr(drafter.config, key, None):
            raise ConfigError(
                f"drafter.{key}={getattr(drafter.config, key)} has no effect on a training, which makes new "
                "weights; write out=FOLDER for where they go."
            )


def trainable() -> list[str]:
    """Drafters that say how they are trained."""
    from ..plugins import registry

    offers = [offer for offer in registry().offers("drafter") if not offer.fault]
    return [o.name for o in offers if isinstance(o.spec, DrafterSpec) and o.spec.trainee]


def _split(words: Sequence[str]) -> tuple[dict[str, Any], list[str], list[str], Path]:
    """Values of ``train``, words of the task, words of the config, and ``out``."""
    values: dict[str, Any] = {}
    about: list[str] = []
    fixed: list[str] = []
    out = None
    for word in words:
        key = word.partition("=")[0].strip()
        root = key.split(".")[0]
        if key == "out":
            out = Path(word.partition("=")[2]).expanduser()
        elif root == "train":
            _put(values, key.split(".")[1:], _value(word))
        elif root == "task":
            about.append(word)
        else:
            if root in NOT_HERE:
                raise ConfigError(f"{word!r} has no effect on a training: {NOT_HERE[root]}.")
            fixed.append(word)
    if out is None or not out.name:
        raise ConfigError("foredraft train needs out=FOLDER, where the weights go.")
    return values, about, fixed, out


def _value(word: str) -> Any:
    override = parse(word)
    if override.is_sweep_override():
        raise ConfigError(f"{word!r} lists several values; a training has one of each.")
    return override.value()


def _put(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Sets ``shape.heads`` in the group ``shape``."""
    if not path:
        raise ConfigError("train is a group of keys; write train.KEY=VALUE.")
    for name in path[:-1]:
        values = values.setdefault(name, {})
        if not isinstance(values, dict):
            raise ConfigError(f"train.{'.'.join(path)} is not possible: train.{name} is a value.")
    values[path[-1]] = value
