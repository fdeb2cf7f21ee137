"""The figure of time by phase: what a token costs, and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from .data import Cell, Page
from .panel import RIGHT, WIDTH
from .series import Figure, Key, by_drafter, panels, sign_of
from .svg import Scale, drawing, rectangle, segment, text
from .words import BASELINES, choice, in_order, is_setting, label, number, one_line, other_choices

NAMES, ROW, TOP, FOOT = 118.0, 18.0, 28.0, 36.0
LONGEST = 19


def phases(page: Page) -> Figure | None:
    """Milliseconds per emitted token by phase; the dashed line is plain decoding."""
    cells = sorted(page.cells, key=is_setting, reverse=True)  # a baseline lacks phases
    names = in_order(name for cell in cells for name in cell.phases)
    drawn = [_panel(page, name, cells, names) for name, cells in panels(page).items()]
    found = [panel for panel in drawn if panel]
    if not found:
        return None
    caption = (
        "Milliseconds per emitted token, prefill left out. A setting is faster than the plain loop if "
        "its bar ends left of the dashed line."
    )
    keys = [Key(sign_of(f"phase p{at % 6}"), one_line(name)) for at, name in enumerate(names)]
    return Figure("phases", "Time by phase", caption, found, keys)


def _panel(page: Page, name: str, cells: Sequence[Cell], names: Sequence[str]) -> Markup | None:
    base = [
        cell for cell in page.cells if not is_setting(cell) and other_choices(cell) in ("", name)
    ]
    ordered = [*base, *(cell for found in by_drafter(cells).values() for cell in found)]
    rows = [cell for cell in ordered if cell.phases]
    if not rows:
        return None
    longest = max(_total(cell) for cell in page.cells)  # of all panels: they have one axis
    scale = Scale(0, longest * 1.04, NAMES, WIDTH - RIGHT)
    height = TOP + ROW * len(rows) + FOOT
    parts = [text((0, 14), name or "time per token", "title"), *_frame(scale, height)]
    for index, cell in enumerate(rows):
        parts += _bar(cell, names, scale, TOP + ROW * index)
    plain = [_total(cell) for cell in base if cell.kind == "plain" and cell.phases]
    for total in plain[:1]:
        parts.append(segment((scale(total), TOP - 6), (scale(total), height - FOOT), "one"))
    return drawing(WIDTH, height, f"time per token by phase, {name}", parts)


def _total(cell: Cell) -> float:
    return 1000 * sum(cell.phases.values())


def _frame(scale: Scale, height: float) -> Iterator[Markup]:
    floor = height - FOOT + 4
    for tick in scale.ticks():
        yield segment((scale(tick), TOP - 6), (scale(tick), floor), "grid")
        yield text((scale(tick), floor + 13), f"{tick:g}", "tick", "middle")
    yield text(((NAMES + WIDTH - RIGHT) / 2, floor + 28), "ms per token", "name", "middle")


def _bar(cell: Cell, names: Sequence[str], scale: Scale, top: float) -> Iterator[Markup]:
    yield text((NAMES - 6, top + 10.5), _name(cell), "row", "end")
    done = 0.0
    for at, name in enumerate(names):
        span = 1000 * cell.phases.get(name, 0.0)
        if span <= 0:
            continue
        left, right = scale(done), scale(done + span)
        says = (
            f"{label(cell)}: {one_line(name)} {number(span)} of {number(_total(cell))} ms per token"
        )
        yield rectangle((left, top), (right - left - 0.6, ROW - 5), f"phase p{at % 6}", says)
        done += span


def _name(cell: Cell) -> str:
    """A short name: the panel's title has the other choices."""
    if not is_setting(cell):
        name = BASELINES.get(cell.kind, cell.id).replace("transformers ", "")
    else:
        gamma = "" if cell.gamma is None else f" {choice(float(cell.gamma))}"
        name = f"{one_line(cell.drafter)[: LONGEST - len(gamma)]}{gamma}"
    return name
