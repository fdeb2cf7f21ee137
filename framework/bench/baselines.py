"""The baselines of a sweep: what each of its cells is compared with, every setting once.

Plain decoding is this library's own loop without drafts. Cells that differ only in how they draft,
verify and choose lengths share one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..config.composing import as_dict, to_objects
from ..config.schema import RuntimeConfig
from ..errors import ConfigError
from ..params import SamplingParams
from ..plugins import registry
from ..specs import VerifierSpec
from ..targets.builtin import ModelConfig
from .cells import PLAIN, Cell, new_id
from .composer import Composer
from .options import GENERATE, BenchOptions
from .points import Point

PLAIN_WORDS = ["drafter=none", "policy=fixed", "policy.gamma=0"]
# What plain decoding does not depend on: groups whole, or keys of groups.
GROUPS = ("drafter", "policy", "verifier")
KEYS = ("sampling.draft", "runtime.times")
# What transformers' generate can be given; everything else in ``sampling`` must be off.
FILTERS = ("temperature", "top_k", "top_p", "min_p", "draft")


@dataclass
class Found:
    """The baselines.

    Args:
        cells: in the order in which they are listed.
        plain: the plain cell's id by the mark of its config.
        remarks: why a baseline is left out.
    """

    cells: list[Cell] = field(default_factory=list)
    plain: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @property
    def taken(self) -> Collection[str]:
        """Ids so far, in lower case."""
        return {cell.id.lower() for cell in self.cells}


def baselines(points: Sequence[Point], options: BenchOptions, composer: Composer) -> Found:
    """The baselines that the points of a grid need."""
    found = Found()
    for point in _shared([plain_of(point) for point in points]):
        words = _words(point, composer)
        name = new_id(PLAIN, point.choices, found.taken)
        cell = Cell(name, point.choices, words, point.config, PLAIN, "", True)
        found.cells.append(cell)
        found.plain[point.mark] = name
        if "again" in options.baselines:
            again = new_id(PLAIN, point.choices, found.taken, "again")
            found.cells.append(Cell(again, point.choices, words, point.config, PLAIN, name, True))
    for kind in [kind for kind in GENERATE if kind in options.baselines]:
        _add_generate(found, kind)
    return found


def plain_of(point: Point) -> Point:
    """The same setting without drafts."""
    config = point.config
    own = {"name": _plain_verifier(config)}
    if own["name"] == config["verifier"]["name"]:
        own = config["verifier"]
    values = {
        **config,
        "drafter": {"name": "none"},
        "policy": {"name": "fixed", "gamma": 0},
        "verifier": own,
        "sampling": {**config["sampling"], "draft": SamplingParams().draft},
        "runtime": {**config["runtime"], "times": RuntimeConfig().times},
    }
    choices = {key: value for key, value in point.choices.items() if not _irrelevant(key)}
    if own["name"] != "token":
        choices["verifier"] = own["name"]
    words = [text for text in point.overrides if not _irrelevant(text.partition("=")[0].strip())]
    words += [*PLAIN_WORDS, f"verifier={own['name']}"]
    return Point(choices, words, as_dict(values))


def _plain_verifier(config: Mapping[str, Any]) -> str:
    """``token``, but a rule whose text depends on the seed alone keeps its own plain text."""
    spec = registry().get("verifier", config["verifier"]["name"])
    shared = isinstance(spec, VerifierSpec) and spec.ability("shared_noise", None)
    return spec.name if shared and config["sampling"]["temperature"] > 0 else "token"


def _irrelevant(key: str) -> bool:
    return key.split(".")[0] in GROUPS or key in KEYS


def _shared(plains: Sequence[Point]) -> list[Point]:
    """Equal ones once. What their choices do not have in common makes no difference."""
    found: dict[str, Point] = {}
    for plain in plains:
        same = found.setdefault(plain.mark, plain)
        missing = object()
        same.choices = {k: v for k, v in same.choices.items() if plain.choices.get(k, missing) == v}
    return list(found.values())


def _words(plain: Point, composer: Composer) -> list[str]:
    """Overrides of a plain cell, also where an experiment sets keys that only its drafter has."""
    try:
        if composer.config(plain.overrides) == plain.config:
            return plain.overrides
    except ConfigError:
        pass
    return composer.words_for(plain.config)


def _add_generate(found: Found, kind: str) -> None:
    done: set[str] = set()
    left_out: dict[str, list[str]] = {}
    for cell in [cell for cell in found.cells if cell.kind == PLAIN and not cell.baseline]:
        config = {**cell.config, "verifier": {"name": "token"}}
        mark = json.dumps(config, sort_keys=True)
        reason = _no_generate(cell)
        if reason:
            left_out.setdefault(reason, []).append(cell.id)
        elif mark not in done:
            name = new_id(kind, cell.choices, found.taken)
            made = Cell(name, cell.choices, cell.overrides, cell.config, kind, cell.id, True)
            found.cells.append(made)
        done.add(mark)
    for reason, ids in left_out.items():
        more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
        found.remarks.append(f"{kind} is left out beside {ids[0]}{more}: {reason}.")


def _no_generate(cell: Cell) -> str:
    """Why transformers' ``generate`` cannot do the same as a plain cell; empty when it can."""
    parts, standard = to_objects(cell.config), SamplingParams()
    others = {k: v for k, v in vars(parts.sampling).items() if k not in FILTERS}
    run = parts.run
    if not isinstance(parts.target.config, ModelConfig):
        return f"target={parts.target.spec.name} is no model of transformers"
    if cell.batch_size > 1:
        return f"it is compared at runtime.batch_size=1 only, not {cell.batch_size}"
    if not parts.sampling.greedy:
        return "it is compared at sampling.temperature=0 only"
    if any(getattr(standard, key) != value for key, value in others.items()):
        return "it is compared without penalties, biases and bans only"
    if run.stop or run.stop_ids or run.grammar is not None or run.max_new_tokens is None:
        return "it is compared with max_new_tokens and without stop, stop_ids and grammar only"
    return ""
