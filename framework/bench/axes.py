"""The axes of a sweep: ``grid.KEY=[a,b]`` is multiplied, ``zip.KEY=[a,b]`` goes in step.

Words come from the command line; blocks of the same names come from an experiment's file. A word
replaces what a file says for the same key.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, Override

from ..config.composing import SWEEP_BLOCKS
from ..config.overrides import MAX_RUNS, check_by_hand, parse
from ..config.safety import check_key, check_value
from ..errors import ConfigError
from .composer import one_word
from .exclude import exclusions, mark
from .options import check_place

KINDS = ("grid", "zip")


@dataclass(frozen=True)
class Axis:
    """A key and the values that it goes through."""

    kind: str
    key: str
    values: list[Any]

    @property
    def name(self) -> str:
        """As it is written."""
        return f"{self.kind}.{self.key}"


@dataclass
class Words:
    """The words of a sweep, taken apart.

    Args:
        axes: by key, in the order given.
        exclude: what is left out of the product: each a mapping of axis keys to values.
        fixed: overrides that hold for all cells.
        about: overrides of ``bench`` and ``task``.
    """

    axes: dict[str, Axis] = field(default_factory=dict)
    exclude: list[dict[str, Any]] | None = None
    fixed: list[str] = field(default_factory=list)
    about: list[str] = field(default_factory=list)


def split(words: Sequence[str]) -> Words:
    """Takes the words of a command line apart."""
    found = Words()
    for text in words:
        override = parse(text)
        root, _, key = override.key_or_group.partition(".")
        if root in KINDS:
            _add(found, _axis(root, key, text, override))
        elif override.key_or_group == "exclude":
            if found.exclude is not None:
                raise ConfigError("exclude= is given twice; give one list, exclude=[{...},{...}].")
            found.exclude = exclusions(override.value())
        elif override.is_sweep_override():
            raise ConfigError(f"{text!r} lists several values; write {_as_list('grid', override)}.")
        else:
            kept = found.about if root in ("bench", "task") else found.fixed
            kept.append(text.strip())
            check_place(override.key_or_group, text)
    return found


def merged(words: Words, blocks: Mapping[str, Any]) -> Words:
    """The words, and under them what an experiment's file says."""
    found = Words({}, None, words.fixed, words.about)
    for kind in KINDS:
        for key, values in _flat(kind, blocks.get(kind, {})):
            _check_from_file(f"{kind}.{key}", key, values)
            if key not in words.axes:
                _add(found, _checked(Axis(kind, key, _listed(kind, key, values))))
    found.axes.update(words.axes)
    from_file = blocks.get("exclude")
    check_value(from_file, "exclude in a config file")
    listed = exclusions(from_file) if from_file is not None else []
    found.exclude = listed if words.exclude is None else words.exclude
    _check_fixed(found)
    return found


def combinations(axes: Mapping[str, Axis]) -> list[dict[str, Any]]:
    """Every choice of values: the product of the grid's axes with the steps of the zipped ones."""
    steps = [axis for axis in axes.values() if axis.kind == "zip"]
    _check_steps(steps)
    dimensions = [[{a.key: v} for v in a.values] for a in axes.values() if a.kind == "grid"]
    if steps:
        rows = zip(*(axis.values for axis in steps), strict=True)
        dimensions.append([dict(zip([a.key for a in steps], row, strict=True)) for row in rows])
    count = math.prod(map(len, dimensions))
    if count > MAX_RUNS:
        raise ConfigError(f"the grid has {count} cells; at most {MAX_RUNS} are possible.")
    products = itertools.product(*dimensions)
    chosen = [{key: v for part in parts for key, v in part.items()} for parts in products]
    return [{key: one[key] for key in axes} for one in chosen]


def _axis(kind: str, key: str, text: str, override: Override) -> Axis:
    if not key:
        raise ConfigError(f"{text!r} names no key; write {kind}.KEY=[a,b], {kind}.drafter=[a,b].")
    if override.is_sweep_override():
        raise ConfigError(f"{text!r} is no list; write {_as_list('', override)}.")
    return _checked(Axis(kind, key, _listed(kind, key, override.value())))


def _as_list(prefix: str, override: Override) -> str:
    """How several values are written here."""
    key = f"{prefix}.{override.key_or_group}" if prefix else override.key_or_group
    sweep = override.value()
    if not isinstance(sweep, ChoiceSweep):
        return f"{key}=[...], with every value in it"
    values = (one_word("x", getattr(v, "text", v))[2:] for v in sweep.list)
    return f"{key}=[{','.join(values)}]"


def _listed(kind: str, key: str, values: Any) -> list[Any]:
    if not isinstance(values, list):
        shown = one_word("x", values)[2:]
        raise ConfigError(f"{kind}.{key}={shown} is no list; write {kind}.{key}=[{shown}].")
    return values


def _checked(axis: Axis) -> Axis:
    root, marks = axis.key.split(".")[0], [mark(value) for value in axis.values]
    if root in SWEEP_BLOCKS:
        raise ConfigError(
            f"{axis.name} is not possible: {root} belongs to the whole sweep, not to a cell; write "
            f"{axis.key}=..."
        )
    check_place(axis.key, axis.name)
    if not axis.values:
        raise ConfigError(f"{axis.name}=[] is empty; list at least one value, or leave it away.")
    for value, text in zip(axis.values, marks, strict=True):
        if axis.kind == "grid" and marks.count(text) > 1:
            raise ConfigError(f"{axis.name} lists {value!r} twice; list each value once.")
        if "${" in text:
            raise ConfigError(f"{axis.name} holds {value!r}; an axis lists values, no references.")
        one_word(axis.key, value)
    return axis


def _add(found: Words, axis: Axis) -> None:
    before = found.axes.get(axis.key)
    if before is not None:
        places = f"twice in {axis.kind}" if before.kind == axis.kind else "both in grid and in zip"
        raise ConfigError(f"{axis.key} is {places}; give it once.")
    found.axes[axis.key] = axis


def _check_fixed(words: Words) -> None:
    for text in words.fixed:
        key = parse(text).key_or_group
        if key in words.axes:
            name = words.axes[key].name
            raise ConfigError(f"{key} is fixed by {text!r} and varied by {name}; drop one of them.")


def _check_steps(steps: Sequence[Axis]) -> None:
    if len({len(axis.values) for axis in steps}) > 1:
        lengths = ", ".join(f"{axis.name} has {len(axis.values)}" for axis in steps)
        raise ConfigError(f"the axes of zip go in step, but {lengths}; give them equal lengths.")
    rows = [mark(row) for row in zip(*(axis.values for axis in steps), strict=True)]
    twice = next((number for number, row in enumerate(rows) if row in rows[:number]), None)
    if twice is not None:
        shown = ", ".join(f"{axis.key}={axis.values[twice]!r}" for axis in steps)
        raise ConfigError(f"the axes of zip hold {shown} twice; list each step once.")


def _flat(kind: str, block: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys of a block, which a file may nest: ``policy: {gamma: [1, 3]}``."""
    if not isinstance(block, Mapping):
        raise ConfigError(f"{kind}={block!r} is not possible; it holds 'KEY: [a, b]' lines.")
    for key, value in block.items():
        if isinstance(value, Mapping):
            yield from _flat(kind, value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _check_from_file(name: str, key: str, values: Any) -> None:
    check_key(key, f"{name} in a config file")
    check_value(values, f"{name} in a config file")
    for value in values if isinstance(values, list) else [values]:
        check_by_hand(value, (), key)
