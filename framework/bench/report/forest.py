"""The figures of speed-ups: every drafter on every group of prompts, and several runs side by side."""

from __future__ import annotations

from collections.abc import Sequence

from .data import Cell, Interval, Page
from .estimates import Estimate, Row, draw
from .series import Figure, by_drafter, drafters, legend, measured, noise, panels
from .svg import Style
from .words import in_order, label, listed, named, one_line, spoken

EVERYTHING = "all prompts"


def forest(page: Page) -> Figure | None:
    """Speed-up by drafter and group: for each drafter the setting that is fastest over all prompts."""
    chosen = {name: fastest(cells) for name, cells in panels(page).items()}
    rows = {name: _rows(page, cells) for name, cells in chosen.items() if cells}
    if not rows:
        return None
    beside = [row for found in rows.values() for row in found]
    drawn = [draw(name, found, noise(page, name), beside) for name, found in rows.items()]
    title = "Speed-up by drafter and task"
    return Figure("speedup", title, _caption(page, chosen), drawn, legend(drafters(page)))


def fastest(cells: Sequence[Cell]) -> list[Cell]:
    """Of each drafter, the setting that is fastest over all prompts."""
    found = [max(group, key=_value) for group in by_drafter(cells).values()]
    return [cell for cell in found if cell.speedup is not None]


def side_by_side(pages: Sequence[Page]) -> Figure | None:
    """The speed-ups of several runs, setting by setting; those that one run alone has are left out."""
    styles = {page.title: Style(index) for index, page in enumerate(pages)}
    shared = [cells for cells in matched(pages).values() if sum(c is not None for c in cells) > 1]
    rows = [row for cells in shared if (row := _runs_row(pages, cells))]
    if not rows:
        return None
    half = (len(rows) + 1) // 2
    drawn = [draw("", part, None, rows) for part in (rows[:half], rows[half:]) if part]
    caption = "The same setting in each run, against the plain decoding of that run."
    return Figure("runs", "The runs side by side", caption, drawn, legend(styles))


def matched(pages: Sequence[Page]) -> dict[str, list[Cell | None]]:
    """The settings of several runs by their labels: of each run the cell, or None."""
    found = [{label(cell): cell for cell in measured(page)} for page in pages]
    names = in_order(name for cells in found for name in cells)
    return {name: [cells.get(name) for cells in found] for name in names}


def _value(cell: Cell) -> float:
    return cell.speedup.value if cell.speedup else -1.0


def _caption(page: Page, chosen: dict[str, list[Cell]]) -> str:
    cells = "; ".join(_which(name, found) for name, found in chosen.items())
    band = " The band is plain decoding against itself." if noise(page) else ""
    return (
        "Right of 1.0 is faster than the fastest plain decoding of the same run; "
        f"{one_line(page.intervals)}, and by group each on its own.{band} Of each drafter, the "
        f"setting that is fastest over all prompts: {cells}."
    )


def _which(name: str, cells: Sequence[Cell]) -> str:
    """Which settings a panel shows."""
    words = listed([named(cell) for cell in cells])
    return f"at {name}, {words}" if name else words


def _rows(page: Page, cells: Sequence[Cell]) -> list[Row]:
    styles = drafters(page)
    found = {name: [(cell, cell.groups.get(name)) for cell in cells] for name in page.groups}
    rows = [Row(name, _estimates(name, pairs, styles)) for name, pairs in found.items()]
    everything = _estimates(EVERYTHING, [(cell, cell.speedup) for cell in cells], styles)
    return [*rows, Row(EVERYTHING, everything, strong=True)]


def _estimates(
    name: str, pairs: Sequence[tuple[Cell, Interval | None]], styles: dict[str, Style]
) -> list[Estimate]:
    words = one_line(name)
    return [_estimate(words, cell, it, styles[cell.drafter]) for cell, it in pairs if it]


def _estimate(name: str, cell: Cell, interval: Interval, style: Style) -> Estimate:
    return Estimate(interval, style, f"{name}, {label(cell)}: {spoken(interval)}")


def _runs_row(pages: Sequence[Page], cells: Sequence[Cell | None]) -> Row | None:
    known = [(at, cell) for at, cell in enumerate(cells) if cell and cell.speedup]
    estimates = [
        _estimate(one_line(pages[at].title), cell, cell.speedup, Style(at))
        for at, cell in known
        if cell.speedup
    ]
    return Row(label(known[0][1]), estimates) if len(estimates) > 1 else None
