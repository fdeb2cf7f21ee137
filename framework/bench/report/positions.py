"""The figures of acceptance: tokens per round, by position in the draft, over an answer."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from .data import Cell, Page
from .forest import fastest
from .panel import Panel
from .series import Figure, by_drafter, drafters, legend, measured, panels
from .svg import Point, Style
from .words import bounds, choice, label, number, phrase

NEUTRAL = Style(6)


def acceptance(page: Page) -> Figure | None:
    """Tau by gamma, and acceptance by position in the draft."""
    drawn: list[Markup | None] = []
    for name, cells in panels(page).items():
        drawn += [_tau(page, name, cells), _positions(page, name, cells)]
    caption = (
        "Tau: tokens emitted per round; the dotted line is what a draft that is always accepted would "
        "give. Acceptance: the share of drafted tokens accepted at each position of a round, among those "
        "that were tried, for the longest draft of each drafter."
    )
    return _figure(page, "tau", "Tau, and acceptance by position", caption, drawn)


def course(page: Page) -> Figure | None:
    """Acceptance over the course of an answer."""
    drawn = [_course(page, name, cells) for name, cells in panels(page).items()]
    caption = (
        "The share of drafted tokens accepted among those that were tried, by where in the answer the "
        "round began, with 95 % intervals over the prompts; of each drafter the setting that is fastest "
        "over all prompts. Only prompts with long answers are in the later stretches."
    )
    return _figure(page, "course", "Acceptance over the course of an answer", caption, drawn)


def _figure(
    page: Page, name: str, title: str, caption: str, drawn: Sequence[Markup | None]
) -> Figure | None:
    found = [panel for panel in drawn if panel]
    return Figure(name, title, caption, found, legend(drafters(page))) if found else None


def _tau(page: Page, name: str, cells: Sequence[Cell]) -> Markup | None:
    known = [cell for cell in cells if cell.gamma is not None and cell.tau is not None]
    if not known:
        return None
    most = max(cell.gamma or 0.0 for cell in known)
    panel = Panel(name, (0, most + 0.5), (1, _top(page) * 1.05), ("gamma", "tau"))
    end = min(most, panel.y.high - 1)
    panel.line([(0, 1), (end, end + 1)], NEUTRAL, "line bound", "1 4")
    for drafter, found in by_drafter(known).items():
        _tau_line(panel, found, drafters(page)[drafter])
    return panel.svg()


def _top(page: Page) -> float:
    """The largest tau of all panels, so that they have one axis."""
    taus = [cell.tau for cell in measured(page) if cell.tau and cell.gamma is not None]
    return max([2.0, *(max(tau.value, tau.high or 0.0) for tau in taus)])


def _tau_line(panel: Panel, cells: Sequence[Cell], style: Style) -> None:
    points = [(cell.gamma or 0.0, _tau_of(cell)) for cell in cells]
    panel.line([(0, 1), *points], style)
    for cell, point in zip(cells, points, strict=True):
        panel.whisker(point[0], cell.tau, style)
        panel.mark(point, style, f"{label(cell)}: tau {number(point[1])}")


def _tau_of(cell: Cell) -> float:
    return cell.tau.value if cell.tau else 1.0


def _positions(page: Page, name: str, cells: Sequence[Cell]) -> Markup | None:
    groups = by_drafter(cells).values()
    longest = [max(found, key=lambda cell: len(cell.by_position)) for found in groups]
    most = max(len(cell.by_position) for cell in longest)
    if not most:
        return None
    names = ("position in the draft", "accepted")
    panel = Panel(name, (0.7, most + 0.3), (0, 1), names)
    for cell in longest:
        points = [(float(at), share) for at, share in enumerate(cell.by_position, 1)]
        _shares(panel, points, drafters(page)[cell.drafter], cell)
    return panel.svg()


def _course(page: Page, name: str, cells: Sequence[Cell]) -> Markup | None:
    chosen = [cell for cell in fastest(cells) if cell.course]
    if not chosen:
        return None
    most = max(cell.course[-1].last for cell in chosen)
    names = ("tokens of the answer so far", "accepted")
    panel = Panel(name, (0, most), (0, 1), names)
    for cell in chosen:  # all areas lie below all lines
        rates = [(part.middle, part.rate) for part in cell.course]
        panel.ribbon(rates, drafters(page)[cell.drafter])
    for cell in chosen:
        _stretches(panel, cell, drafters(page)[cell.drafter])
    return panel.svg()


def _stretches(panel: Panel, cell: Cell, style: Style) -> None:
    panel.line([(part.middle, part.rate.value) for part in cell.course], style)
    for part in cell.course:
        rate = f"{number(part.rate.value)} {bounds(part.rate)}".strip()
        says = f"{phrase(cell)}, tokens {part.first} to {part.last}: {rate} accepted"
        panel.mark((part.middle, part.rate.value), style, says)


def _shares(panel: Panel, points: Sequence[Point], style: Style, cell: Cell) -> None:
    panel.line(points, style)
    for point in points:
        place = choice(float(point[0]))
        panel.mark(point, style, f"{phrase(cell)}, position {place}: {number(point[1])} accepted")
