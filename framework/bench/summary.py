"""The one table that a sweep comes down to: what reports, comparisons and tuning all read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .choosing import Noise, Winner
from .columns import Columns
from .course import Stretch
from .gap import Gap, gap
from .interval import Interval
from .readings import ENGINE, GENERATE, PHASES, Record, Side
from .verdicts import wrong

OK, FAILED, CONTENDED, MISSING = "ok", "failed", "contended", "missing"
FASTER, SLOWER, UNCLEAR = "faster", "slower", "no clear difference"


@dataclass(frozen=True)
class CellSummary:
    """One cell.

    Args:
        id, kind, choices, lossless: as in the manifest.
        status: ``ok``; ``failed``, with its ``cause``; ``contended`` when all its runs shared the
            machine; ``missing`` when it has no runs yet. Only ``ok`` has speeds; counts stay.
        loop: the id of its plain loop.
        base: the cells that its speed-up is against: the fastest plain decoding (``choosing``).
        units: on how many it has a time.
        runs, contended: runs kept, and how many of them shared the machine.
        tokens: decoded in the runs that stand for their units.
        unequal: units on which it emitted another number of tokens than its plain loop. Times are per
            token, but answers of other lengths are not quite the same work.
        rate: decoded tokens per second.
        speedup: geometric mean over units; this interval covers with 95 % on its own.
        family: the same with an interval so wide that with 95 % those of *all* cells cover.
        clear: ``faster`` or ``slower`` where ``family`` leaves out 1, else ``no clear difference``.
        totals: the speed-up as the ratio of total times, for the tokens of the plain loop.
        against_loop: the speed-up against the plain loop of this project.
        groups: ``speedup`` by group of prompts, each interval on its own.
        by_unit: the speed-up on each unit, None where there is none.
        seconds_by_unit, tau_by_unit: likewise, decode seconds per token, and ``tau``.
        tau, alpha, accept_rate: as in ``framework/metrics.py``, with intervals over units.
        tau_groups: ``tau`` by group.
        reached_at, accepted_at: by position in the draft, over all runs.
        course: ``accept_rate`` by where in the answer the round began, see ``course``.
        counts: rounds, drafted, accepted, emitted, overlap, reached, over all runs.
        phases: seconds per decoded token by phase.
        gap: against the plain loop; None for baselines and where times by phase are missing.
        verdict: the losslessness verdict as stored.
    """

    id: str
    kind: str
    choices: Mapping[str, Any]
    lossless: bool
    status: str
    cause: str = ""
    loop: str = ""
    base: tuple[str, ...] = ()
    units: int = 0
    runs: int = 0
    contended: int = 0
    tokens: int = 0
    unequal: int = 0
    clear: str = UNCLEAR
    rate: Interval = Interval()
    speedup: Interval = Interval()
    family: Interval = Interval()
    totals: Interval = Interval()
    against_loop: Interval = Interval()
    groups: Mapping[str, Interval] = field(default_factory=dict)
    by_unit: Sequence[float | None] = ()
    seconds_by_unit: Sequence[float | None] = ()
    tau_by_unit: Sequence[float | None] = ()
    tau: Interval = Interval()
    alpha: Interval = Interval()
    accept_rate: Interval = Interval()
    tau_groups: Mapping[str, Interval] = field(default_factory=dict)
    reached_at: Sequence[int] = ()
    accepted_at: Sequence[int] = ()
    course: Sequence[Stretch] = ()
    counts: Mapping[str, float] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    gap: Gap | None = None
    verdict: Mapping[str, Any] | None = None

    @property
    def accept_at(self) -> list[float | None]:
        """Share of drafted tokens accepted at each position, if it was reached."""
        accepted = [*self.accepted_at, *[0] * (len(self.reached_at) - len(self.accepted_at))]
        return [a / r if r else None for a, r in zip(accepted, self.reached_at, strict=True)]


@dataclass(frozen=True)
class Summary:
    """A sweep.

    Args:
        manifest: as given.
        groups: of each unit.
        cells: in the manifest's order, baselines too.
        noise: what plain decoding says of itself, by the id of the plain loop.
        winners: the fastest lossless cell, chosen on one half and measured on the other, likewise.
    """

    manifest: Mapping[str, Any]
    groups: Sequence[str]
    cells: Sequence[CellSummary]
    noise: Mapping[str, Noise]
    winners: Mapping[str, Winner]

    def __getitem__(self, cell: str) -> CellSummary:
        """A cell by its id."""
        return {one.id: one for one in self.cells}[cell]

    def as_dict(self) -> dict[str, Any]:
        """For JSON: plain values, no NaN, without the manifest."""
        return {
            "groups": list(dict.fromkeys(self.groups)),
            "units": len(self.groups),
            "cells": [{**asdict(cell), "accept_at": cell.accept_at} for cell in self.cells],
            "noise": {key: asdict(value) for key, value in self.noise.items()},
            "winners": {key: asdict(value) for key, value in self.winners.items()},
        }


def summarise(
    manifest: Mapping[str, Any],
    records: Iterable[Record],
    failures: Mapping[str, Mapping[str, Any]] | None = None,
    verdicts: Mapping[str, Mapping[str, Any]] | None = None,
) -> Summary:
    """Everything a sweep says, from its folder's plain records. Gives the same for the same records.

    Args:
        manifest: with ``cells`` and ``units`` as dicts.
        records: one per run, in any order.
        failures, verdicts: by cell id.
    """
    failures, verdicts = failures or {}, verdicts or {}
    columns = Columns(manifest, records, failures)
    cells = [
        _cell(columns, cell, found, failures, verdicts.get(cell["id"]))
        for cell, found in zip(columns.cells, columns.intervals(), strict=True)
    ]
    return Summary(
        manifest=manifest,
        groups=columns.groups,
        cells=cells,
        noise=columns.noise(),
        winners=columns.winners(wrong(verdicts)),
    )


def _cell(
    columns: Columns,
    cell: Mapping[str, Any],
    found: dict[str, Any],
    failures: Mapping[str, Mapping[str, Any]],
    verdict: Mapping[str, Any] | None,
) -> CellSummary:
    side, loop = columns.sides[cell["id"]], columns.loop[cell["id"]]
    plain = columns.sides.get(loop)
    status, cause = _status(side, failures)
    return CellSummary(
        id=side.id,
        kind=side.kind,
        choices=cell["choices"],
        lossless=cell["lossless"],
        status=status,
        cause=cause,
        loop=loop,
        base=columns.bases[loop].ids,
        runs=side.runs,
        contended=side.contended,
        tokens=int(np.nansum(side.tokens)),
        unequal=_unequal(side, plain),
        clear={1: FASTER, -1: SLOWER, 0: UNCLEAR}[found["family"].differs()],
        tau_by_unit=_known(_divided(side.counts["emitted"], side.counts["rounds"])),
        reached_at=side.reached_at,
        accepted_at=side.accepted_at,
        counts={key: side.total(key) for key in side.counts},
        verdict=verdict,
        **found,
        **(_times(columns, side, None if loop in failures else plain) if status == OK else {}),
    )


def _times(columns: Columns, side: Side, plain: Side | None) -> dict[str, Any]:
    """What only a cell with times has."""
    return {
        "units": int(side.timed.sum()),
        "by_unit": _known(np.exp(columns.logs[side.id])),
        "seconds_by_unit": _known(side.seconds),
        "phases": _phases(side),
        "gap": gap(side, plain) if plain and side.kind == ENGINE else None,
    }


def _status(side: Side, failures: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    if side.id in failures:
        return FAILED, str(failures[side.id].get("cause", ""))
    if not side.runs:
        return MISSING, "it has no runs yet"
    if side.timed.any():
        return OK, ""
    if side.contended == side.runs:
        return CONTENDED, "all its runs shared the machine"
    return MISSING, "none of its runs has a token to time"


def _unequal(side: Side, plain: Side | None) -> int:
    if plain is None or side.kind.startswith(GENERATE):
        return 0
    both = np.isfinite(plain.tokens) & np.isfinite(side.tokens)
    return int((both & (plain.tokens != side.tokens)).sum())


def _phases(side: Side) -> dict[str, float]:
    there = np.isfinite(side.phases).all(1)
    if not there.any():
        return {}
    seconds = side.phases[there].sum(0) / side.tokens[there].sum()
    return dict(zip(PHASES, seconds.tolist(), strict=True))


def _divided(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(top / bottom)


def _known(values: NDArray[np.float64]) -> list[float | None]:
    return [float(x) if np.isfinite(x) else None for x in values]
