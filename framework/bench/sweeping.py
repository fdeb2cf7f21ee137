"""A sweep from its words to its records: what ``foredraft bench`` does, without what it prints.

Imports no torch; only the worker does.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ..config.overrides import check_by_hand
from ..config.values import read_record
from ..errors import ConfigError, InputError
from .cells import Cell
from .difference import LIMITS
from .folder import RACE
from .grid import Sweep, read
from .hand import PATIENCE, Failed, Worker
from .launching.gathering import settle
from .machine import command, commit, hardware, moment, versions
from .options import BenchOptions
from .plan import Task, Unit, looked_at, order, units_for
from .store import Store
from .supervisor import Supervisor
from .tasks import BenchPrompt, read_task

HERE = Path("outputs/bench")
RESUME = "bench.resume="


class Bench:
    """A sweep that is about to run.

    Args:
        store: its folder, claimed.
        worker: the process that decodes.
        plugins: files that it takes as plugins.
    """

    def __init__(self, store: Store, worker: Worker, plugins: Sequence[str] = ()) -> None:
        manifest = store.manifest
        self.store, self.worker = store, worker
        self.options = read_record(BenchOptions, manifest["options"], "bench")
        self.cells = [Cell(**cell) for cell in store.cells]
        self.units = [Unit(**{**u, "prompts": tuple(u["prompts"])}) for u in manifest["units"]]
        self.tasks = by_target(order(self.cells, self.units, self.options), self.cells)
        worker.limit = self.options.limit_s
        try:
            worker.open(opening(store.cells, store.prompts, self.options, plugins))
        except Failed as failure:
            raise InputError(f"the process that decodes refuses: {failure.cause}.") from None

    def change(self, options: Mapping[str, Any]) -> None:
        """Takes other limits than those that the sweep began with."""
        self.options = replace(self.options, **options)
        self.worker.limit = self.options.limit_s

    @property
    def left(self) -> int:
        """Runs that have no record yet, of cells that did not fail."""
        done, failed = self.store.done(), self.store.failures()
        return sum(
            (task.cell, task.unit, task.repeat) not in done and task.cell not in failed
            for task in self.tasks
        )

    def run(self, told: Callable[[Task], None] = lambda task: None) -> None:
        """Every run that is missing, and then the verdicts."""
        self.measure(told)
        self.judge(self.cells)

    def measure(self, told: Callable[[Task], None] = lambda task: None) -> None:
        """Every run that is missing."""
        options = self.options
        supervisor = Supervisor(self.store, self.worker, options.on_error, options.minutes, told)
        supervisor.run(self.tasks, self.units)

    def judge(self, cells: Sequence[Cell]) -> None:
        """The verdicts on these cells, and answers of theirs to look at."""
        plain = [asdict(cell) for cell in cells]
        supervisor = Supervisor(self.store, self.worker)
        supervisor.judge(plain, self.options.audit)
        supervisor.take_down(plain, looked_at(self.cells, self.units, self.options.repeats))


def opening(
    cells: Sequence[Mapping[str, Any]],
    prompts: Sequence[Mapping[str, Any]],
    options: BenchOptions,
    plugins: Sequence[str],
) -> dict[str, Any]:
    """What a worker has to know of a sweep."""
    return {
        "do": "open",
        "cells": list(cells),
        "prompts": list(prompts),
        "warmup": options.warmup,
        "assistant": options.assistant,
        "plugins": [str(Path(path).resolve()) for path in plugins],
    }


def begin(
    words: Sequence[str],
    worker: Worker,
    config_dir: str | None = None,
    plugins: Sequence[str] = (),
    said: Callable[[str], None] = lambda remark: None,
    typed: Sequence[str] = (),
) -> Bench:
    """A new sweep, or one that broke off.

    Args:
        words: of the sweep, without those of a launcher.
        said: hears of what was asked and has no effect, and of what is waited for.
        typed: the whole command line, for the records.

    Raises:
        ForedraftError: the first thing that cannot be honoured.
    """
    folder = _resumed_alone(words)
    if folder is not None:
        return _resumed(Store.open(folder, write=True), words, worker, plugins, said)
    sweep = read(words, config_dir)
    for remark in sweep.remarks:
        said(remark)
    prompts = read_task(sweep.task)
    manifest = manifest_of(sweep, prompts, typed or words, worker, plugins)
    if sweep.options.resume is None:
        made = Store.create(new_folder(sweep.options.dir), manifest)
        return claimed(made, worker, plugins)
    store = Store.open(sweep.options.resume, write=True)
    changes = store.difference(manifest)
    if changes:
        store.close()
        more = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
        raise ConfigError(
            f"bench.resume={sweep.options.resume} is not possible with other values: "
            f"{changes[0]}{more}; drop what differs, or give a new bench.dir."
        )
    bench = _resumed(store, words, worker, plugins, said)
    bench.change({key: getattr(sweep.options, key) for key in LIMITS})
    return bench


def new_folder(given: str | None, home: Path = HERE, key: str = "bench.dir") -> Path:
    """Where a sweep goes: as given by ``key``, or a folder of its own under ``home``."""
    if given is not None:
        return Path(given).expanduser()
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{home} cannot be made: {error.strerror}; give {key}=DIR.") from None
    return home / datetime.now().strftime("%Y-%m-%d_%H-%M-%S")


def by_target(tasks: Sequence[Task], cells: Sequence[Cell]) -> list[Task]:
    """The same order, target by target, so that each is loaded once."""
    marks = {cell.id: json.dumps(cell.config["target"], sort_keys=True) for cell in cells}
    places = {mark: place for place, mark in enumerate(dict.fromkeys(marks.values()))}
    return sorted(tasks, key=lambda task: places[marks[task.cell]])


def _resumed_alone(words: Sequence[str]) -> str | None:
    """The folder, where nothing else is said."""
    given = [word for word in words if word.startswith(RESUME)]
    return given[0].removeprefix(RESUME) if len(words) == 1 and given else None


def _resumed(
    store: Store,
    words: Sequence[str],
    worker: Worker,
    plugins: Sequence[str],
    said: Callable[[str], None],
) -> Bench:
    try:
        _check_sweep(store)
        check_cells(store.cells, words)
        settle(store, store.manifest["options"].get("limit_s", 0.0) + PATIENCE, said)
    except BaseException:
        store.close()
        raise
    return claimed(store, worker, plugins)


def _check_sweep(store: Store) -> None:
    """Refuses the folder of a race, whose cells are not to be measured all alike."""
    if RACE in store.manifest:
        raise ConfigError(
            f"{store.folder} is the folder of a race; go on with foredraft tune "
            f"{shlex.quote(f'tune.resume={store.folder}')}."
        )


def claimed(store: Store, worker: Worker, plugins: Sequence[str]) -> Bench:
    """A sweep on a folder whose lock is given back if it cannot begin."""
    try:
        return Bench(store, worker, plugins)
    except BaseException:
        store.close()
        raise


def check_cells(cells: Sequence[Mapping[str, Any]], words: Sequence[str]) -> None:
    """Refuses what only a command line may say: a folder may come from somebody else."""
    for cell in cells:
        check_by_hand(cell["config"], [word.partition("=")[0] for word in words])


def manifest_of(
    sweep: Sweep,
    prompts: Sequence[BenchPrompt],
    words: Sequence[str],
    worker: Worker,
    plugins: Sequence[str],
    name: str = "bench",
) -> dict[str, Any]:
    """What ``run.json`` says of a new sweep, which the command ``name`` began."""
    flags = [f"--plugin={path}" for path in plugins]
    options = asdict(sweep.options) | {"dir": None, "resume": None}
    return {
        "command": command(["foredraft", *flags, name, *words]),
        "started": moment(),
        "versions": versions(),
        "hardware": hardware_of(worker),
        "commit": commit(),
        "options": options,
        "task": asdict(sweep.task),
        "cells": [asdict(cell) for cell in sweep.cells],
        "units": [asdict(unit) for unit in units_for(prompts, sweep.cells)],
        "prompts": [asdict(prompt) for prompt in prompts],
    }


def hardware_of(worker: Worker) -> dict[str, Any]:
    """The machine, as the process that decodes sees it."""
    try:
        found = worker.ask({"do": "about"})
    except Failed as failure:
        raise InputError(f"the process that decodes cannot be started: {failure.cause}.") from None
    return hardware(found["threads"], found["device"])


def resuming(folder: Path) -> str:
    """The command that goes on with a sweep."""
    return f"foredraft bench {shlex.quote(f'{RESUME}{folder}')}"
