"""The tables of a page: settings, groups of prompts, several runs."""

from __future__ import annotations

from collections.abc import Sequence

from .data import Cell, Interval, Page
from .forest import matched
from .table import Column, Entry, Row, Table, headed, speed
from .words import UNKNOWN, bounds, is_setting, number, one_line, times

MEASURES = (
    Column("speed-up", "against the fastest plain decoding of the run; geometric mean over pairs"),
    Column("of totals", "the same as the ratio of total times"),
    Column("loop", "against this project's own plain loop"),
    Column("tau", "tokens emitted per round"),
    Column("alpha", "share of drafted tokens accepted, of those tried"),
    Column("c", "time of a draft step over time of a target step"),
    Column("Thm 3.8", "speed-up predicted from alpha and c"),
    Column("step times", "speed-up predicted from the measured time of each step"),
    Column("output", "is it that of plain decoding?", numbers=False),
)


def settings_table(page: Page) -> Table:
    """Every cell, baselines last."""
    cells = sorted(enumerate(page.cells), key=lambda found: not is_setting(found[1]))
    caption = (
        f"Settings and baselines. {one_line(page.intervals)}. ▲ faster, ▼ slower, ≈ undecided."
    )
    rows = [
        Row(at, _measures(place, cell), not is_setting(cell))
        for place, (at, cell) in enumerate(cells)
    ]
    return Table("settings", caption, (Column("setting", numbers=False), *MEASURES), rows)


def groups_table(page: Page) -> Table:
    """Speed-up of every setting on every group of prompts."""
    columns = [Column("setting", numbers=False), *(Column(one_line(name)) for name in page.groups)]
    rows = [
        Row(at, [headed(at, cell), *(speed(cell.groups.get(group)) for group in page.groups)])
        for at, cell in enumerate(page.cells)
        if is_setting(cell) and cell.groups
    ]
    return Table(
        "groups", "Speed-up by group of prompts; each interval holds on its own.", columns, rows
    )


def runs_table(pages: Sequence[Page]) -> Table:
    """The speed-ups of several runs, a column each."""
    columns = [Column("setting", numbers=False), *(Column(one_line(page.title)) for page in pages)]
    rows = []
    for at, (name, cells) in enumerate(matched(pages).items()):
        speeds = [speed(cell.speedup if cell else None) for cell in cells]
        rows.append(Row(-1, [Entry(name, float(at)), *speeds]))
    return Table("runs-table", "Speed-up of each run, with intervals.", columns, rows, False)


def _measures(at: int, cell: Cell) -> list[Entry]:
    return [
        headed(at, cell),
        speed(cell.speedup),
        _plain(cell.totals, 2, "x"),
        _plain(cell.against_loop, 2, "x"),
        _plain(cell.tau, 2),
        _plain(cell.alpha, 2),
        Entry(number(cell.c, 3), cell.c),
        Entry(times(cell.predicted), cell.predicted),
        Entry(times(cell.predicted_timed), cell.predicted_timed),
        _verdict(cell),
    ]


def _plain(interval: Interval | None, digits: int, unit: str = "") -> Entry:
    if interval is None:
        return Entry(UNKNOWN)
    return Entry(f"{number(interval.value, digits)}{unit}", interval.value, bounds(interval))


def _verdict(cell: Cell) -> Entry:
    sign = {True: "✓ ", False: "✗ ", None: ""}[cell.verdict_ok]
    words = one_line(cell.verdict) or ("lossy" if cell.lossy else UNKNOWN)
    return Entry(sign + words, words, one_line(cell.verdict_note), strong=cell.verdict_ok is False)
