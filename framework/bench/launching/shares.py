"""Which job makes which runs.

A sweep is split by units of prompts, not by cells: a job measures *all* cells on its units. So a run
and the baseline that it is compared with are made on one machine, by one process, beside each other,
and it does no harm to a ratio that another machine is faster. Verdicts need a cell's answers to all
prompts; they are split by cells, once everything is measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..plan import Task, Unit
from ..verdicts import due as verdicts_due

if TYPE_CHECKING:
    from ..sweeping import Bench

MEASURE, JUDGE = "measure", "judge"


def by_unit(units: Sequence[Unit], jobs: int) -> dict[int, int]:
    """The job of each unit, by index: the same for the same units and number of jobs.

    Every job gets of each group, and of each size of batch, as many as the others, or one more.
    """
    turns: dict[tuple[int, str], Iterator[int]] = {}
    found = {}
    for unit in units:
        # Groups begin with different jobs: else the first would get one more of each of them.
        mine = turns.setdefault((unit.batch_size, unit.group), itertools.count(len(turns)))
        found[unit.index] = next(mine) % jobs
    return found


def by_cell(cells: Sequence[str], jobs: int) -> dict[str, int]:
    """The job that judges each cell."""
    return {name: place % jobs for place, name in enumerate(cells)}


def due(sweep: Bench, wave: str, jobs: int) -> list[int]:
    """The jobs that have something to do, by number."""
    if wave == MEASURE:
        owners = by_unit(sweep.units, jobs)
        return sorted({owners[task.unit] for task in missing(sweep)})
    judges = by_cell([cell.id for cell in sweep.cells], jobs)
    return sorted({judges[name] for name in unjudged(sweep)})


def missing(sweep: Bench) -> list[Task]:
    """Runs without a record, of cells that did not fail."""
    done, failed = sweep.store.done(), sweep.store.failures()
    return [
        task
        for task in sweep.tasks
        if (task.cell, task.unit, task.repeat) not in done and task.cell not in failed
    ]


def unjudged(sweep: Bench) -> list[str]:
    """Cells that have decoded and lack a verdict, or answers to look at."""
    store = sweep.store
    decoded, failed = {key[0] for key in store.done()}, store.failures()
    verdicts, traces = store.verdicts(), store.traces()
    cells = [{"id": cell.id, "baseline": cell.baseline} for cell in sweep.cells]
    late = {cell for cell, _ in verdicts_due(cells, store.records(), verdicts)}
    found = []
    for cell in sweep.cells:
        judged = cell.id not in late
        shown = cell.kind != "engine" or cell.id in traces or cell.id in failed
        if cell.id in decoded and not (judged and shown):
            found.append(cell.id)
    return found
