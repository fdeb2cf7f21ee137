"""The points of a grid: every combination of its axes, composed and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..config.build import check_pairing
from ..config.composing import to_objects
from ..errors import ConfigError, ForedraftError
from ..plugins.registry import CHOSEN
from . import axes
from .composer import Composer, one_word
from .exclude import mark
from .options import NOT_HERE


@dataclass
class Point:
    """A point of the grid before it has a name."""

    choices: dict[str, Any]
    overrides: list[str]
    config: dict[str, Any]

    @property
    def mark(self) -> str:
        """The same for equal configs."""
        return json.dumps(self.config, sort_keys=True)

    @property
    def plain(self) -> bool:
        """Whether it drafts nothing, so that it is a baseline itself."""
        return bool(self.config["drafter"]["name"] == "none")


def points_of(
    combos: Sequence[Mapping[str, Any]], words: axes.Words, composed: Composer
) -> list[Point]:
    """The points of the grid, each once."""
    owners = _owners(words, composed)
    found: dict[str, Point] = {}
    for combo in combos:
        choices = {k: v for k, v in combo.items() if not _foreign(k, combo, owners)}
        if mark(choices) in found:
            continue
        fixed = [t for t in words.fixed if not _foreign(t.partition("=")[0], combo, owners)]
        overrides = [*fixed, *(one_word(key, value) for key, value in choices.items())]
        found[mark(choices)] = _point(choices, overrides, composed)
    points = list(found.values())
    _check_different(points)
    return points


def _point(choices: dict[str, Any], overrides: list[str], composed: Composer) -> Point:
    try:
        config = composed.config(overrides)
        _check_cell(config, overrides, composed)
    except ForedraftError as error:
        if not choices:
            raise
        raise type(error)(f"the cell {_words(choices)} is not possible: {error}") from error
    return Point(choices, overrides, config)


def _check_cell(config: dict[str, Any], overrides: Sequence[str], composed: Composer) -> None:
    check_pairing(to_objects(config))
    if config["seed"] is None:
        raise ConfigError("seed=null is not possible in a sweep, which must be repeatable.")
    if config["samples"] != 1:
        raise ConfigError(f"samples={config['samples']} is not possible: {NOT_HERE['samples']}.")


def _owners(words: axes.Words, composed: Composer) -> dict[str, dict[str, set[str]]]:
    """The keys of every option that the sweep varies: group, option, keys."""
    found: dict[str, dict[str, set[str]]] = {}
    for group in [kind for kind in CHOSEN if kind in words.axes]:
        values = words.axes[group].values
        found[group] = {mark(value): composed.keys(group, value) for value in values}
    return found


def _foreign(
    key: str, combo: Mapping[str, Any], owners: Mapping[str, Mapping[str, set[str]]]
) -> bool:
    """Whether a key is one of another option on the same axis: it says nothing about this cell.

    ``grid.drafter=[none,ngram] grid.drafter.order=[1,2]`` is three cells. A key that no option of
    the axis has is a mistake, and is left to be found when the cell is composed.
    """
    group, _, rest = key.strip().partition(".")
    name = rest.split(".")[0]
    if not name or group not in owners:
        return False
    own = owners[group][mark(combo[group])]
    return name not in own and any(name in keys for keys in owners[group].values())


def _check_different(points: Sequence[Point]) -> None:
    seen: dict[str, Point] = {}
    for point in points:
        same = seen.setdefault(point.mark, point)
        if same is not point and not point.plain:
            raise ConfigError(
                f"the cells {_words(same.choices)} and {_words(point.choices)} are the same setting; "
                "leave one out."
            )


def _words(choices: Mapping[str, Any]) -> str:
    return " ".join(one_word(key, value) for key, value in choices.items())
