"""The table that says why each setting is not faster."""

from __future__ import annotations

from collections.abc import Sequence

from .data import Cell, Factor, Page
from .table import Column, Entry, Row, Table, headed, speed
from .words import UNKNOWN, in_order, is_setting, one_line, times


def why_table(page: Page) -> Table:
    """Why each setting is not faster."""
    cells = [(at, cell) for at, cell in enumerate(page.cells) if is_setting(cell) and cell.why]
    names = in_order(f.name for _, cell in cells if cell.why for f in cell.why.factors)
    columns = [Column("setting", numbers=False), Column("speed-up")]
    columns += [Column("in words", numbers=False), *(Column(one_line(name)) for name in names)]
    caption = (
        "What each part costs, and under it the speed-up if that part alone were ideal; the largest "
        "is the one to work on."
    )
    return Table("why", caption, columns, [Row(at, _why(at, cell, names)) for at, cell in cells])


def _why(at: int, cell: Cell, names: Sequence[str]) -> list[Entry]:
    assert cell.why is not None
    found = {factor.name: factor for factor in cell.why.factors}
    ideals = [factor.ideal for factor in found.values() if factor.ideal is not None]
    most = max(ideals, default=None)
    factors = [_factor(found.get(name), most) for name in names]
    advice = f"try first: {one_line(cell.why.try_first)}" if cell.why.try_first else ""
    words = Entry(one_line(cell.why.sentence), one_line(cell.why.sentence), advice)
    return [headed(at, cell), speed(cell.speedup), words, *factors]


def _factor(factor: Factor | None, most: float | None) -> Entry:
    if factor is None:
        return Entry(UNKNOWN)
    note = "" if factor.ideal is None else f"→ {times(factor.ideal)}"
    return Entry(
        one_line(factor.value), factor.ideal, note, strong=factor.ideal == most is not None
    )
