"""``foredraft compare``: one sweep against another, for people and for CI."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..files import write_json
from .display import console, named_column, note, one_line

if TYPE_CHECKING:
    from rich.table import Table

    from ..bench.comparing import Comparison

HELP = """\
usage: foredraft compare RUN_A RUN_B [threshold=0.05] [out=FILE.json]

What changed from sweep A to sweep B, cell by cell: each cell's speed-up over its own run's plain
decoding in B, over that in A, with intervals that hold for all cells together.

  threshold=0.05  the part of a speed-up, or of tau, that may be lost
  out=FILE.json   all figures

The exit code is 0, or 4 if a cell got worse: its interval is below 1 and more than the threshold is
lost, it fails now, or its output is no longer plain decoding's."""
WORSE = 4
KEYS = {"threshold", "out"}


def compare(argv: list[str]) -> int:
    """Runs the command."""
    if not argv or "-h" in argv or "--help" in argv:
        print(HELP)
        return 0
    folders = [word for word in argv if "=" not in word and not word.startswith("-")]
    values = dict(word.split("=", 1) for word in argv if word not in folders and "=" in word)
    if len(folders) != 2 or len(folders) + len(values) < len(argv) or values.keys() - KEYS:
        raise ConfigError("foredraft compare takes two folders of sweeps, threshold= and out=.")
    threshold = _threshold(values.get("threshold", "0.05"))

    from ..bench import comparing
    from ..bench.paging import summary
    from ..bench.store import Store

    one, other = (summary(Store.open(folder)) for folder in folders)
    found = comparing.compare(one, other, threshold)
    _show(found)
    if "out" in values:
        write_json(values["out"], found.as_dict(), "out=")
    return WORSE if found.regressions else 0


def _threshold(text: str) -> float:
    if not re.fullmatch(r"0?\.\d{1,9}|0", text):
        raise ConfigError(f"threshold={text} is not possible; write a number like 0.05.")
    return float(text)


def _show(found: Comparison) -> None:
    for sentence in found.changes:
        note(sentence)
    console().print(_table(found))
    for side, ids in (("A", found.only_a), ("B", found.only_b)):
        if ids:
            note(f"only in {side}: {', '.join(ids)}")
    for sentence in found.regressions:
        note(f"worse: {sentence}")


def _table(found: Comparison) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title="B over A", box=SIMPLE_HEAD, pad_edge=False)
    named_column(table, "cell", [one.id for one in found.cells])
    for heading in ("speed-up", "tokens/s", "tau", "verdict"):
        table.add_column(heading, justify="right", overflow="fold")
    for one in found.cells:
        before, after = one.verdict
        said = one_line(after if before == after else f"{before} > {after}")
        table.add_row(one.id, one.family.text(3), one.rate.text(3), one.tau.text(3), said or "-")
    return table
