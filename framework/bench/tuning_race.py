"""Which arms of a race cannot be the fastest, and when to look. Numbers alone; imports no torch.

A race (Maron and Moore 1993, Hoeffding Races, NIPS 6; with tests for paired blocks Birattari et al. 2002,
GECCO, "F-race") runs all arms on the same units and leaves out early those that cannot win. Arms are the
cells and the plain decodings beside them. With ``d`` the log of an arm's seconds per token less that of a
rival, unit by unit, an arm is out as soon as

    mean(d) - t(1 - error / (rivals * looks); units - 1) * sd(d) / sqrt(units) > 0

for any rival. The arm that is truly the fastest goes out only where one of these bounds is on the wrong
side of the truth, for one of its rivals at one of the looks. Each is so with chance
``error / (rivals * looks)``, so it stays in with chance ``1 - error``, however arms and looks depend on
each other. Rivals and looks are counted before the race begins and not fewer when arms go out. What t
asks is that means over units are near normal, so the first look waits for ``FEWEST`` units.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, exp

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from .interval import Interval

Numbers = NDArray[np.float64]

ERROR = 0.05
FEWEST = 6  # units before the first look
GROWTH = 1.5  # of the units from look to look: fewer looks cost less of the error


@dataclass(frozen=True)
class Loss:
    """Why an arm is out.

    Args:
        rival: the arm that it is slower than.
        factor: its speed over the rival's; the bounds hold for all arms and looks together.
    """

    rival: str
    factor: Interval


def schedule(units: int, groups: int = 1) -> list[int]:
    """After how many units a look is taken; each is a multiple of ``groups``, but for the last.

    ``schedule(24, 6)`` is ``[6, 12, 18, 24]``.
    """
    found, at = [], _up(FEWEST, groups)
    while at < units:
        found.append(at)
        at = _up(GROWTH * at, groups)
    return [*found, units]


def losses(
    seconds: Mapping[str, Numbers],
    fixed: Collection[str],
    tests: int,
    error: float = ERROR,
) -> dict[str, Loss]:
    """The arms that cannot be the fastest, each with the rival that shows it most clearly.

    Args:
        seconds: per token, by unit, of every arm that is in; NaN where it has none.
        fixed: arms that are rivals only and never go out: plain decodings.
        tests: rivals of an arm, times looks, of the whole race.
        error: the chance that the fastest arm ever goes out.
    """
    names = list(seconds)
    if not names:
        return {}
    mean, reach, units = _differences(
        np.log(np.stack(list(seconds.values()))), error / max(tests, 1)
    )
    bound = np.where(units >= FEWEST, mean - reach, -np.inf)
    found = {}
    for arm, name in enumerate(names):
        rival = int(np.argmax(bound[arm]))
        if name not in fixed and bound[arm, rival] > 0:
            middle, away = float(mean[arm, rival]), float(reach[arm, rival])
            low, value, high = (_exp(-middle + side * away) for side in (-1, 0, 1))
            factor = Interval(value, low, high, int(units[arm, rival]), "t, for the race")
            found[name] = Loss(names[rival], factor)
    return found


def _differences(logs: Numbers, error: float) -> tuple[Numbers, Numbers, Numbers]:
    """Mean of each row of ``[arms, units]`` less each other one, the reach of its bound, and the units
    that both have; all ``[arms, arms]``. By sums of products, so that there is no loop over pairs."""
    there = np.isfinite(logs).astype(np.float64)
    counts = there.sum(0)
    logs = np.where(there > 0, logs, 0.0)
    # What all arms share on a unit is in no difference; without it little is lost by rounding.
    logs = there * (logs - logs.sum(0) / np.maximum(counts, 1))
    units = there @ there.T
    total, squares = logs @ there.T, logs**2 @ there.T
    sums = total - total.T
    mean = sums / np.maximum(units, 1)
    rest = squares + squares.T - 2 * logs @ logs.T - mean * sums
    variance = np.maximum(rest, 0) / np.maximum(units - 1, 1) / np.maximum(units, 1)
    number, place = np.unique(units, return_inverse=True)
    reach = np.array([_quantile(error, int(n)) for n in number])[place.reshape(units.shape)]
    return mean, reach * np.sqrt(variance), units


@lru_cache(maxsize=4096)
def _quantile(error: float, units: int) -> float:
    return float(student.isf(error, max(units - 1, 1)))


def _up(number: float, step: int) -> int:
    """The next multiple of ``step``."""
    return ceil(number / step - 1e-9) * step


def _exp(value: float) -> float:
    return exp(min(value, 300.0))
