"""``foredraft times``: measures what steps cost, shows it, and writes it to a file."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..checks import check_whole
from ..errors import ConfigError, near_match
from ..files import file_to_write

if TYPE_CHECKING:
    from rich.table import Table

    from ..times.profiling import Plan
    from ..times.table import BatchTimes, TimeTable

HELP = """\
usage: foredraft times [target=NAME] [drafter=NAME] out=FILE [batch=1,4,8] [seconds=20]

Measures the seconds of the target's steps, by width and context, and of drafting, by gamma, for:
runtime.times=FILE, which makes a run's choices repeatable, and foredraft replay times=FILE.

  target=NAME    as for foredraft generate, with target.*
  drafter=NAME   the same, with drafter.*
  out=FILE       where the table goes (JSON)
  batch=LIST     how many rows are decoded together (default 1)
  contexts=LIST  ids in the cache (default 64,512)
  widths=LIST    tokens per row of a step, gamma + 1 each (default 1,2,3,5,9,17)
  gammas=LIST    drafted tokens (default 1,2,4,8)
  repeats=N      of each, of which the median counts (default 5)
  seconds=N      that may be spent on each batch size (default 20)
  --config-dir DIR  a folder with presets of your own"""
LISTS = {"batch": (1, 4096), "contexts": (0, 1 << 20), "widths": (1, 4096), "gammas": (1, 4096)}
SINGLE = {"repeats": (1, 10_000), "seconds": (1, 86_400)}
KEYS = ("target", "drafter", "out", *LISTS, *SINGLE, "--config-dir")


@dataclass
class Arguments:
    """What was asked for: overrides of target and drafter, lists and numbers by key."""

    overrides: list[str] = field(default_factory=list)
    lists: dict[str, list[int]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=lambda: {"seconds": 20})
    out: str = ""
    config_dir: str | None = None

    def plan(self) -> Plan:
        """What is measured."""
        from ..times.profiling import Plan

        lists = {key: tuple(each) for key, each in self.lists.items() if key != "batch"}
        return Plan(
            **lists, repeats=self.numbers.get("repeats", 5), seconds=self.numbers["seconds"]
        )


def times(argv: list[str]) -> int:
    """Runs the command."""
    if "-h" in argv or "--help" in argv:
        print(HELP)
        return 0
    arguments = parse(argv)
    from .display import console

    table = _measure(arguments)
    table.save(arguments.out)
    screen = console()
    for size in table.sizes:
        screen.print(shown(size))
    print(f"{arguments.out}: batch {', '.join(str(size.batch) for size in table.sizes)}")
    use = shlex.join([*arguments.overrides, f"runtime.times={arguments.out}"])
    print(f"use it: foredraft generate {use} policy=goodput prompt=...")
    return 0


def parse(argv: Sequence[str]) -> Arguments:
    """Reads ``key=value`` words.

    Raises:
        ConfigError: an unknown key, one that is given twice, a value of another kind.
        InputError: ``out`` cannot be written.
    """
    found, seen = Arguments(), set[str]()
    words = iter(argv)
    for word in words:
        key, equals, value = word.partition("=")
        if key == "--config-dir" and not equals:
            equals, value = "=", next(words, "")
        if not equals or key.split(".")[0] not in KEYS:
            hint = near_match(key, KEYS)
            raise ConfigError(
                f"foredraft times does not take {word!r}; {hint}it takes {', '.join(KEYS)}."
            )
        if not value or (key in seen):
            raise ConfigError(f"{key}= needs one value; it is given once.")
        seen.add(key)
        _take(found, key, value, word)
    _check_out(found)
    return found


def _take(found: Arguments, key: str, value: str, word: str) -> None:
    if key in LISTS:
        numbers = {_whole(key, text, *LISTS[key]) for text in value.split(",")}
        found.lists[key] = sorted(numbers)
    elif key in SINGLE:
        found.numbers[key] = _whole(key, value, *SINGLE[key])
    elif key == "out":
        found.out = value
    elif key == "--config-dir":
        found.config_dir = value
    else:
        found.overrides.append(word)


def _whole(key: str, text: str, low: int, high: int) -> int:
    number = int(text) if text.isascii() and text.isdecimal() else text
    check_whole(key, number, low, high)
    return int(number)


def _check_out(found: Arguments) -> None:
    if not found.out:
        raise ConfigError("foredraft times needs out=FILE.")
    file_to_write(found.out)


def _measure(arguments: Arguments) -> TimeTable:
    from ..config import as_dict, compose
    from ..config.build import build

    config = compose(arguments.overrides, arguments.config_dir)
    built = build(config)
    from ..times.profiles import about_of, machine, moment
    from ..times.profiling import measure
    from ..times.table import TimeTable

    about = {**about_of(as_dict(config)), **machine(built.target), "when": moment()}
    plan, sizes = arguments.plan(), arguments.lists.get("batch", [1])
    return TimeTable([measure(built.target, built.drafter, n, plan) for n in sizes], about)


def shown(size: BatchTimes) -> Table:
    """A batch size as a table: milliseconds, and for steps what they cost over one of width 1."""
    from rich.table import Table

    rows = "row" if size.batch == 1 else "rows"
    table = Table(title=f"milliseconds, {size.batch} {rows}", title_justify="left")
    table.add_column("step behind", justify="right")
    for width in size.widths:
        table.add_column(f"width {width}", justify="right")
    for context, line in zip(size.contexts, size.target, strict=True):
        cells = [f"{1e3 * t:.4g} ({t / line[0]:.2f}x)" for t in line]
        table.add_row(f"{context} ids", *cells)
    drafts = dict(zip(size.gammas, size.draft, strict=True))
    cells = [f"{1e3 * drafts[w - 1]:.4g}" if w - 1 in drafts else "" for w in size.widths]
    table.add_section()
    table.add_row("its draft", *cells)
    return table
