"""What the figures share: which cells go on which panel, as which line, and what a figure is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .data import Cell, Interval, Page
from .svg import Style, mark, path
from .words import in_order, one_line, other_choices, settings


@dataclass(frozen=True)
class Key:
    """An entry of a legend."""

    sign: Markup
    name: str


@dataclass(frozen=True)
class Figure:
    """A figure: drawings of the same kind beside each other.

    Args:
        id: for links, unique in its page.
        caption: how to read it.
    """

    id: str
    title: str
    caption: str
    panels: Sequence[Markup]
    legend: Sequence[Key] = ()


def measured(page: Page) -> list[Cell]:
    """Settings with figures."""
    return [cell for cell in settings(page) if cell.status == "ok"]


def noise(page: Page, name: str | None = None) -> Interval | None:
    """What plain decoding says of itself: of a panel, or of all of them the widest."""
    found = [
        cell.noise for cell in page.cells if cell.noise and name in (None, other_choices(cell))
    ]
    ends = [(it.low, it.high) for it in found if it.low is not None and it.high is not None]
    if not ends:
        return None
    return Interval(1.0, min(low for low, _ in ends), max(high for _, high in ends))


def drafters(page: Page) -> dict[str, Style]:
    """A style for each drafter; the same one in every figure of the page."""
    names = in_order(cell.drafter for cell in settings(page))
    return {name: Style(index) for index, name in enumerate(names)}


def panels(page: Page) -> dict[str, list[Cell]]:
    """The measured settings by what varies beside drafter and gamma: a panel of a figure each."""
    found: dict[str, list[Cell]] = {}
    for cell in measured(page):
        found.setdefault(other_choices(cell), []).append(cell)
    return found


def by_drafter(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Cells by drafter, each in order of gamma."""
    found: dict[str, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.gamma if cell.gamma is not None else 0.0):
        found.setdefault(cell.drafter, []).append(cell)
    return found


def legend(styles: dict[str, Style]) -> list[Key]:
    """A key for each name: its mark on its line."""
    return [Key(_sign(style), one_line(name) or "setting") for name, style in styles.items()]


def sign_of(css: str) -> Markup:
    """The key of a filled area."""
    return Markup(
        '<svg viewBox="0 0 14 14" class="key" aria-hidden="true">'
        '<rect x="1" y="1" width="12" height="12" class="{}"/></svg>'
    ).format(css)


def line_sign(style: Style, dash: str) -> Markup:
    """The key of a line without marks."""
    line = path([(1, 7), (27, 7)], style, "line theory", dash)
    return Markup('<svg viewBox="0 0 28 14" class="key wide" aria-hidden="true">{}</svg>').format(
        line
    )


def _sign(style: Style) -> Markup:
    parts = [path([(1, 7), (27, 7)], style), mark((14, 7), style, "")]
    found = Markup("").join(parts)
    return Markup('<svg viewBox="0 0 28 14" class="key wide" aria-hidden="true">{}</svg>').format(
        found
    )
