"""What jobs have made, taken into the folder of their sweep.

Everything is checked as if it had been measured here, and added as it is; what is there already is
passed over. So a gathering that was killed is done again, and a job that still runs may be read.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import InputError
from ..folder import check_own, lock
from ..kept import Kept, key_of
from ..lines import append_line, read_lines
from ..manifest import MANIFEST
from ..store import Store
from ..verdicts import better
from . import launch as launches_of
from .launch import JOBS, LAUNCHER, job_folders, withdraw

LOG = "jobs.jsonl"
ABOUT = ("wave", "started", "hardware")


def settle(store: Store, limit: float, said: Callable[[str], None] = lambda remark: None) -> None:
    """Ends what is left of earlier launches and takes in what they made.

    Args:
        store: the sweep's, claimed.
        limit: seconds to wait for jobs that are in the middle of a run.
        said: hears that there are some.

    Raises:
        InputError: some do not end.
    """
    folders = launches_of.launches(store.folder)
    for folder in folders:
        withdraw(folder)
    running = waited(store, 0)
    if running:
        said(
            f"jobs of an earlier launch are still in {running[0].parent}; they end after their run"
        )
        running = waited(store, limit)
    gather(store)
    if running:
        raise InputError(
            f"{len(running)} jobs of an earlier launch still write to {running[0].parent}; end them, "
            "and resume then."
        )


def waited(store: Store, limit: float) -> list[Path]:
    """The folders that jobs still write to after so many seconds."""
    end = time.monotonic() + limit
    while True:
        running = [path for path in _all_jobs(store.folder) if not _free(path)]
        if not running or time.monotonic() >= end:
            return running
        time.sleep(0.1)


def gather(store: Store, keep_logs: bool = False) -> None:
    """Takes in what jobs have made and removes the folders of those that have ended.

    Args:
        keep_logs: leave what the launcher wrote; somebody may want to know why it failed.
    """
    check_own(store.folder, store.folder / LOG)
    for job in _all_jobs(store.folder):
        free = _free(job)
        if (job / MANIFEST).is_file():
            _take(store, Store.open(job), free)
        if free:
            shutil.rmtree(job, ignore_errors=True)
    for folder in launches_of.launches(store.folder):
        logs = keep_logs and (folder / LAUNCHER).is_dir() and any((folder / LAUNCHER).iterdir())
        if not job_folders(folder) and not logs:
            shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # not there, or not empty
        (store.folder / JOBS).rmdir()


def _all_jobs(sweep: Path) -> list[Path]:
    return [job for folder in launches_of.launches(sweep) for job in job_folders(folder)]


def _free(job: Path) -> bool:
    """Whether nobody writes to it."""
    try:
        lock(job).release()
    except InputError:
        return False
    return True


def _take(store: Store, job: Kept, ended: bool) -> None:
    _check_same(store, job)
    done, count = store.done(), 0
    for record in job.records():
        count += 1
        if key_of(record) not in done:
            store.append(record)
    failed, judged, shown = store.failures(), store.verdicts(), store.traces()
    for cell, failure in job.failures().items():
        if cell not in failed:
            store.fail(cell, failure["cause"], failure["kind"], failure["unit"], failure["repeat"])
    for cell, verdict in job.verdicts().items():
        if better(verdict, judged.get(cell)):
            store.put_verdict(cell, verdict)
    for cell, trace in job.traces().items():
        if cell not in shown:
            store.put_trace(cell, trace)
    if ended:
        _note(store, job, count)


def _check_same(store: Store, job: Kept) -> None:
    about: Mapping[str, Any] = {key: store.manifest[key] for key in ("hardware", "started")}
    changes = store.difference({**job.manifest, **about, "prompts": job.prompts})
    if changes:
        raise InputError(f"{job.folder} is no job of this sweep: {changes[0]}.")


def _note(store: Store, job: Kept, runs: int) -> None:
    """A line on who made what: figures depend on the machine."""
    line = {"launch": job.folder.parent.name, "job": int(job.folder.name), "runs": runs}
    line |= {key: job.manifest.get(key) for key in ABOUT}
    path = store.folder / LOG
    if not any(found == line for _, found in read_lines(path)):
        append_line(path, line)
