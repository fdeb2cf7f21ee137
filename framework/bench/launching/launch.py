"""One launch of jobs, as a folder inside the sweep's folder that all machines share.

    jobs/LAUNCH/launch.json   what the jobs have to know; while it is there, they go on
    jobs/LAUNCH/N/            what job N has made so far: a sweep's folder of its own
    jobs/LAUNCH/places/       locks: who else is on this machine
    jobs/LAUNCH/launcher/     what the launcher itself writes

A launch is ended by taking ``launch.json`` away: jobs that run end after their run, jobs that are
still queued end before their first. So none of an earlier launch, whose parent was killed, makes a
run that a later one makes, too.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...errors import ForedraftError, InputError
from ..disk import encoded, unwritable, write_durably
from ..folder import check_own
from ..lines import read_lines

JOBS, OPEN, LAUNCHER, PLACES = "jobs", "launch.json", "launcher", "places"


class Withdrawn(ForedraftError):
    """The launch was ended while this job was at work, or before it began."""


@dataclass(frozen=True)
class Launch:
    """What the jobs of one launch have to know.

    Args:
        wave: ``measure`` or ``judge``.
        jobs: among how many the work is split; not all of them need to be launched.
        beside: how many of them may run on one machine at once, as far as the launcher tells.
        plugins: files that are taken as plugins.
        limits: options of the sweep that a resumed one may change; the minutes are each job's.
    """

    wave: str
    jobs: int
    beside: int
    plugins: list[str] = field(default_factory=list)
    limits: dict[str, Any] = field(default_factory=dict)


@contextmanager
def begun(sweep: Path, launch: Launch) -> Iterator[Path]:
    """A folder for a launch, which is ended when the block ends."""
    folder = sweep / JOBS / uuid.uuid4().hex[:8]
    check_own(sweep, folder)
    try:
        (folder / PLACES).mkdir(parents=True)
    except OSError as error:
        raise unwritable(folder, error) from None
    write_durably(folder / OPEN, encoded(asdict(launch), OPEN))
    try:
        yield folder
    finally:
        withdraw(folder)


def withdraw(folder: Path) -> None:
    """Has the jobs of a launch end."""
    try:
        (folder / OPEN).unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(folder / OPEN, error) from None


def joined(folder: Path, job: int) -> Launch:
    """The launch that this job is one of, as seen from the job's machine.

    Raises:
        InputError: its folder cannot be seen from here.
        Withdrawn: it was ended.
    """
    sweep = folder.parent.parent
    if not folder.is_dir():
        raise InputError(
            f"job {job} does not see {sweep} on its machine; jobs need a folder that all machines "
            "share: give it as bench.dir."
        )
    check(folder)
    return Launch(**next(value for _, value in read_lines(folder / OPEN)))


def check(folder: Path) -> None:
    """Raises ``Withdrawn`` once the launch is ended."""
    # Listing a folder also brings a network's file system up to date about what is in it.
    if OPEN not in os.listdir(folder):
        raise Withdrawn(f"the launch {folder.name} was ended.")


def launches(sweep: Path) -> Sequence[Path]:
    """The folders of launches that are left; what else lies beside them is none of ours.

    Raises:
        InputError: one of them, or the folder they are in, is a link: what it leads to is foreign.
    """
    there = sweep / JOBS
    check_own(sweep, there)
    found = sorted(there.iterdir()) if there.is_dir() else []
    for path in found:
        check_own(sweep, path)
    return [path for path in found if (path / PLACES).is_dir() or (path / OPEN).is_file()]


def job_folders(folder: Path) -> list[Path]:
    """The folders of a launch's jobs.

    Raises:
        InputError: one of them is a link.
    """
    found = [path for path in folder.iterdir() if path.name.isascii() and path.name.isdigit()]
    for path in found:
        check_own(folder, path)
    return sorted((path for path in found if path.is_dir()), key=lambda path: int(path.name))
