"""A race from its words, or from its folder."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import ConfigError
from .folder import RACE
from .grid import Sweep, read
from .hand import Worker
from .plan import units_for
from .readings import ENGINE, PLAIN
from .store import Store
from .sweeping import check_cells, claimed, manifest_of, new_folder
from .tasks import read_task
from .tuning import Tune
from .tuning_grid import with_grid
from .tuning_plan import planned

HOME = Path("outputs/tune")
MINUTES = 10.0
# What a race sets itself unless it is said: two repeats, and nothing that is measured twice.
OWN = {"bench.repeats": "2", "bench.baselines": "[plain,generate]"}
ELSEWHERE = {
    "bench.dir": "tune.dir=DIR",
    "bench.resume": "tune.resume=DIR",
    "bench.minutes": "minutes=N",
}
Said = Callable[[str], None]


@dataclass
class Asked:
    """A race in words.

    Args:
        words: those of a sweep.
        minutes: for all of it; None: ``MINUTES``, or what its folder says.
        dir, resume: a new folder, or that of a race that broke off.
        preset: the name of the preset in the folder.
        typed: the whole command line.
    """

    words: list[str]
    minutes: float | None = None
    dir: str | None = None
    resume: str | None = None
    preset: str | None = None
    config_dir: str | None = None
    typed: Sequence[str] = ()


def begin(
    asked: Asked, worker: Worker, plugins: Sequence[str] = (), said: Said = lambda line: None
) -> Tune:
    """A new race, or one that broke off.

    Raises:
        ForedraftError: the first thing that cannot be honoured.
    """
    if asked.resume is not None:
        store = Store.open(asked.resume, write=True)
        try:
            check_cells(store.cells, asked.words)
        except BaseException:
            store.close()
            raise
        return _tune(store, worker, plugins, asked.minutes, said)
    sweep = read(with_grid(_words(asked.words), asked.config_dir), asked.config_dir)
    check_race(sweep)
    prompts = read_task(sweep.task)
    units = units_for(prompts, sweep.cells)
    minutes = MINUTES if asked.minutes is None else asked.minutes
    plan = planned(units, sweep.options.seed, minutes, asked.preset or "tuned")
    for remark in sweep.remarks:
        said(remark)
    manifest = manifest_of(sweep, prompts, asked.typed, worker, plugins, "tune")
    store = Store.create(new_folder(asked.dir, HOME, "tune.dir"), {**manifest, RACE: asdict(plan)})
    return _tune(store, worker, plugins, None, said)


def check_race(sweep: Sweep) -> None:
    """Refuses what cannot be raced: cells of several settings, or that change the output."""
    loops = [cell for cell in sweep.cells if cell.kind == PLAIN and not cell.baseline]
    if len(loops) > 1:
        raise ConfigError(
            f"a race has one target, sampling, limit and batch size, and these cells have {len(loops)} "
            f"({', '.join(cell.id for cell in loops)}); race drafters, policies and verifiers, or "
            "measure the rest by foredraft bench."
        )
    cells = [cell for cell in sweep.cells if cell.kind == ENGINE]
    if not cells:
        raise ConfigError("there is no cell that drafts; a race needs at least one.")
    lossy = [cell.id for cell in cells if not cell.lossless]
    if lossy:
        raise ConfigError(
            f"the verifier of {lossy[0]} changes the output, so its speed is no answer; race lossless "
            "ones, or measure it by foredraft bench."
        )
    foreign = [name for name in sweep.options.baselines if name.startswith("generate_")]
    if foreign:
        raise ConfigError(
            f"bench.baselines lists {foreign[0]}, which speculates; a race is against plain, again "
            "and generate."
        )


def _words(words: Sequence[str]) -> list[str]:
    """With what a race sets itself."""
    given = [word.partition("=")[0].strip() for word in words]
    for key, instead in ELSEWHERE.items():
        if key in given:
            raise ConfigError(f"{key} is not possible in a race; write {instead}.")
    return [*words, *(f"{key}={value}" for key, value in OWN.items() if key not in given)]


def _tune(
    store: Store, worker: Worker, plugins: Sequence[str], minutes: float | None, said: Said
) -> Tune:
    bench = claimed(store, worker, plugins)
    try:
        return Tune(bench, minutes, said)
    except BaseException:
        store.close()
        raise


def resuming(folder: Path) -> str:
    """The command that goes on with a race."""
    return f"foredraft tune {shlex.quote(f'tune.resume={folder}')}"
