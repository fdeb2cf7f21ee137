"""Runs the plan of a sweep in one worker process, and lives on when that does not.

A run that raises, hangs or takes the process with it is booked against its cell, which is left out
from there on; the others go on, in a new worker if need be. Records are written here alone, one by
one, so that whatever ends a sweep costs the run it was in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import ForedraftError, InputError
from .disk import Unwritable
from .hand import Failed, Message, Worker
from .verdicts import UNKNOWN, due

if TYPE_CHECKING:
    from .plan import Task, Unit
    from .store import Store

STOP = "stop"


class SweepStopped(ForedraftError):
    """The sweep was to end at the first failure, and did."""


class Supervisor:
    """Works off a plan.

    Args:
        store: where records, failures and verdicts go.
        worker: who decodes.
        on_error: ``stop`` ends the sweep at the first failure.
        minutes: no run begins later than that after the start; None: no limit.
        told: called after each task, whether it was run or not.
    """

    def __init__(
        self,
        store: Store,
        worker: Worker,
        on_error: str = "continue",
        minutes: float | None = None,
        told: Callable[[Task], None] = lambda task: None,
    ) -> None:
        self.store, self.worker, self.told = store, worker, told
        self.on_error, self.minutes = on_error, minutes
        self.failed = set(store.failures())

    def run(self, tasks: Sequence[Task], units: Sequence[Unit]) -> None:
        """Every task that has no record yet, in order."""
        done, begun = self.store.done(), time.monotonic()
        of = {unit.index: unit for unit in units}
        for task in tasks:
            if self.minutes is not None and time.monotonic() - begun > 60 * self.minutes:
                break
            if (task.cell, task.unit, task.repeat) not in done and task.cell not in self.failed:
                self._one(task, of[task.unit])
            self.told(task)

    def _one(self, task: Task, unit: Unit) -> None:
        message = {"do": "run", "cell": task.cell, "prompts": list(unit.prompts)}
        try:
            self.worker.ask({"do": "load", "cell": task.cell})
            found = self.worker.ask(message)
        except Failed as failure:
            self._fail(task, failure)
            return
        self._keep(task, unit, found)

    def _keep(self, task: Task, unit: Unit, found: Message) -> None:
        """Records a run. One that cannot be right is its cell's failure; a full disk is not."""
        place = {key: getattr(task, key) for key in ("cell", "unit", "repeat", "order")}
        try:
            self.store.append({**place, "group": unit.group, **_without_kind(found)})
        except Unwritable:
            raise
        except InputError as error:
            self._fail(task, Failed("raised", str(error)))

    def _fail(self, task: Task, failure: Failed) -> None:
        """Books a failure and leaves the cell out from here on."""
        self.failed.add(task.cell)
        self.store.fail(task.cell, failure.cause, failure.kind, task.unit, task.repeat)
        if self.on_error == STOP:
            raise SweepStopped(f"{task.cell} failed: {failure.cause}")

    def judge(self, cells: Sequence[Message], rounds: int) -> None:
        """The verdicts that are due on these cells."""
        for cell, pairs in due(cells, self.store.records(), self.store.verdicts()):
            message = {"do": "verdict", "cell": cell, "pairs": pairs, "rounds": rounds}
            self.store.put_verdict(cell, {**self._verdict(message), "answers": len(pairs)})

    def _verdict(self, message: Message) -> Message:
        try:
            return _without_kind(self.worker.ask(message))
        except Failed as failure:
            return {"verdict": UNKNOWN, "says": failure.cause}

    def take_down(self, cells: Sequence[Message], prompts: Mapping[str, Sequence[int]]) -> None:
        """Some answers of each drafting cell, round by round, for people to look at; ``prompts`` by
        cell."""
        decoded = {key[0] for key in self.store.done()}
        due = decoded - self.failed - self.store.traces().keys()
        for cell in [cell for cell in cells if cell["kind"] == "engine" and cell["id"] in due]:
            message = {"do": "trace", "cell": cell["id"], "prompts": list(prompts[cell["id"]])}
            try:
                self.store.put_trace(cell["id"], _without_kind(self.worker.ask(message)))
            except Unwritable:
                raise
            # One that fails here, or says what cannot be right, has shown nothing new, and nobody
            # measures by it.
            except (Failed, InputError):
                continue


def _without_kind(answer: Message) -> Message:
    return {key: value for key, value in answer.items() if key != "is"}
