"""What a sweep is compared with, what it cannot tell apart, and what won it.

The faster of several plain decodings, and the fastest of several cells, look better on the runs they
were chosen on than they are. So both are chosen on one half of the units and measured on the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .interval import Interval
from .readings import Side
from .stats import geometric

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Base:
    """The fastest plain decoding of one target, sampling, limits and batch.

    Args:
        seconds: per token, by unit.
        ids: the cells it is from; two if the halves of the units chose differently, which says that
            they are about equally fast.
    """

    seconds: Numbers
    ids: tuple[str, ...] = ()


def fastest(candidates: Sequence[Side], groups: Sequence[str], seed: int = 0) -> Base:
    """Of plain decodings on the same units, which belong to ``groups``.

    Each half of the units is compared with what was fastest on the *other* half, so no unit has a
    part in the choice of its own base.

    A candidate without times on half of the units takes no part. Where there is no other half to
    choose on (one unit), the choice is made on the same runs.
    """
    counts = [int(side.timed.sum()) for side in candidates]
    able = [s for s, n in zip(candidates, counts, strict=True) if n and 2 * n >= max(counts)]
    seconds = np.full(len(groups), np.nan)
    if not able:
        return Base(seconds)
    first, chosen = halves(groups, seed), []
    for half in (first, ~first):
        if half.any():
            side = _fastest_on(able, ~half if (~half).any() else half)
            seconds[half] = side.seconds[half]
            chosen.append(side.id)
    return Base(seconds, tuple(dict.fromkeys(chosen)))


def _fastest_on(sides: Sequence[Side], units: NDArray[np.bool_]) -> Side:
    """By the geometric mean over the units that all of them have; of equal ones, the first."""
    shared = units & np.all([side.timed for side in sides], axis=0)
    if not shared.any():
        return max(sides, key=lambda side: int(side.timed.sum()))
    return min(sides, key=lambda side: float(np.log(side.seconds[shared]).mean()))


@dataclass(frozen=True)
class Noise:
    """Plain decoding against itself: what it says of a speed-up when there is none.

    Args:
        factor: which should be 1; its interval should hold 1.
        floor: a speed-up between 1/floor and floor is no larger than what this run makes of nothing.
        spread: standard deviation of the log-ratio of one unit.
        source: the cell that ran the same again, or ``repeats``.
    """

    factor: Interval
    floor: float | None
    spread: float | None
    source: str


def noise(plain: Side, again: Side | None = None) -> Noise:
    """From another cell with the config of plain decoding; without one from the repeats, those of
    even number against those of odd number (wider than the truth: each has half of the repeats)."""
    one, two = (plain.seconds, again.seconds) if again else plain.halves
    logs = np.log(one) - np.log(two)
    factor = geometric(logs)[0]
    there = logs[np.isfinite(logs)]
    spread = float(there.std(ddof=1)) if len(there) > 1 else None
    bounds = factor.bounds
    floor = max(bounds[1], 1 / bounds[0]) if bounds else None
    return Noise(factor, floor, spread, again.id if again else "repeats")


@dataclass(frozen=True)
class Winner:
    """The fastest cell against one baseline.

    Args:
        cell: its id.
        chosen: its speed-up on the half of the units it was chosen on: too good on average.
        measured: its speed-up on the other half: the one to believe.
        again: whether the other half would have chosen it, too.
        advice: ``speculate``, ``do not speculate``, or ``no clear difference``.
    """

    cell: str
    chosen: Interval
    measured: Interval
    again: bool
    advice: str


def winner(logs: Mapping[str, Numbers], groups: Sequence[str], seed: int = 0) -> Winner | None:
    """Chooses on one half of every group's units and measures on the other.

    Args:
        logs: log speed-up by unit of each cell that may win, NaN where it has none.

    Returns:
        None when no cell has a unit in each half.
    """
    first = halves(groups, seed)
    able = {
        cell: (values[first], values[~first])
        for cell, values in logs.items()
        if np.isfinite(values[first]).any() and np.isfinite(values[~first]).any()
    }
    if not able:
        return None
    best, other = (max(able, key=lambda cell: float(np.nanmean(able[cell][i]))) for i in (0, 1))
    chosen, measured = (geometric(half)[0] for half in able[best])
    advice = {1: "speculate", -1: "do not speculate", 0: "no clear difference"}
    return Winner(best, chosen, measured, best == other, advice[measured.differs()])


def halves(groups: Sequence[str], seed: int = 0) -> NDArray[np.bool_]:
    """A fair split of units: True for one half of every group, drawn with ``seed``. Groups of odd
    size give their spare unit to either half in turn."""
    rng, names = np.random.default_rng(seed), np.asarray(groups, dtype=str)
    first, turn = np.zeros(len(names), dtype=bool), 0
    for name in dict.fromkeys(groups):
        members = rng.permutation(np.flatnonzero(names == name))
        first[members[turn::2]] = True
        turn = (turn + len(members)) % 2
    return first
