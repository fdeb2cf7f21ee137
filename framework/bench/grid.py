"""From the words of a sweep to its cells, every one composed and checked before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..config.composing import SWEEP_BLOCKS
from ..config.overrides import GROUPS
from ..config.schema import RunConfig
from ..config.values import read_record
from ..errors import ConfigError, near_match
from ..plugins import registry
from ..specs import VerifierSpec
from . import axes
from .baselines import baselines, plain_of
from .cells import ENGINE, Cell, new_id
from .composer import Composer, composer, one_word
from .exclude import excluded
from .options import BenchOptions, TaskConfig
from .points import Point, points_of

__all__ = ["Cell", "Sweep", "compose_cell", "read"]


@dataclass
class Sweep:
    """A sweep, ready to run.

    Args:
        options: the keys of ``bench``.
        task: the keys of ``task``.
        cells: baselines first, then the points of the grid in its order.
        fixed: overrides that hold for all cells.
        axes: what varies: keys and values.
        remarks: sentences about what was asked and has no effect.
    """

    options: BenchOptions
    task: TaskConfig
    cells: list[Cell]
    fixed: list[str] = field(default_factory=list)
    axes: dict[str, list[Any]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def read(words: Sequence[str], config_dir: Path | str | None = None) -> Sweep:
    """Reads the words of ``foredraft bench``.

    Args:
        words: ``grid.KEY=[a,b]``, ``zip.KEY=[a,b]``, ``exclude=[{KEY: a}]``, ``bench.KEY=a``,
            ``task=NAME``, ``task.KEY=a``, and overrides that hold for all cells.
        config_dir: a folder with presets and experiments of the caller's own.

    Raises:
        ConfigError: one sentence on the first thing that cannot be honoured.
    """
    given = axes.split(words)
    _check_roots(given.fixed)
    axes.combinations(axes.merged(given, {}).axes)  # what words alone get wrong, at once
    with composer(config_dir, given.about) as composed:
        blocks = composed.blocks(given.fixed)
        options = read_record(BenchOptions, blocks["bench"], "bench")
        task = read_record(TaskConfig, blocks["task"], "task")
        found = axes.merged(given, blocks)
        _check_experiments(found, blocks, composed)
        combos, remarks = excluded(axes.combinations(found.axes), found.exclude or [])
        points = points_of(combos, found, composed)
        others = baselines(points, options, composed)
    cells = others.cells + _engines(points, others.plain, others.taken)
    varied = {key: axis.values for key, axis in found.axes.items()}
    return Sweep(options, task, cells, found.fixed, varied, remarks + others.remarks)


def compose_cell(overrides: Sequence[str], config_dir: Path | str | None = None) -> dict[str, Any]:
    """The config of one cell from its overrides, whose experiment may hold a whole sweep."""
    with composer(config_dir) as composed:
        return composed.config(overrides)


def _check_roots(fixed: Sequence[str]) -> None:
    """A misspelt ``grid`` is found here; a misspelt key is found when the cell is composed."""
    known = [*SWEEP_BLOCKS, *GROUPS, *RunConfig.__dataclass_fields__]
    for text in fixed:
        root = text.partition("=")[0].split(".")[0].strip()
        if root not in known:
            hint = near_match(root, known)
            raise ConfigError(f"{root} is not a key; {hint}keys: {', '.join(known)}.")


def _check_experiments(words: axes.Words, blocks: Mapping[str, Any], composed: Composer) -> None:
    """An experiment that varies has no say in the sweep that it is a cell of."""
    axis = words.axes.get("experiment")
    for name in axis.values if axis is not None else []:
        one = [*words.fixed, one_word("experiment", name)]
        if name is not None and composed.blocks(one) != blocks:
            raise ConfigError(
                f"experiment={name} is a sweep itself (it sets one of {', '.join(SWEEP_BLOCKS)}), so "
                f"it cannot be a cell of one; write experiment={name} alone."
            )


def _engines(
    points: Sequence[Point], plain: Mapping[str, str], taken: Collection[str]
) -> list[Cell]:
    """The cells that draft; those that do not are baselines already."""
    cells, names = [], set(taken)
    for point in points:
        if not point.plain:
            choices = point.choices or {"drafter": point.config["drafter"]["name"]}
            name = new_id(ENGINE, choices, names)
            names.add(name.lower())
            baseline = plain[plain_of(point).mark]
            cells.append(
                Cell(
                    name,
                    point.choices,
                    point.overrides,
                    point.config,
                    ENGINE,
                    baseline,
                    _lossless(point),
                )
            )
    return cells


def _lossless(point: Point) -> bool:
    spec = registry().get("verifier", point.config["verifier"]["name"])
    return isinstance(spec, VerifierSpec) and spec.lossless
