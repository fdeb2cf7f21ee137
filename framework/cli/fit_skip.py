"""``foredraft fit drafter=layer_skip``: searches which layers of the target to draft without."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checks import check_whole
from ..errors import ConfigError, InputError, near_match
from ..files import file_to_write
from .arguments import folder_of
from .display import note

if TYPE_CHECKING:
    from ...drafters.layer_skip_search import Choice
    from ..engine import Engine
    from ..training.answers import Answered

DRAFTER = "layer_skip"
KEYS = ("out", "evaluations", "max_gamma", "texts")
PASSED = (
    "target", "task", "sampling", "max_new_tokens", "seed", "stop", "stop_ids", "chat", "runtime",
    "experiment",
)  # fmt: skip
HELD_OUT = 4  # one text in so many is not searched on


@dataclass
class Asked:
    """A command line, taken apart.

    Args:
        about, config: words of the task, and of the config.
    """

    out: str = ""
    evaluations: int = 120
    max_gamma: int = 8
    texts: int = 24
    about: list[str] = field(default_factory=list)
    config: list[str] = field(default_factory=list)
    folder: str | None = None


def fit_skip(argv: Sequence[str]) -> int:
    """Runs the command."""
    asked = _parse(argv)

    from ..api import engine_from
    from ..bench.composer import composer
    from ..bench.options import TaskConfig
    from ..bench.tasks import read_task
    from ..bench.tuning_plan import in_turns
    from ..config.values import read_record
    from ..training.asked import ALONE

    with composer(asked.folder, asked.about) as composed:
        task = read_record(TaskConfig, composed.blocks(asked.config)["task"], "task")
        whole = composed.config(asked.config)
    prompts = in_turns(read_task(task))[: asked.texts]
    engine = engine_from({**whole, **ALONE})
    best, found = _searched(asked, engine, prompts, int(whole["seed"] or 0))
    found = {**found, "command": shlex.join(["foredraft", "fit", *argv])}
    _write(asked, best, engine, whole["target"], found)
    _report(asked, best, found, engine.parts.target.depth)
    return 0


def _parse(argv: Sequence[str]) -> Asked:
    asked, seen, words = Asked(), set[str](), iter(argv)
    for word in words:
        key, equals, value = word.partition("=")
        root = key.split(".")[0]
        if key == "--config-dir":
            asked.folder = folder_of(word, words, asked.folder)
        elif key == "drafter" and value != DRAFTER:
            raise ConfigError(
                f"drafter={value} has no layers to search; the one that has is {DRAFTER}."
            )
        elif key in KEYS:
            if not value or key in seen:
                raise ConfigError(f"{key}= needs one value; it is given once.")
            seen.add(key)
            setattr(asked, key, value if key == "out" else _whole(key, value))
        elif key != "drafter":
            if not equals or root not in PASSED:
                raise ConfigError(
                    f"foredraft fit drafter={DRAFTER} does not take {word!r}; {near_match(root, KEYS + PASSED)}it "
                    f"takes {'=, '.join(KEYS)}= and keys of {', '.join(PASSED)}."
                )
            (asked.about if root == "task" else asked.config).append(word)
    if not asked.out:
        raise ConfigError(f"foredraft fit drafter={DRAFTER} needs out=FILE.")
    asked.out = str(file_to_write(asked.out))
    return asked


def _whole(key: str, text: str) -> int:
    value: Any = int(text) if re.fullmatch("[0-9]{1,9}", text) else text
    check_whole(key, value, 2 if key == "texts" else 1, 64 if key == "max_gamma" else 100_000)
    return int(value)


def _searched(
    asked: Asked, engine: Engine, prompts: Sequence[Any], seed: int
) -> tuple[Choice, dict[str, Any]]:
    """The best choice, and what there is to say of the search."""
    from ...drafters.early_exit import check_layered
    from ...drafters.layer_skip import KEY
    from ...drafters.layer_skip_search import Measure, Search
    from .training_bar import stages

    target = check_layered(engine.parts.target, KEY)
    if target.depth < 2:
        raise ConfigError(f"{KEY} needs a target of two layers or more.")
    with stages() as told:
        texts = _answers(engine, prompts, told)
        held = texts[::HELD_OUT]
        searched = [one for at, one in enumerate(texts) if at % HELD_OUT]
        temperature = engine.defaults.sampling.temperature
        measure = Measure(target, searched, temperature)
        search = Search(
            target.depth, measure.alpha, measure.cost, asked.evaluations, asked.max_gamma, seed,
            lambda count: told("choices", count, asked.evaluations),
        )  # fmt: skip
        best = search.best()
        elsewhere = Measure(target, held, temperature).alpha(best.skip)
    return best, {
        "alpha": round(best.alpha, 4), "alpha_held_out": round(elsewhere, 4),
        "cost": round(best.cost, 4), "gamma": best.gamma, "speed": round(best.speed, 4),
        "evaluations": len(search.tried), "seed": seed, "temperature": temperature,
        "texts": len(texts), "tokens": sum(len(one.answer) for one in texts),
    }  # fmt: skip


def _answers(engine: Engine, prompts: Sequence[Any], told: Any) -> list[Answered]:
    from ..training.answers import answers_to

    found: list[Answered] = []
    size = engine.defaults.batch_size
    for begin in range(0, len(prompts), size):
        found += answers_to(engine, prompts[begin : begin + size])
        told("answers", min(begin + size, len(prompts)), len(prompts))
    found = [one for one in found if one.answer]
    if len(found) < 2:
        raise InputError(f"{len(found)} answers are too few to search on some and hold out others.")
    return found


def _write(
    asked: Asked, best: Choice, engine: Engine, target: dict[str, Any], found: dict[str, Any]
) -> None:
    from ...drafters.layer_skip import write_skip
    from ..bench.machine import discreet

    name = discreet(str(target.get("model") or target["name"]))
    write_skip(asked.out, list(best.skip), engine.parts.target, name, discreet(found))


def _report(asked: Asked, best: Choice, found: dict[str, Any], depth: int) -> None:
    print(f"{len(best.skip)} of {depth} layers left out: {', '.join(map(str, best.skip))}")
    print(
        f"alpha {best.alpha:.3f} on the answers searched on, {found['alpha_held_out']:.3f} on others; a draft "
        f"step costs {best.cost:.2f} of the target's"
    )
    print(f"predicted: {best.speed:.2f} times plain decoding, with gamma {best.gamma}")
    if best.speed <= 1:
        note("no choice that was tried makes this target quicker than plain decoding")
    path = asked.out
    if not re.fullmatch(r"[\w./-]+", path):
        path = "'" + re.sub(r"(['\\])", r"\\\1", path) + "'"
    print(f"{asked.out}: {Path(asked.out).stat().st_size / 1024:,.0f} KiB")
    use = [word for word in asked.config if word.split(".")[0].split("=")[0] == "target"]
    use += [f"drafter={DRAFTER}", f"drafter.path={path}", f"policy.gamma={best.gamma}"]
    print(f"use it: foredraft generate {shlex.join(use)} prompt=...")
