"""What runs when: prompts into units, and the order of all runs.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .cells import ENGINE, Cell
from .options import BenchOptions
from .tasks import BenchPrompt

RUNS_A_LOOK = 50


@dataclass(frozen=True)
class Unit:
    """Prompts of one group that decode together.

    Args:
        index: its number among all units of the sweep.
        group: of all of its prompts.
        prompts: their indices.
        batch_size: what it was cut for; the last unit of a group may hold fewer.
    """

    index: int
    group: str
    prompts: tuple[int, ...]
    batch_size: int


@dataclass(frozen=True)
class Task:
    """One run to be made.

    Args:
        cell: an id.
        unit: an index.
        repeat: which one, from 0.
        order: its place among all runs of the sweep.
    """

    cell: str
    unit: int
    repeat: int
    order: int


def units(prompts: Sequence[BenchPrompt], batch_size: int, first: int = 0) -> list[Unit]:
    """Cuts the prompts of each group into batches, the groups taking turns.

    Args:
        first: the index of the first unit.
    """
    groups: dict[str, list[int]] = {}
    for prompt in prompts:
        groups.setdefault(prompt.group, []).append(prompt.index)
    cut = [
        [(name, tuple(of[i : i + batch_size])) for i in range(0, len(of), batch_size)]
        for name, of in groups.items()
    ]
    most = max(map(len, cut), default=0)
    turns = [pieces[turn] for turn in range(most) for pieces in cut if turn < len(pieces)]
    return [Unit(first + i, name, part, batch_size) for i, (name, part) in enumerate(turns)]


def units_for(prompts: Sequence[BenchPrompt], cells: Iterable[Cell]) -> list[Unit]:
    """The units of all cells: one set for each batch size among them."""
    found: list[Unit] = []
    for size in sorted({cell.batch_size for cell in cells}):
        found += units(prompts, size, len(found))
    return found


def looked_at(cells: Sequence[Cell], units: Sequence[Unit], repeats: int) -> dict[str, list[int]]:
    """Prompts whose answers are taken down once more, round by round, by drafting cell.

    That is decoding which nobody measures, so it is kept to about a fiftieth of a cell's runs, though
    each has one. They are first prompts of groups; cells take turns in which.
    """
    first: dict[str, int] = {}
    for unit in units:
        first.setdefault(unit.group, unit.prompts[0])
    found = {}
    for place, cell in enumerate(cell for cell in cells if cell.kind == ENGINE):
        runs = repeats * sum(unit.batch_size == cell.batch_size for unit in units)
        turn = (place + place // len(first)) % len(first)  # whatever number of values an axis has
        prompts = [*first.values()][turn:] + [*first.values()][:turn]
        found[cell.id] = prompts[: max(1, round(runs / RUNS_A_LOOK))]
    return found


def order(cells: Sequence[Cell], units: Sequence[Unit], options: BenchOptions) -> list[Task]:
    """All runs of a sweep: repeat by repeat, unit by unit, the cells of a unit shuffled.

    A sweep that is cut off anywhere has then run all cells alike, each beside its baseline, and
    what drifts while it runs (heat, other load) meets all cells. A run's place in its unit depends
    on the seed, the repeat and the unit only.
    """
    found: list[Task] = []
    for repeat in range(options.repeats):
        for unit in units:
            fitting = [cell.id for cell in cells if cell.batch_size == unit.batch_size]
            shuffled = np.random.default_rng([options.seed, repeat, unit.index])
            for place in shuffled.permutation(len(fitting)):
                found.append(Task(fitting[place], unit.index, repeat, len(found)))
    return found
