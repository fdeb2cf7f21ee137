"""``foredraft tune``: which setting is the fastest here, if any is faster than plain decoding?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .arguments import folder_of
from .display import bar, console, named_column, note

if TYPE_CHECKING:
    from rich.table import Table

    from ..bench.tuning import Tune
    from ..bench.tuning_answer import Answer, Standing
    from ..bench.tuning_begin import Asked
    from ..bench.tuning_preset import Preset

HELP = """\
usage: foredraft tune [minutes=10] [grid.KEY=[A,B,...]] [task=...] [KEY=VALUE ...]

Races settings on one loaded target, beside plain decoding, and leaves out early those that cannot
win; measures the winner on prompts that it was not chosen on; writes it as a preset. The answer
may be: do not speculate.

  minutes=10        for all of it; six tenths are for the race, the rest for the winner
  grid.KEY=[A,B] zip.KEY=[A,B] exclude=[{K: A}]
                    what races, as for foredraft bench; left away: the built-in drafters that
                    need no file, each with several gammas and policies
  task=own          the prompts, as for foredraft bench; half of each group is held out
  KEY=VALUE         for all cells: target=..., sampling.temperature=..., max_new_tokens=...
  tune.dir=DIR      where results go (default outputs/tune/<date-time>)
  tune.resume=DIR   goes on with a race that broke off; beside it minutes=, preset= and out= only
  preset=NAME       the preset's name (tuned); it goes to DIR/conf/experiment/NAME.yaml
  out=FILE.yaml     or to this file
  bench.repeats=2 bench.seed=0 bench.limit_s=300 bench.baselines=[plain,generate]
  --config-dir DIR  your own presets and experiments

Then: foredraft generate --config-dir DIR/conf experiment=NAME prompt="Why is the sky blue?"

The exit code is 0, whatever the answer is; 3 if a cell failed; 130 after Ctrl-C."""
FAILED, INTERRUPTED = 3, 130
BY_HAND = ".trust_remote_code"
BESIDE = ("minutes", "preset", "out", "tune.resume")


def tune(argv: list[str]) -> int:
    """Runs the command."""
    if "-h" in argv or "--help" in argv:
        print(HELP)
        return 0
    asked, out = read(argv)

    from ..bench.hand import Worker
    from ..bench.tuning_begin import begin
    from ..bench.tuning_preset import check_names, place
    from ..plugins import current_files

    check_names(asked.preset, out)
    files = current_files()
    worker = Worker(limit=300.0)
    try:
        race = begin(asked, worker, files, note)
        with race.store:
            preset = place(race.store.folder, asked.preset or race.plan.preset, out)
            return _run(race, preset)
    finally:
        worker.close()


def read(argv: Sequence[str]) -> tuple[Asked, str | None]:
    """The command line, taken apart; the second is ``out``."""
    from ..bench.tuning_begin import Asked

    own: dict[str, str] = {}
    words, folder, left = [], None, iter(argv)
    for word in left:
        key, _, value = word.partition("=")
        if key == "--config-dir":
            folder = folder_of(word, left, folder)
        elif word.startswith("-"):
            raise ConfigError(f"foredraft tune does not take {word}; see foredraft tune --help.")
        elif key in (*BESIDE, "tune.dir") or key.startswith("tune."):
            _take(own, key, value)
        else:
            words.append(word)
    _check(own, words)
    asked = Asked(words, _minutes(own.get("minutes")), config_dir=folder, typed=argv)
    asked.dir, asked.resume = own.get("tune.dir"), own.get("tune.resume")
    asked.preset = own.get("preset")
    return asked, own.get("out")


def _take(own: dict[str, str], key: str, value: str) -> None:
    if key not in (*BESIDE, "tune.dir"):
        raise ConfigError(f"{key} is not a key; the keys of tune are tune.dir and tune.resume.")
    if key in own or not value:
        raise ConfigError(f"{key}= needs one value; it is given once.")
    own[key] = value


def _check(own: dict[str, str], words: Sequence[str]) -> None:
    if "preset" in own and "out" in own:
        raise ConfigError("preset= and out= both name the preset; give one of them.")
    # What only a command line may say has to be said again (check_by_hand).
    others = [word for word in words if not word.partition("=")[0].endswith(BY_HAND)]
    others += [key for key in own if key not in BESIDE]
    if "tune.resume" in own and others:
        raise ConfigError(
            f"tune.resume goes on with what its folder says, so {others[0]} has no place beside it; "
            "minutes=, preset= and out= do."
        )


def _minutes(text: str | None) -> float | None:
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,5}(\.\d{1,6})?", text) or not 0.01 <= float(text) <= 10080:
        raise ConfigError(
            f"minutes={text} is not possible; it must be a number from 0.01 to 10080."
        )
    return float(text)


def _run(race: Tune, preset: Preset) -> int:
    from ..bench.tuning_begin import resuming

    note(
        f"{len(race.cells)} cells race for {race.minutes:g} minutes at most on {len(race.plan.race)} "
        f"units, {len(race.plan.held_out)} are held out; results in {race.store.folder}"
    )
    try:
        with bar("racing", race.runs) as advance:
            answer = race.run(advance)
    except KeyboardInterrupt:
        note(f"stopped; what was done is kept: {resuming(race.store.folder)}")
        return INTERRUPTED
    return _told(race, answer, preset)


def _told(race: Tune, answer: Answer, preset: Preset) -> int:
    """What came out, on the terminal and as a preset."""
    from ..bench.tuning_preset import write

    console().print(table(race.standings(), answer))
    print(answer.says)
    write(preset, race.store, answer)
    note(f"{preset.path}: {preset.command}")
    return FAILED if race.store.failures() else 0


def table(standings: Sequence[Standing], answer: Answer) -> Table:
    """A line per cell: how it stood in the race, each interval on its own, and why it is out."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    named_column(shown, "cell", [one.cell for one in standings])
    for heading in ("units", "speed-up in the race"):
        shown.add_column(heading, justify="right", overflow="fold")
    shown.add_column("why it is out", overflow="fold")
    for one in standings:
        won = "the winner" if one.cell == answer.cell else "-"
        shown.add_row(one.cell, str(one.units), one.speedup.text(), one.out or won)
    return shown
