"""Sweeps tell the truth on a machine that is slower at some times than at others: plain decoding against
itself, and a slowdown that was put there. The clock is made up; the order of runs, the records and the
statistics are those of a sweep (``benchmarks/honesty.py`` does the same on a real clock)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from sweep_worlds import cell, manifest, record

from foredraft.framework.bench.cells import Cell
from foredraft.framework.bench.options import BenchOptions
from foredraft.framework.bench.plan import Task, Unit, order
from foredraft.framework.bench.summary import Summary, summarise

SWEEPS, UNITS, REPEATS = 100, 48, 1
SPEEDS = {"plain": 1.0, "again": 1.0, "slow": 1 / 1.1}
KEPT, SHARE, DRIFT = (
    0.98,
    0.03,
    0.5,
)  # of a machine's state from run to run; its new part; in a sweep
Planned = Callable[[Sequence[Task]], Sequence[Task]]


def swept(seed: int, planned: Planned = lambda tasks: tasks) -> Summary:
    """A sweep whose runs take longer or shorter with the state that the machine is in."""
    kinds = {"slow": "engine"}
    cells = [cell(name, kinds.get(name, "plain")) for name in SPEEDS]
    config = {"runtime": {"batch_size": 1}}
    known = [Cell(n, {}, [], config, kinds.get(n, "plain"), "", True) for n in SPEEDS]
    units = [Unit(index, ("math", "code")[index % 2], (index,), 1) for index in range(UNITS)]
    options = BenchOptions(seed=seed, repeats=REPEATS)
    return summarise(manifest(cells, UNITS), timed(planned(order(known, units, options)), seed))


def timed(tasks: Sequence[Task], seed: int) -> list[dict[str, Any]]:
    """Runs one after the other: noise of their own on top of a state that lasts, and of a drift."""
    rng = np.random.default_rng(seed)
    pace, state = np.exp(rng.normal(0, 0.5, UNITS)), 0.0
    found = []
    for place, task in enumerate(tasks):
        state = KEPT * state + rng.normal(0, SHARE)
        slowness = state + DRIFT * place / len(tasks) + rng.normal(0, 0.03)
        seconds = pace[task.unit] / SPEEDS[task.cell] * np.exp(slowness)
        found.append(record(task.cell, task.unit, task.repeat, decode=float(seconds)))
    return found


@cache
def sweeps() -> list[Summary]:
    return [swept(seed) for seed in range(SWEEPS)]


def hits(holds: Sequence[bool]) -> int:
    return sum(holds)


def test_the_order_and_the_intervals_hold_on_a_machine_that_drifts() -> None:
    count = hits([one["again"].speedup.differs() == 0 for one in sweeps()])
    # Not by luck alone: an interval that covers .95 has 90 or more of 100 with 98 %.
    assert count >= 90 and binom.cdf(count, SWEEPS, 0.95) > 0.01
    means = [one["again"].speedup.value or 0.0 for one in sweeps()]
    assert np.log(means).mean() == pytest.approx(0, abs=0.005)
    # Nor are the intervals wider than they have to be.
    logs = [one["again"].speedup for one in sweeps()]
    assert np.mean([np.log(one.high / one.low) / 2 for one in logs if one.low and one.high]) < 0.04


def test_a_tenth_slower_is_found() -> None:
    found = [one["slow"] for one in sweeps()]
    assert all(one.family.differs() < 0 and one.clear == "slower" for one in found)
    assert np.mean([one.speedup.value or 0.0 for one in found]) == pytest.approx(1 / 1.1, abs=0.01)
    # And what its interval says of how much holds, too.
    holds = hits([one.speedup.differs(1 / 1.1) == 0 for one in found])
    assert binom.cdf(holds, SWEEPS, 0.95) > 0.01


def test_cell_after_cell_would_not_hold() -> None:
    """This machine is one on which the order of runs matters."""
    names = list(SPEEDS)
    one_by_one = [
        swept(seed, lambda tasks: sorted(tasks, key=lambda task: names.index(task.cell)))
        for seed in range(10)
    ]
    assert hits([one["again"].speedup.differs() == 0 for one in one_by_one]) < 5
