"""Two sweeps against each other: what changed, in what was asked for and in what was found.

Each run has its own baseline, measured beside its cells, so a cell is judged by its *speed-up*: that
of run B over that of run A. A machine that is slower today slows both sides of it. The speeds
themselves are given too. Units that hold the same prompts are paired; runs over different prompts are
compared without pairs, which needs far larger differences.

A cell is a regression when its factor is below ``1 - threshold`` and its interval, simultaneous over all
cells compared, leaves out 1; so is a tau that fell so, a cell that fails now, and a verdict that is
no longer that of a lossless cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .difference import differences
from .interval import LEVEL, Interval
from .matching import Pairs, matched, shared_units
from .readings import GENERATE, PLAIN
from .stats import geometric_family, welch
from .summary import FAILED, CellSummary, Summary

Numbers = NDArray[np.float64]

# Verdicts that say a cell is at fault (``lossless.py``).
REFUTED = ("different", "faulty")
THRESHOLD = 0.05


@dataclass(frozen=True)
class Change:
    """One cell in both runs.

    Args:
        id: in run B.
        choices: what it is.
        paired: whether the runs have units in common.
        speedup: the factor by which its speed-up changed, B over A; its interval alone.
        family: the same, simultaneous over all cells compared.
        rate: the factor by which its decoding speed changed.
        tau: the factor by which its tokens per round changed, simultaneous.
        status, verdict: in A and in B.
        regressions: sentences; empty when it got no worse.
    """

    id: str
    choices: Mapping[str, Any]
    paired: bool
    speedup: Interval
    family: Interval
    rate: Interval
    tau: Interval
    status: tuple[str, str]
    verdict: tuple[str, str]
    regressions: Sequence[str] = ()


@dataclass(frozen=True)
class Comparison:
    """Run B against run A.

    Args:
        changes: sentences about what was asked for: config, prompts, versions, machine, commit.
        cells: those in both runs.
        only_a, only_b: ids of the others.
    """

    changes: Sequence[str]
    cells: Sequence[Change]
    only_a: Sequence[str] = ()
    only_b: Sequence[str] = ()
    threshold: float = THRESHOLD

    @property
    def regressions(self) -> list[str]:
        """One sentence each; empty when run B is no worse than run A."""
        return [sentence for cell in self.cells for sentence in cell.regressions]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "regressions": self.regressions}


def compare(a: Summary, b: Summary, threshold: float = THRESHOLD) -> Comparison:
    """What changed from run A to run B.

    Args:
        threshold: part of a speed-up that may be lost without being called a regression.

    Raises:
        ConfigError: ``threshold`` is not from 0 to 1.
    """
    if not 0 <= threshold < 1:
        raise ConfigError(
            f"threshold={threshold!r} is not possible; it must be from 0 to 1, without 1."
        )
    pairs = matched(a, b)
    units = shared_units(a.manifest, b.manifest)
    return Comparison(
        changes=[
            *_commits(a.manifest, b.manifest),
            *differences(a.manifest, b.manifest),
            *_bases(pairs),
        ],
        cells=_changes(pairs, units, threshold),
        only_a=_left([cell.id for cell in a.cells], [one.id for one, _ in pairs]),
        only_b=_left([cell.id for cell in b.cells], [other.id for _, other in pairs]),
        threshold=threshold,
    )


def _changes(pairs: Pairs, units: list[tuple[int, int]] | None, threshold: float) -> list[Change]:
    if not pairs:
        return []
    speedup, family = _factors(pairs, units, "by_unit")
    rate, _ = _factors(pairs, units, "seconds_by_unit")
    _, tau = _factors(pairs, units, "tau_by_unit")
    return [
        Change(
            id=other.id,
            choices=other.choices,
            paired=units is not None,
            speedup=speedup[index],
            family=family[index],
            rate=rate[index],
            tau=tau[index],
            status=(one.status, other.status),
            verdict=(_verdict(one), _verdict(other)),
            regressions=_regressions(one, other, family[index], tau[index], threshold),
        )
        for index, (one, other) in enumerate(pairs)
    ]


def _factors(
    pairs: Pairs, units: list[tuple[int, int]] | None, name: str
) -> tuple[list[Interval], list[Interval]]:
    """Factors from A to B, each interval alone, and simultaneous over all cells."""
    before, after = (_logs([pair[side] for pair in pairs], name) for side in (0, 1))
    if units is not None:
        places = np.asarray(units, dtype=np.int64).reshape(-1, 2)
        moved = after[places[:, 1]] - before[places[:, 0]]
        return geometric_family(moved)
    columns = list(zip(after.T, before.T, strict=True))
    level = 1 - (1 - LEVEL) / len(columns)
    return [welch(*both) for both in columns], [welch(*both, level=level) for both in columns]


def _logs(cells: Sequence[CellSummary], name: str) -> Numbers:
    """``[units, cells]``, larger is better. Baselines are what speed-ups are against and draft
    nothing, so only their speed is compared."""
    speed = name == "seconds_by_unit"
    columns = [
        [np.nan if x is None or not (speed or _judged(cell)) else x for x in getattr(cell, name)]
        for cell in cells
    ]
    # Of a run whose every cell shared the machine no unit has a value, but it has its units.
    most = max(*map(len, columns), *(len(cell.tau_by_unit) for cell in cells), 1)
    values = np.array([column or [np.nan] * most for column in columns]).T
    return np.asarray(-np.log(values) if speed else np.log(values))


def _judged(cell: CellSummary) -> bool:
    return cell.kind not in (PLAIN, GENERATE)


def _regressions(
    one: CellSummary, other: CellSummary, speedup: Interval, tau: Interval, threshold: float
) -> list[str]:
    found = []
    if other.status == FAILED != one.status:
        found.append(f"{other.id} fails now: {other.cause}")
    if _verdict(other) in REFUTED and _verdict(one) not in REFUTED:
        found.append(f"{other.id} is no longer lossless: its verdict is {_verdict(other)}")
    for name, factor in (("speed-up", speedup), ("tau", tau)):
        if factor.value is not None and factor.value < 1 - threshold and factor.differs() < 0:
            was, now = (_shown(cell, name) for cell in (one, other))
            found.append(f"{other.id}: {name} {was} is now {now}, a factor of {factor.text()}")
    return found


def _shown(cell: CellSummary, name: str) -> str:
    value = (cell.tau if name == "tau" else cell.speedup).value
    return "-" if value is None else f"{value:.2f}"


def _verdict(cell: CellSummary) -> str:
    return str((cell.verdict or {}).get("verdict", ""))


def _commits(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    was, now = a.get("commit"), b.get("commit")
    return [] if was == now else [f"commit was {was}, is {now}"]


def _bases(pairs: Pairs) -> list[str]:
    """A speed-up is against the fastest plain decoding, which may be another one now."""
    found: dict[tuple[str, str], list[str]] = {}
    for one, other in pairs:
        if _judged(other) and one.base and other.base and set(one.base) != set(other.base):
            found.setdefault((" / ".join(one.base), " / ".join(other.base)), []).append(other.id)
    return [
        f"the fastest plain decoding was {was}, is {now}, for {len(ids)} cells "
        f"({ids[0]}{', ...' * (len(ids) > 1)})"
        for (was, now), ids in found.items()
    ]


def _left(ids: Sequence[str], matched: Sequence[str]) -> list[str]:
    return [name for name in ids if name not in matched]
