"""A race at work: look by look, the slow cells leave; then the winner on the units held out.

The race is a sweep's folder like any other (``store.py``), so that it survives a kill, and
``foredraft report`` and ``rerun`` read it. Who is out is never stored: it follows from the records, so
a race that goes on later goes on the same way. That the time ended it is stored, because no record says
so, with the minutes that it had: with more of them it goes on. Imports no torch; only the worker does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from ..errors import InputError
from ..strict_json import read_object
from .cells import ENGINE
from .checking import amount
from .disk import encoded, read_whole, write_durably
from .folder import check_own
from .plan import Task, order
from .readings import Side, read
from .supervisor import Supervisor
from .sweeping import Bench
from .tuning_answer import Answer, Standing, measured, nobody, speedup
from .tuning_halving import Pace, stages
from .tuning_plan import SHARE, stored_plan
from .tuning_race import losses
from .verdicts import WRONG

OVER = "tuning.json"  # in the folder once the time ended the race, or there is an answer
HOLDS = ("same", "near-tie", "audited")  # verdicts with which speculating can be the answer
Told = Callable[[int], None]
Said = Callable[[str], None]


class Tune:
    """A race that is about to run, or goes on.

    Args:
        bench: its sweep.
        minutes: for all of it, runs of earlier calls included; None: as its folder says.
        said: hears who is out, and why.
    """

    def __init__(
        self, bench: Bench, minutes: float | None = None, said: Said = lambda line: None
    ) -> None:
        self.bench, self.store, self.said = bench, bench.store, said
        self.told: Told = lambda runs: None
        self.plan = stored_plan(self.store.manifest, self.store.folder)
        self.minutes = minutes or self.plan.minutes
        self.cells = [cell.id for cell in bench.cells if cell.kind == ENGINE]
        self.plain = [cell.id for cell in bench.cells if cell.kind != ENGINE]
        self.groups = {unit.index: unit.group for unit in bench.units}
        self.tasks = order(bench.cells, bench.units, bench.options)
        on_error = bench.options.on_error
        self.supervisor = Supervisor(
            self.store, bench.worker, on_error, told=lambda task: self.told(1)
        )
        self.out: dict[str, str] = {}
        self.ended = self._stored_end()
        self._told: set[str] = set()

    @property
    def runs(self) -> int:
        """The most runs that it can take."""
        arms, held = len(self.cells) + len(self.plain), len(self.plan.held_out)
        once = arms * len(self.plan.race) + held * (1 + len(self.plain))
        return int(self.bench.options.repeats) * once

    def run(self, told: Told = lambda runs: None) -> Answer:
        """Everything that is missing, and the answer.

        Args:
            told: hears of runs that were made, or need not be made any more.
        """
        self.told = told
        self.begun = time.monotonic() - sum(r["seconds"] for r in self.store.records())
        answer = None
        while answer is None:
            self._race(0.0 if self.ended else 60 * self.minutes * SHARE)
            best = self._best()
            answer = nobody(self.out, len(self.cells)) if best is None else self._measured(best)
        self._write({"answer": answer.as_dict()})
        return answer

    def standings(self) -> list[Standing]:
        """How every cell stands in the race, those that are in before those that are out, and the
        fastest first."""
        sides, plain = self._sides(self.plan.race), self._plain_sides(self.plan.race)
        groups = [self.groups[unit] for unit in self.plan.race]
        found = []
        for cell in self.cells:
            ratio, _ = speedup(sides[cell], plain, groups)
            found.append(Standing(cell, ratio.units, ratio, self.out.get(cell, "")))
        return sorted(found, key=lambda one: (bool(one.out), -(one.speedup.value or 0.0)))

    # --- the race ------------------------------------------------------------------------------

    @property
    def alive(self) -> list[str]:
        """Cells that are in."""
        return [cell for cell in self.cells if cell not in self.out]

    @property
    def looks(self) -> list[tuple[int, int]]:
        """The last repeat, and the units, of each look."""
        whole, repeats = len(self.plan.race), self.bench.options.repeats
        return [(0, units) for units in self.plan.looks] + [(r, whole) for r in range(1, repeats)]

    def _race(self, until: float) -> None:
        """Until one cell is left, the units are used up, or the time is.

        A cell that fails, or changes the output, has no say: what it had outrun comes back, and the
        looks are taken anew.
        """
        at, barred = 0, None
        early = stages(self.plan.looks[0])
        stops = [(0, units) for units in early] + self.looks
        while at < len(stops):
            if barred != self._barred():
                at, barred, self.out = 0, self._barred(), {}
                for cell, why in barred.items():
                    self._leave(cell, why)
            if len(self.alive) < 2:
                return
            repeat, units = stops[at]
            tasks = self._tasks(self.plan.race[:units], [*self.alive, *self.plain], repeat)
            made = self._work(tasks, until)
            if barred == self._barred():
                if not made:
                    self._end(at - len(early))
                    return
                if at < len(early):
                    self._halve(units)
                else:
                    self._look(repeat, units)
                at += 1

    def _halve(self, units: int) -> None:
        """Leaves out the slower half, where the time would be up before all reach the first look."""
        pace, first = Pace(self.store.records(), self.plan.race[:units]), self.plan.looks[0]
        time_for_it, rest = 60 * self.minutes * SHARE, first - units
        late = not pace.reaches([*self.alive, *self.plain], rest, time_for_it)
        if late and pace.spent < time_for_it:
            for cell in pace.slower_half(self.alive):
                self._leave(
                    cell, f"no time for so many: in the slower half after {units} of {first} units"
                )

    def _end(self, looks: int) -> None:
        """Stores that the time was up, before anything that a kill could part from it."""
        if looks <= 0:
            more = (
                f"go on with tune.resume={self.store.folder} and more than minutes={self.minutes:g}"
            )
            self.said(f"the time was up before the first look; {more}")
        if not self.ended:
            self.ended = True
            self._write({})

    def _stored_end(self) -> bool:
        """Whether the time ended the race before, when it had no fewer minutes than now."""
        path = self.store.folder / OVER
        check_own(self.store.folder, path)
        if not path.exists():
            return False
        minutes = read_object(read_whole(path), str(path)).get("minutes", 0)
        if not amount(minutes):
            raise InputError(f"{path} was changed by hand: minutes={minutes!r} is no number.")
        return bool(minutes >= self.minutes)

    def _look(self, repeat: int, units: int) -> None:
        """Leaves out who cannot be the fastest."""
        sides, failed = self._sides(self.plan.race[:units], repeat), self.supervisor.failed
        names = [name for name in [*self.alive, *self.plain] if name not in failed]
        tests = (len(self.cells) + len(self.plain) - 1) * len(self.looks)
        if not any(sides[name].timed.any() for name in names):
            self.said("no run could be timed so far, because other work takes the cores")
        found = losses({name: sides[name].seconds for name in names}, self.plain, tests)
        for cell, loss in found.items():
            self._leave(cell, f"{loss.factor.text()} times the speed of {loss.rival}")

    def _barred(self) -> dict[str, str]:
        """Cells that cannot win however fast they are, and why."""
        failures, verdicts = self.store.failures(), self.store.verdicts()
        found = {cell: f"failed: {failure['cause']}" for cell, failure in failures.items()}
        for cell, verdict in verdicts.items():
            if verdict.get("verdict") in WRONG:
                found[cell] = f"its output is not plain decoding's: {verdict.get('says', '')}"
        return {cell: why for cell, why in found.items() if cell in self.cells}

    def _leave(self, cell: str, why: str) -> None:
        self.out[cell] = why
        if cell in self._told:
            return
        self._told.add(cell)
        self.said(f"out: {cell}: {why}")
        made = sum(key[0] == cell for key in self.store.done())
        self.told(len(self.plan.race) * self.bench.options.repeats - made)

    def _tasks(self, units: Sequence[int], cells: Sequence[str], repeat: int) -> list[Task]:
        """Runs up to a repeat, unit by unit as these are listed."""
        place = {unit: at for at, unit in enumerate(units)}
        own = [t for t in self.tasks if t.unit in place and t.cell in cells and t.repeat <= repeat]
        return sorted(own, key=lambda task: (task.repeat, place[task.unit], task.order))

    def _work(self, tasks: Sequence[Task], until: float) -> bool:
        """Makes the runs that are missing; False if the time was up before all were made."""
        left = until - (time.monotonic() - self.begun)
        due = self._missing(tasks)
        if due and left > 0:
            self.supervisor.minutes = left / 60
            self.supervisor.run(due, self.bench.units)
        return not self._missing(tasks)

    def _missing(self, tasks: Sequence[Task]) -> list[Task]:
        done, failed = self.store.done(), self.supervisor.failed
        return [t for t in tasks if t.cell not in failed and (t.cell, t.unit, t.repeat) not in done]

    # --- the winner ----------------------------------------------------------------------------

    def _measured(self, cell: str) -> Answer | None:
        """The winner on the units held out; None if it turns out that it cannot win."""
        held, repeats = self.plan.held_out, self.bench.options.repeats
        self._judge(cell)
        if cell not in self._barred():
            self._work(self._tasks(held, [cell, *self.plain], repeats - 1), 60 * self.minutes)
            self._judge(cell)
        if cell in self._barred():
            return None
        groups = [self.groups[unit] for unit in held]
        found = measured(cell, *speedup(self._sides(held)[cell], self._plain_sides(held), groups))
        return self._proven(cell, found)

    def _proven(self, cell: str, found: Answer) -> Answer:
        """The answer; no speed is a reason to speculate while nobody knows what is written."""
        verdict = self.store.verdicts().get(cell, {})
        if not found.speculate or verdict.get("verdict") in HOLDS:
            return found
        why = str(verdict.get("says", "there is no verdict")).rstrip(".")
        says = (
            f"do not {found.says}, but nobody knows whether its output is plain decoding's: {why}"
        )
        return replace(found, speculate=False, says=says)

    def _best(self) -> str | None:
        """The fastest of the cells that are in, over the units that all of these have."""
        sides = self._sides(self.plan.race)
        able = [cell for cell in self.alive if sides[cell].timed.any()]
        if not able:  # one cell is no race: it need not have run
            return self.alive[0] if len(self.alive) == 1 else None
        logs = np.log(np.stack([sides[cell].seconds for cell in able]))
        shared = np.isfinite(logs).all(0)
        if not shared.any():  # the time was up in the first units
            return able[int(np.argmin(np.nanmean(logs, 1)))]
        return able[int(np.argmin(logs[:, shared].mean(1)))]

    def _judge(self, cell: str) -> None:
        """Has its answers so far compared with plain decoding's, unless that was done."""
        own = [asdict(one) for one in self.bench.cells if one.id == cell]
        self.supervisor.judge(own, self.bench.options.audit)

    def _sides(self, units: Sequence[int], repeat: int | None = None) -> dict[str, Side]:
        records = self.store.records()
        kept = (r for r in records if repeat is None or r["repeat"] <= repeat)
        return read(self.store.manifest["cells"], units, kept)

    def _plain_sides(self, units: Sequence[int]) -> list[Side]:
        sides = self._sides(units)
        return [sides[name] for name in self.plain if name not in self.supervisor.failed]

    def _write(self, value: dict[str, Any]) -> None:
        ended = {"minutes": self.minutes} if self.ended else {}
        value = {"race": "over", **ended, **value}
        path = self.store.folder / OVER
        check_own(self.store.folder, path)
        write_durably(path, encoded(value, OVER, indent=1))
