"""A table as words, and as what they are sorted by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .data import Cell, Interval
from .headline import FASTER, LEVEL, SLOWER, standing
from .words import UNKNOWN, bounds, label, one_line, times

SIGNS = {FASTER: "▲", SLOWER: "▼", LEVEL: "≈", "": ""}


@dataclass(frozen=True)
class Entry:
    """What a table says in one place.

    Args:
        value: what it is sorted by; None comes last.
        note: a second, quieter line.
        standing: ``faster``, ``slower``, ``no difference`` or nothing; has a sign and a colour.
    """

    words: str
    value: float | str | None = None
    note: str = ""
    standing: str = ""
    strong: bool = False

    @property
    def sign(self) -> str:
        return SIGNS[self.standing]


@dataclass(frozen=True)
class Column:
    """The head of a column; ``means`` explains it."""

    name: str
    means: str = ""
    numbers: bool = True


@dataclass(frozen=True)
class Row:
    """``index`` is the cell's place in its page; -1 if it stands for no cell of one page."""

    index: int
    entries: Sequence[Entry]
    quiet: bool = False


@dataclass(frozen=True)
class Table:
    """A table; ``filtered``: its rows are settings that can be filtered."""

    id: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    filtered: bool = True


def speed(interval: Interval | None) -> Entry:
    """A speed-up with its interval."""
    if interval is None:
        return Entry(UNKNOWN)
    return Entry(times(interval.value), interval.value, bounds(interval), standing(interval))


def headed(at: int, cell: Cell) -> Entry:
    """The cell's name, in the order of the page, and what is wrong with it."""
    note = ""
    if cell.status != "ok":
        note = ": ".join(one_line(word) for word in (cell.status, cell.cause) if word)
    elif cell.contended:
        note = "shared the machine: its times say little"
    return Entry(label(cell), float(at), note)
