"""A sweep through a launcher: launch what is missing, take in what came out, first runs, then verdicts."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...cli.display import one_line
from ..difference import LIMITS
from ..supervisor import SweepStopped
from ..sweeping import Bench
from . import launchers
from .gathering import gather, waited
from .job import STOPPED
from .launch import Launch, begun
from .shares import JUDGE, MEASURE, due
from .words import SLURM, Chosen

PATIENCE = 10.0  # seconds for jobs to end, after Ctrl-C or when the launcher broke off
_LETTERS = 400


def run(
    sweep: Bench,
    chosen: Chosen,
    plugins: Sequence[str],
    moved: Callable[[int], None] = lambda runs: None,
) -> list[str]:
    """Every run that is missing, and then the verdicts.

    Args:
        sweep: its folder claimed; its own worker is not used.
        chosen: as ``launchers.settled`` gave it.
        plugins: files that are taken as plugins.
        moved: hears of runs that were made.

    Returns:
        A sentence for each job that broke. What they had done is kept.

    Raises:
        SweepStopped: a cell failed, with ``bench.on_error=stop``.
        KeyboardInterrupt: of Ctrl-C, when all that was done has been taken in.
    """
    jobs = min(chosen.jobs or 1, len(sweep.units))
    for wave in (MEASURE, JUDGE):
        launch = _launch(sweep, chosen, wave, jobs, plugins)
        problems = _wave(sweep, chosen, launch, due(sweep, wave, jobs), moved)
        if problems:
            return problems
    return []


def _launch(sweep: Bench, chosen: Chosen, wave: str, jobs: int, plugins: Sequence[str]) -> Launch:
    minutes, at_once = sweep.options.minutes, min(chosen.at_once, jobs)
    # Jobs that wait for one another share the time.
    part = minutes * at_once / jobs if minutes is not None else None
    # Slurm gives every job cores of its own; with another launcher, all may be on one machine.
    beside = 1 if chosen.name == SLURM else at_once
    files = [str(Path(path).resolve()) for path in plugins]
    limits = {key: getattr(sweep.options, key) for key in LIMITS} | {"minutes": part}
    return Launch(wave, jobs, beside, files, limits)


def _wave(
    sweep: Bench,
    chosen: Chosen,
    launch: Launch,
    numbers: Sequence[int],
    moved: Callable[[int], None],
) -> list[str]:
    """One launch, to its end."""
    if not numbers:
        return []
    problems = ["it was broken off"]
    try:
        with begun(sweep.store.folder, launch) as folder, _watched(folder, moved):
            problems = _launched(chosen, folder, numbers)
    finally:
        waited(sweep.store, PATIENCE)
        gather(sweep.store, keep_logs=bool(problems))
    return problems


def _launched(chosen: Chosen, folder: Path, numbers: Sequence[int]) -> list[str]:
    try:
        outcomes = launchers.run_jobs(chosen, folder, numbers, os.getpid())
    except Exception as error:
        said = one_line(f"{type(error).__name__}: {error}")[:_LETTERS].rstrip(".")
        return [f"hydra/launcher={chosen.name} broke off: {said}"]
    return list(_problems(dict(zip(numbers, outcomes, strict=False))))


def _problems(outcomes: dict[int, Any]) -> Iterator[str]:
    """What jobs said, the reason why the sweep was stopped before all others."""
    for outcome in outcomes.values():
        if isinstance(outcome, dict) and outcome["kind"] == STOPPED:
            raise SweepStopped(outcome["says"])
    for number, outcome in outcomes.items():
        if not isinstance(outcome, dict):
            said = one_line(f"{type(outcome).__name__}: {outcome}")[:_LETTERS]
            yield f"job {number} broke off: {said}"
        elif outcome["kind"]:
            yield f"job {number} broke off: {outcome['says']}"


@contextmanager
def _watched(folder: Path, moved: Callable[[int], None]) -> Iterator[None]:
    """Counts the runs of a launch while it goes on."""
    ended = threading.Event()

    def watch() -> None:
        seen = 0
        while not ended.wait(0.5):
            now = sum(path.read_bytes().count(b"\n") for path in folder.glob("*/records/*.jsonl"))
            moved(now - seen)
            seen = now

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
