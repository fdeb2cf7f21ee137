"""The numbers of all cells of a sweep at once, one column each: so that every bootstrap draws its units
for all cells together, and is paid for once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import choosing
from .choosing import Base, Noise, Winner
from .course import course
from .interval import Interval
from .readings import ENGINE, GENERATE, PLAIN, Record, Side, read
from .stats import Ratios, geometric, geometric_family

Numbers = NDArray[np.float64]


class Columns:
    """Sides, bases and log speed-ups of every cell, and intervals from them.

    Args:
        manifest: with ``cells`` and ``units`` as dicts.
        records: one per run.
        failed: ids of cells whose times do not count.
    """

    def __init__(
        self, manifest: Mapping[str, Any], records: Iterable[Record], failed: Iterable[str]
    ) -> None:
        self.cells: list[Mapping[str, Any]] = list(manifest["cells"])
        self.ids = [cell["id"] for cell in self.cells]
        self.groups = [str(unit["group"]) for unit in manifest["units"]]
        # Units of one group and batch size are what a fair half is drawn from.
        self.strata = [f"{u['group']} {u.get('batch_size')}" for u in manifest["units"]]
        self.failed = frozenset(failed)
        self.sides = read(self.cells, [unit["index"] for unit in manifest["units"]], records)
        self.loop = {c["id"]: c["baseline"] or c["id"] for c in self.cells}
        self.bases = {loop: self._base(loop) for loop in dict.fromkeys(self.loop.values())}
        self.logs = {
            name: self._log(name, self.bases[self.loop[name]].seconds) for name in self.ids
        }

    def intervals(self) -> list[dict[str, Any]]:
        """For each cell its intervals by name, and by name and group."""
        if not self.cells:
            return []
        logs = self._stack(lambda name: self.logs[name])
        # What cells are compared with is no part of the family.
        grid = np.array([cell["kind"] not in (PLAIN, GENERATE) for cell in self.cells])
        alone, family = geometric_family(logs, grid)
        columns: dict[str, list[Any]] = {
            "speedup": alone,
            "family": family,
            "against_loop": geometric(self._stack(self._against_loop)),
            "totals": self._totals(),
            "rate": self._rates(),
            "tau": self._ratio("emitted", "rounds", log=True),
            "alpha": self._ratio("overlap", "reached"),
            "accept_rate": self._ratio("accepted", "reached"),
            "course": [course(self.sides[name], self._longest) for name in self.ids],
            **self._by_group(logs),
        }
        return [
            {name: column[index] for name, column in columns.items()}
            for index in range(len(self.cells))
        ]

    def noise(self) -> dict[str, Noise]:
        """Of each plain loop that has times."""
        loops = [loop for loop in self.bases if loop in self.sides and self.sides[loop].timed.any()]
        return {loop: choosing.noise(self.sides[loop], self._again(loop)) for loop in loops}

    def winners(self, barred: Collection[str] = ()) -> dict[str, Winner]:
        """The fastest lossless cell against each plain loop.

        Args:
            barred: cells whose output is not the target's, whatever their verifier says.
        """
        found = {}
        for loop in self.bases:
            able = {
                c["id"]: self.logs[c["id"]]
                for c in self.cells
                if c["kind"] == ENGINE
                and c["lossless"]
                and self.loop[c["id"]] == loop
                and c["id"] not in barred
            }
            best = choosing.winner(able, self.strata)
            if best:
                found[loop] = best
        return found

    def _base(self, loop: str) -> Base:
        able = [
            c["id"]
            for c in self.cells
            if c["id"] not in self.failed
            and (c["id"] == loop or (c["kind"] == GENERATE and self.loop[c["id"]] == loop))
        ]
        return choosing.fastest([self.sides[name] for name in able], self.strata)

    def _log(self, cell: str, base: Numbers) -> Numbers:
        """Log speed-up by unit."""
        if cell in self.failed:
            return np.full(len(self.groups), np.nan)
        return np.asarray(np.log(base) - np.log(self.sides[cell].seconds))

    def _against_loop(self, cell: str) -> Numbers:
        loop = self.loop[cell]
        if loop in self.failed or loop not in self.sides:
            return np.full(len(self.groups), np.nan)
        return self._log(cell, self.sides[loop].seconds)

    def _again(self, loop: str) -> Side | None:
        """A cell that ran the plain loop a second time."""
        for cell in self.cells:
            if cell["kind"] == PLAIN and cell["baseline"] == loop and cell["id"] not in self.failed:
                side = self.sides[cell["id"]]
                return side if side.timed.any() else None
        return None

    def _loop_of(self, cell: str) -> Side:
        """The plain loop of a cell; the cell itself if the sweep has none."""
        return self.sides.get(self.loop[cell], self.sides[cell])

    def _stack(self, column: Callable[[str], Numbers]) -> Numbers:
        """``[units, cells]`` from one column per cell."""
        return np.stack([column(name) for name in self.ids], 1)

    def _totals(self) -> list[Interval]:
        """Total time of the base over that of the cell, both for the tokens that the loop emitted."""
        tokens = self._stack(lambda name: self._loop_of(name).tokens)
        logs = self._stack(lambda name: self.logs[name])
        ours = self._stack(lambda name: self.sides[name].seconds)
        tokens = np.where(np.isfinite(tokens), tokens, self._stack(lambda n: self.sides[n].tokens))
        tokens = np.where(np.isfinite(logs), tokens, np.nan)
        return Ratios(ours * np.exp(logs) * tokens, ours * tokens, log=True).intervals()

    def _rates(self) -> list[Interval]:
        tokens = self._stack(lambda name: self.sides[name].tokens)
        seconds = self._stack(lambda name: self.sides[name].seconds) * tokens
        seconds[:, [name in self.failed for name in self.ids]] = np.nan
        return Ratios(tokens, seconds, log=True).intervals()

    def _counted(self, name: str) -> Numbers:
        return self._stack(lambda cell: self.sides[cell].counts[name])

    @property
    def _longest(self) -> int:
        """Tokens of the longest answer, so that all cells are cut into the same stretches."""
        return max(side.longest for side in self.sides.values())

    def _ratio(self, top: str, bottom: str, log: bool = False) -> list[Interval]:
        found = Ratios(self._counted(top), self._counted(bottom), log=log).intervals()
        return found if log else [i.map(lambda x: min(max(x, 0.0), 1.0)) for i in found]

    def _by_group(self, logs: Numbers) -> dict[str, list[dict[str, Interval]]]:
        emitted, rounds = self._counted("emitted"), self._counted("rounds")
        speed: dict[str, list[Interval]] = {}
        tau: dict[str, list[Interval]] = {}
        for group in dict.fromkeys(self.groups):
            inside = np.asarray(self.groups) == group
            speed[group] = geometric(logs[inside])
            tau[group] = Ratios(emitted[inside], rounds[inside], log=True).intervals()
        return {"groups": _by_cell(speed, self.ids), "tau_groups": _by_cell(tau, self.ids)}


def _by_cell(
    groups: Mapping[str, Sequence[Interval]], ids: Sequence[str]
) -> list[dict[str, Interval]]:
    return [{name: found[i] for name, found in groups.items()} for i in range(len(ids))]
