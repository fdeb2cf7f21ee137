"""``foredraft bench``: a grid of settings, measured side by side on one loaded target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .arguments import folder_of
from .display import bar, console, note

if TYPE_CHECKING:
    from ..bench.launching.words import Chosen
    from ..bench.sweeping import Bench

HELP = """\
usage: foredraft bench grid.KEY=[A,B,...] [zip.KEY=[...]] [exclude=[{KEY: A}]] [task=...] [...]

Measures every cell of a grid beside plain decoding, in runs that take turns on one loaded target,
proves that each keeps the target's output, and writes a report.

  grid.KEY=[A,B]    an axis; axes are multiplied: grid.drafter=[ngram,quantized] grid.policy.gamma=[1,3]
  zip.KEY=[A,B]     axes of one length that go in step
  exclude=[{K: A}]  leaves out the cells that match
  task=own          six groups of short prompts (default); task=file task.file=FILE.jsonl; task=hub
  task.groups=[A]   of which groups; task.per_group=N, task.most_words=N
  bench.dir=DIR     where results go (default outputs/bench/<date-time>)
  bench.resume=DIR  goes on with a sweep that broke off
  bench.repeats=3 bench.warmup=1 bench.minutes=N bench.limit_s=300 bench.on_error=continue|stop
  bench.baselines=[plain,again,generate,generate_lookup,generate_assisted] bench.assistant=DIR
  bench.audit=8 bench.seed=0
  --config-dir DIR  your own presets and experiments (experiment=NAME may hold all of this)
  KEY=VALUE         for all cells, as for foredraft generate

  -m, --multirun    in jobs that share the prompts, through any launcher of Hydra:
  hydra/launcher=NAME bench.jobs=N hydra.launcher.KEY=VALUE
                    basic (one after the other), joblib, ray, submitit_local, submitit_slurm
  KEY=A,B           with -m, the same as grid.KEY=[A,B]

The exit code is 0, or 3 if a cell or a job failed (the others are there), or 130 after Ctrl-C."""
FAILED, INTERRUPTED = 3, 130


def bench(argv: list[str]) -> int:
    """Runs the command."""
    if not argv or "-h" in argv or "--help" in argv:
        print(HELP)
        return 0
    words, config_dir, multirun = _split(argv)

    from ..bench.hand import Worker
    from ..bench.launching.words import taken
    from ..bench.sweeping import begin
    from ..plugins import current_files

    words, chosen = taken(words, multirun, config_dir)
    if chosen is not None:
        chosen = _settled(chosen)
    worker = Worker(limit=300.0)
    try:
        sweep = begin(words, worker, config_dir, current_files(), note, argv)
        with sweep.store:
            return _until_ctrl_c(sweep, chosen)
    except KeyboardInterrupt:
        note("stopped before the first run")
        return INTERRUPTED
    finally:
        worker.close()


def _settled(chosen: Chosen) -> Chosen:
    """Refuses a launcher that cannot be had before anything else is done."""
    from ..bench.launching.launchers import settled

    return settled(chosen)


def _split(argv: Sequence[str]) -> tuple[list[str], str | None, bool]:
    words, folder, multirun, left = [], None, False, iter(argv)
    for word in left:
        if word.partition("=")[0] == "--config-dir":
            folder = folder_of(word, left, folder)
        elif word in ("-m", "--multirun"):
            multirun = True
        elif word.startswith("-"):
            raise ConfigError(f"foredraft bench does not take {word}; see foredraft bench --help.")
        else:
            words.append(word)
    return words, folder, multirun


def _until_ctrl_c(sweep: Bench, chosen: Chosen | None) -> int:
    from ..bench.sweeping import resuming

    try:
        return _run(sweep, chosen)
    except KeyboardInterrupt:
        note(f"stopped; what was done is kept: {resuming(sweep.store.folder)}")
        return INTERRUPTED


def _run(sweep: Bench, chosen: Chosen | None) -> int:
    problems = list[str]()
    note(f"{len(sweep.cells)} cells, {sweep.left} runs to go, results in {sweep.store.folder}")
    with bar("decoding", len(sweep.tasks)) as advance:
        if chosen is None:
            sweep.run(lambda task: advance(1))
        else:
            problems = _launched(sweep, chosen, advance)
    if problems:
        return _broken(sweep, problems)
    return _told(sweep)


def _broken(sweep: Bench, problems: Sequence[str]) -> int:
    from ..bench.launching.launch import JOBS
    from ..bench.sweeping import resuming

    store = sweep.store
    for problem in problems:
        note(problem)
    logs = store.folder / JOBS
    more = f"; what the launcher wrote is in {logs}" if logs.is_dir() else ""
    note(f"{sweep.left} runs are left{more}; go on with {resuming(store.folder)}")
    return FAILED


def _launched(sweep: Bench, chosen: Chosen, advance: Callable[[int], None]) -> list[str]:
    """The sweep in jobs; a sentence for each that broke."""
    from ..bench.launching.running import run
    from ..plugins import current_files

    sweep.worker.close()  # jobs have workers of their own
    advance(len(sweep.tasks) - sweep.left)
    return run(sweep, chosen, current_files(), advance)


def _told(sweep: Bench) -> int:
    """What came out, on the terminal and as files."""
    from ..bench.paging import summary
    from ..bench.sweeping import resuming
    from .report import written
    from .sweep_table import table

    console().print(table(summary(sweep.store)))
    failures = sweep.store.failures()
    for remark in _by_cause({cell: failure["cause"] for cell, failure in failures.items()}):
        note(remark)
    if sweep.left:
        note(f"{sweep.left} runs are left for another time: {resuming(sweep.store.folder)}")
    written([sweep.store], sweep.store.folder)
    return FAILED if failures else 0


def _by_cause(causes: Mapping[str, str]) -> list[str]:
    """A sentence for each cause, with the cells that failed of it."""
    cells: dict[str, list[str]] = {}
    for cell, cause in causes.items():
        cells.setdefault(cause, []).append(cell)
    return [
        f"{them[0]}{f' and {len(them) - 1} more' if len(them) > 1 else ''} failed: {cause}"
        for cause, them in cells.items()
    ]
