"""What the runs of each cell say, unit by unit: the arrays that the statistics work on.

Seconds are of decoding alone, per token that decoding emitted: ``generate``'s first token comes out of
its prefill, so it counts there. Of several repeats of a unit the median stands. Runs that shared the
machine (``contended``) give tokens and counts, but no times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, nan
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .course import Begun, begun

Numbers = NDArray[np.float64]
Record = Mapping[str, Any]

ENGINE, PLAIN, GENERATE = "engine", "plain", "generate"
PHASES = ("draft", "verify", "sampling", "other")
COUNTS = ("rounds", "drafted", "accepted", "emitted", "overlap", "reached")


@dataclass
class Side:
    """One cell's runs; arrays hold one entry per unit of the sweep, NaN where it has none.

    Args:
        kind: of the cell; ``generate`` and its kin emit a token in the prefill and count no rounds.
        seconds: decode seconds per token, the median over repeats.
        halves: the same from repeats 0, 2, ... and from 1, 3, ...: one side against itself.
        tokens: emitted by decoding, in the median run.
        forwards: target steps of the median run: of a batch, those of its longest row.
        phases: seconds of the median run by ``PHASES``, ``[units, 4]``; they add up to its decoding.
        counts: of ``COUNTS``, each summed over the rows and repeats of a unit.
        reached_at, accepted_at: by position in the draft, summed over everything.
        rounds: by unit, where in the answer each round began, how many drafted tokens it reached and
            how many it accepted.
        longest: tokens of the longest answer.
        batch: the most rows of a run.
    """

    id: str
    kind: str
    seconds: Numbers
    halves: tuple[Numbers, Numbers]
    tokens: Numbers
    forwards: Numbers
    phases: Numbers
    counts: dict[str, Numbers]
    reached_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    rounds: dict[int, list[Begun]] = field(default_factory=dict)
    longest: int = 0
    runs: int = 0
    contended: int = 0
    batch: int = 0

    @classmethod
    def empty(cls, cell: str, kind: str, units: int) -> Side:
        """A cell that was never run."""

        def missing() -> Numbers:
            return np.full(units, np.nan)

        counts = {name: missing() for name in COUNTS}
        phases = np.full((units, len(PHASES)), np.nan)
        pair = (missing(), missing())
        return cls(cell, kind, missing(), pair, missing(), missing(), phases, counts)

    @property
    def timed(self) -> NDArray[np.bool_]:
        """Units with a time."""
        return np.isfinite(self.seconds)

    def total(self, name: str) -> float:
        """A count over all units."""
        return float(np.nansum(self.counts[name]))

    def add(self, unit: int, records: Sequence[Record]) -> None:
        """All runs of one unit."""
        self.runs += len(records)
        self.contended += sum(bool(r.get("contended")) for r in records)
        self.batch = max([self.batch, *(len(r["rows"]) for r in records)])
        self._count(unit, records)
        timed = [(self._pace(r), r) for r in records if not r.get("contended")]
        timed = [(pace, r) for pace, r in timed if isfinite(pace)]
        if timed:
            self._time(unit, timed)

    def _pace(self, record: Record) -> float:
        tokens, seconds = _decoded(record, self.kind), record["seconds"] - record["prefill"]
        return seconds / tokens if tokens > 0 and seconds > 0 else nan

    def _time(self, unit: int, timed: list[tuple[float, Record]]) -> None:
        self.seconds[unit] = median([pace for pace, _ in timed])
        for half in (0, 1):
            paces = [pace for pace, r in timed if r["repeat"] % 2 == half]
            self.halves[half][unit] = median(paces) if paces else nan
        middle = sorted(timed, key=lambda pair: pair[0])[(len(timed) - 1) // 2][1]
        self.tokens[unit] = _decoded(middle, self.kind)
        if middle.get("time") and any("rounds" in row for row in middle["rows"]):
            self.forwards[unit] = max(row.get("rounds", 0) for row in middle["rows"])
            self.phases[unit] = _phases(middle)

    def _count(self, unit: int, records: Sequence[Record]) -> None:
        self.longest = max([self.longest, *(len(row["ids"]) for r in records for row in r["rows"])])
        rows = [row for r in records for row in r["rows"] if "rounds" in row]
        if not rows:
            return
        for name in COUNTS[:-1]:
            self.counts[name][unit] = sum(row.get(name, 0) for row in rows)
        self.counts["reached"][unit] = sum(sum(row.get("reached_at", ())) for row in rows)
        self.rounds[unit] = begun(rows)
        for row in rows:
            _add(self.reached_at, row.get("reached_at", ()))
            _add(self.accepted_at, row.get("accepted_at", ()))


def read(
    cells: Sequence[Mapping[str, Any]], units: Sequence[int], records: Iterable[Record]
) -> dict[str, Side]:
    """The sides by cell id.

    Args:
        cells: as in the manifest; records of other cells are left out.
        units: the sweep's unit indices, in the order of the arrays.
        records: one per run.
    """
    place = {unit: index for index, unit in enumerate(units)}
    sides = {cell["id"]: Side.empty(cell["id"], cell["kind"], len(place)) for cell in cells}
    runs: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        if record["cell"] in sides and record["unit"] in place:
            runs.setdefault((record["cell"], record["unit"]), []).append(record)
    for (cell, unit), found in runs.items():
        sides[cell].add(place[unit], found)
    return sides


def _decoded(record: Record, kind: str) -> int:
    # Plain ``generate`` lets go of one token with the prefill; its assisted loop of a whole round.
    first = len(record["rows"]) if kind.startswith(GENERATE) else 0
    by_prefill: int = record.get("by_prefill", first)
    return sum(len(row["ids"]) for row in record["rows"]) - by_prefill


def _phases(record: Record) -> list[float]:
    """What no phase claims of the run's decoding, time between rounds included, is ``other``."""
    known = [float(record["time"].get(name, 0.0)) for name in PHASES[:-1]]
    return [*known, record["seconds"] - record["prefill"] - sum(known)]


def _add(counts: list[int], more: Sequence[int]) -> None:
    counts.extend([0] * (len(more) - len(counts)))
    for index, value in enumerate(more):
        counts[index] += value
