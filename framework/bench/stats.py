"""Intervals for what a sweep measured. A unit (one prompt, or one batch of prompts) is one observation;
both sides of a comparison ran on it, so all comparisons are paired by unit.

Every number is a ratio of sums over units: a mean, tokens per round, total seconds over total seconds.
Its standard error is the linearised one (Cochran 1977, Sampling Techniques, section 6.3), for a mean
the usual one.

| units | interval |
|---|---|
| 0 to 2 | none |
| 3 to 47 | t with units - 1 degrees of freedom |
| 48 and more | symmetric bootstrap-t (Hall 1988, J. R. Stat. Soc. B 50:35), 10,000 draws of units |

Plain percentile bootstraps are too narrow for few units: at 8 pairs they cover .89 where .95 is claimed.

Over a grid, ``simultaneous`` holds the chance that *any* interval misses at 5 %: series of 48 and more
units share the quantile of the largest bootstrap-t among them, units drawn for all at once (max-t,
Westfall and Young 1993; Romano and Wolf 2005, Econometrica 73:1237), and smaller series get the
Bonferroni quantile of t, which holds however the cells depend on each other. In a mixed grid each part
gets its share of the 5 %.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from math import exp, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from .interval import FEWEST, LEVEL, Interval, too_few

Numbers = NDArray[np.float64]

LARGE = 48  # from here on by bootstrap
DRAWS = 10_000
_CHUNK = 1000  # draws at a time, so that memory stays small


class Ratios:
    """``sum(numer) / sum(denom)`` over units, for many series at once.

    Args:
        numer: ``[units, series]``, or ``[units]`` for a single one; NaN where a unit is missing.
        denom: the same shape; None: ones, which makes the ratio a mean.
        log: bounds that are symmetric on the log scale: for positive ratios.
        draws, seed: of the bootstrap.
    """

    def __init__(
        self,
        numer: ArrayLike,
        denom: ArrayLike | None = None,
        *,
        log: bool = False,
        draws: int = DRAWS,
        seed: int = 0,
    ) -> None:
        top = _columns(numer)
        bottom = np.ones_like(top) if denom is None else _columns(denom)
        self._there = np.isfinite(top) & np.isfinite(bottom)
        top, self._denom = (np.where(self._there, x, 0.0) for x in (top, bottom))
        self._log, self._draws, self._seed = log, draws, seed
        self.units = self._there.sum(0)
        with np.errstate(divide="ignore", invalid="ignore"):
            self.values = top.sum(0) / self._denom.sum(0)
            self._residuals = np.where(self._there, top - self.values * self._denom, 0.0)
            self.errors = self._error(
                (self._residuals**2).sum(0), self._denom.sum(0), self.units, self.values
            )

    def intervals(self, level: float = LEVEL) -> list[Interval]:
        """One per series, each covering with chance ``level`` on its own."""
        reach = self._student(1 - level)
        large = self._large
        if large.any():
            reach[large] = np.quantile(self._spread, level, axis=0)
        return self._around(reach)

    def simultaneous(
        self, error: float = 1 - LEVEL, among: NDArray[np.bool_] | None = None
    ) -> list[Interval]:
        """One per series; the chance that any of them misses is ``error`` at most.

        Args:
            among: ``[series]``, those that make up the family; the others get no interval.
        """
        inside = self._some if among is None else self._some & among
        large, family = self._large, max(int(inside.sum()), 1)
        reach = self._student(error / family)
        if (large & inside).any():
            share = error * (large & inside).sum() / family
            reach[large] = np.quantile(self._spread[:, inside[large]].max(1), 1 - share)
        found = self._around(reach)
        outside = Interval(how="not one of those compared")
        return [i if among is None or among[k] else outside for k, i in enumerate(found)]

    @property
    def _some(self) -> NDArray[np.bool_]:
        """Series that get an interval."""
        return np.asarray((self.units >= FEWEST) & np.isfinite(self.errors))

    @property
    def _large(self) -> NDArray[np.bool_]:
        return np.asarray(self._some & (self.units >= LARGE))

    def _student(self, error: float) -> Numbers:
        """Two-sided quantiles of t, ``[series]``."""
        return np.asarray(student.isf(error / 2, np.maximum(self.units - 1, 1)), dtype=np.float64)

    def _error(self, squares: Numbers, denom: Numbers, units: Numbers, values: Numbers) -> Numbers:
        """Standard error from the sum of squared residuals, on the scale of the bounds."""
        variance = squares / np.maximum(units - 1, 1) * units
        error = np.sqrt(np.maximum(variance, 0)) / denom
        return np.asarray(error / values if self._log else error)

    @cached_property
    def _spread(self) -> Numbers:
        """``|t|`` of every bootstrap draw, ``[draws, large series]``."""
        large, counts = self._large, _counts(len(self._there), self._draws, self._seed)
        chunks = [
            self._studentised(counts[start : start + _CHUNK].astype(np.float64), large)
            for start in range(0, len(counts), _CHUNK)
        ]
        return np.abs(np.concatenate(chunks))

    def _studentised(self, counts: Numbers, large: NDArray[np.bool_]) -> Numbers:
        """t of each draw ``[draws, series]``, where ``counts [draws, units]`` says how often each
        unit was drawn."""
        rest, denom, value = self._residuals[:, large], self._denom[:, large], self.values[large]
        drawn = counts @ denom
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = counts @ rest / drawn
            cross, weights = counts @ (rest * denom), counts @ denom**2
            squares = counts @ rest**2 - 2 * shift * cross + shift**2 * weights
            error = self._error(squares, drawn, counts @ self._there[:, large], value + shift)
            moved = np.log1p(shift / value) if self._log else shift
            found = np.asarray(moved / error)
        # A draw of equal units, or equal units throughout, says nothing about the spread.
        return np.where(np.isfinite(found), found, 0.0)

    def _around(self, reach: Numbers) -> list[Interval]:
        return [self._one(index, float(reach[index])) for index in range(len(self.values))]

    def _one(self, index: int, reach: float) -> Interval:
        value, units = float(self.values[index]), int(self.units[index])
        if not units or not np.isfinite(value):
            return Interval(units=units, how="no units" if not units else "nothing to divide by")
        if not self._some[index]:
            return Interval(value, units=units, how=too_few(units))
        how, away = "bootstrap-t" if units >= LARGE else "t", reach * float(self.errors[index])
        if self._log:
            return Interval(value, value * _exp(-away), value * _exp(away), units, how)
        return Interval(value, value - away, value + away, units, how)


def geometric(logs: ArrayLike) -> list[Interval]:
    """Geometric means of factors whose logs are given, ``[units, series]``, each interval alone."""
    return [i.map(_exp) for i in Ratios(logs).intervals()]


def geometric_family(
    logs: ArrayLike, among: NDArray[np.bool_] | None = None
) -> tuple[list[Interval], list[Interval]]:
    """The same, and once more with intervals that are simultaneous among some series."""
    found = Ratios(logs)
    alone, family = found.intervals(), found.simultaneous(among=among)
    return [i.map(_exp) for i in alone], [i.map(_exp) for i in family]


def welch(logs: Numbers, others: Numbers, level: float = LEVEL) -> Interval:
    """The factor ``exp(mean(logs) - mean(others))`` of two samples that are not paired (Welch 1947)."""
    one, two = logs[np.isfinite(logs)], others[np.isfinite(others)]
    units = min(len(one), len(two))
    if not units:
        return Interval()
    value = exp(one.mean() - two.mean())
    if units < FEWEST:
        return Interval(value, units=units, how=too_few(units))
    parts = [float(x.var(ddof=1)) / len(x) for x in (one, two)]
    if not sum(parts):
        return Interval(value, value, value, units, "Welch's t")
    pooled = sum(p**2 / (len(x) - 1) for p, x in zip(parts, (one, two), strict=True))
    away = float(student.isf((1 - level) / 2, sum(parts) ** 2 / pooled)) * sqrt(sum(parts))
    return Interval(value, value * _exp(-away), value * _exp(away), units, "Welch's t")


@lru_cache(maxsize=4)
def _counts(units: int, draws: int, seed: int) -> NDArray[np.uint16]:
    """How often each unit is in each bootstrap draw, ``[draws, units]``. All series share the draws."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(units, np.full(units, 1 / units), size=draws).astype(np.uint16)


def _exp(x: float) -> float:
    """``e^x``, finite also for bounds that say nothing: three units that differ wildly, in a large grid."""
    return exp(min(x, 300.0))


def _columns(values: ArrayLike) -> Numbers:
    found = np.asarray(values, dtype=np.float64)
    return found[:, None] if found.ndim == 1 else found
