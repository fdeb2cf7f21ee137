"""A job: its share of a sweep, measured into a folder of its own. Imports no torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...cli.display import one_line
from ...errors import ForedraftError, InputError
from ..folder import resume
from ..hand import PATIENCE
from ..kept import Kept, Key
from ..machine import moment, versions
from ..store import Store
from ..supervisor import SweepStopped
from ..sweeping import Bench, hardware_of
from .launch import PLACES, Launch, Withdrawn, check, joined, withdraw
from .places import Neighbour, Place, pinned
from .shares import MEASURE, by_cell, by_unit

Outcome = dict[str, str]
STOPPED = "stopped"


class Share(Store):
    """A job's folder, over the sweep's: what is done there need not be done here."""

    sweep: Kept | None = None

    @classmethod
    def begun(cls, sweep: Kept, folder: Path, about: Mapping[str, Any]) -> Share:
        """A new folder for a job.

        Args:
            about: what goes into its manifest in place of what the sweep's says.
        """
        made = cls.create(folder, {**sweep.manifest, "prompts": sweep.prompts, **about})
        assert isinstance(made, Share)
        made.sweep = sweep
        return made

    @property
    def resuming(self) -> str:
        """That of the sweep: a job's own folder is taken away in the end."""
        return resume(self.sweep.folder, self.sweep.manifest) if self.sweep else super().resuming

    def records(self) -> Iterator[dict[str, Any]]:
        """The sweep's and this job's."""
        if self.sweep is not None:
            yield from self.sweep.records()
        yield from super().records()

    def done(self) -> set[Key]:
        """The sweep's and this job's."""
        return (self.sweep.done() if self.sweep else set()) | super().done()

    def failures(self) -> dict[str, dict[str, Any]]:
        """The sweep's and this job's."""
        return {**(self.sweep.failures() if self.sweep else {}), **super().failures()}

    def verdicts(self) -> dict[str, dict[str, Any]]:
        """The sweep's and this job's."""
        return {**(self.sweep.verdicts() if self.sweep else {}), **super().verdicts()}

    def traces(self) -> dict[str, dict[str, Any]]:
        """The sweep's and this job's."""
        return {**(self.sweep.traces() if self.sweep else {}), **super().traces()}


def run(config: Any) -> Outcome:
    """What a launcher calls, wherever it sees fit.

    Args:
        config: with ``launch``, a folder, and ``job``, a number.

    Returns:
        ``kind``: empty if all went well, ``stopped`` if a cell failed and the sweep was to stop
        then, else ``broken``; ``says``: a sentence.
    """
    folder, number = Path(config.launch), int(config.job)
    try:
        return _run(folder, number)
    except Withdrawn as error:
        return {"kind": "broken", "says": str(error)}
    except SweepStopped as error:
        withdraw(folder)
        return {"kind": STOPPED, "says": str(error)}
    except ForedraftError as error:
        return {"kind": "broken", "says": str(error)}
    except KeyboardInterrupt:
        if os.getpid() == config.parent:
            raise
        return {"kind": "broken", "says": "it was interrupted."}
    except Exception as error:
        return {"kind": "broken", "says": f"{type(error).__name__}: {one_line(str(error))}"}


def _run(folder: Path, number: int) -> Outcome:
    launch = joined(folder, number)
    sweep = Store.open(folder.parent.parent)
    _check_versions(sweep.manifest["versions"], number)
    place = Place(folder / PLACES, launch.jobs)
    worker = Neighbour(PATIENCE, place, lambda: check(folder))
    try:
        with pinned(place, launch.beside):
            about = {"hardware": hardware_of(worker), "started": moment(), "wave": launch.wave}
            with Share.begun(sweep, folder / str(number), about) as share:
                _work(Bench(share, worker, launch.plugins), launch, number)
    finally:
        worker.close()
        place.leave()
    return {"kind": "", "says": ""}


def _work(bench: Bench, launch: Launch, number: int) -> None:
    """This job's part of the wave."""
    bench.change(launch.limits)
    if launch.wave == MEASURE:
        owners = by_unit(bench.units, launch.jobs)
        bench.tasks = [task for task in bench.tasks if owners[task.unit] == number]
        bench.measure()
    else:
        judges = by_cell([cell.id for cell in bench.cells], launch.jobs)
        bench.judge([cell for cell in bench.cells if judges[cell.id] == number])


def _check_versions(then: Mapping[str, Any], number: int) -> None:
    """Refuses another library than the sweep began with: it may decode otherwise."""
    now = versions()
    for name in dict.fromkeys([*then, *now]):
        if then.get(name) != now.get(name):
            raise InputError(
                f"job {number} runs where {name} is {now.get(name)}, but the sweep began with "
                f"{then.get(name)}."
            )
