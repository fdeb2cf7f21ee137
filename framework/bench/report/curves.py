"""The figures of theory: speed-up against gamma with its curve, and measured against predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from ...theory import speedup
from .data import Cell, Interval, Page
from .panel import Panel
from .series import Figure, Key, by_drafter, drafters, legend, line_sign, measured, noise, panels
from .svg import RATIOS, Point, Style
from .words import label, number, one_line, spoken

DASHED = "5 4"
NEUTRAL = Style(6)


@dataclass(frozen=True)
class Line:
    """Settings of one drafter by gamma, and what theory says of them."""

    cells: Sequence[Cell]
    curve: Sequence[Point]


def by_gamma(page: Page) -> Figure | None:
    """Speed-up against gamma, a panel for each drafter, with the curve of Theorem 3.8."""
    first = len(drafters(page))  # the lines are no drafters, so they do not look like one
    styles = {name: Style(first + index) for index, name in enumerate(panels(page))}
    lines = {name: _lines(page, name) for name in drafters(page)}
    lines = {name: found for name, found in lines.items() if _gammas(found) > 1}
    if not lines:
        return None
    limits = _limits([line for found in lines.values() for line in found.values()])
    drawn = [_by_gamma(page, name, found, styles, limits) for name, found in lines.items()]
    caption = (
        "Marks: measured, with intervals. Dashed: Theorem 3.8 of Leviathan et al. 2023 with the measured "
        "alpha and c (their means over gamma); it takes a wide step of the target for as quick as a "
        "narrow one."
    )
    keys = legend(styles) if list(styles) != [""] else []
    keys = [*keys, Key(line_sign(NEUTRAL, DASHED), "Theorem 3.8")]
    return Figure("gamma", "Speed-up against gamma", caption, drawn, keys)


def predictions(page: Page) -> Figure | None:
    """Measured speed-up against the two predictions."""
    drawn = [
        _predicted(page, "alpha and c (Theorem 3.8)", lambda cell: cell.predicted),
        _predicted(page, "measured step times", lambda cell: cell.predicted_timed),
    ]
    caption = (
        "A mark on the diagonal was predicted exactly; below it, the setting is slower than predicted. "
        "One prediction knows alpha and c alone, the other the measured time of every step."
    )
    found = [panel for panel in drawn if panel]
    if not found:
        return None
    keys = legend(drafters(page))
    return Figure("predicted", "Measured against predicted", caption, found, keys)


def _lines(page: Page, drafter: str) -> dict[str, Line]:
    """The drafter's lines by the name of what else varies: cells by gamma, and their theory."""
    found = {name: _varied(cells, drafter) for name, cells in panels(page).items()}
    most = max((cell.gamma or 0.0 for cells in found.values() for cell in cells), default=0.0)
    return {name: Line(cells, _theory(cells, most)) for name, cells in found.items() if cells}


def _gammas(lines: dict[str, Line]) -> int:
    return len({cell.gamma for line in lines.values() for cell in line.cells})


def _limits(lines: Sequence[Line]) -> tuple[float, float]:
    """The smallest and the largest speed-up of all panels, so that they have one axis."""
    heights = [y for line in lines for _, y in line.curve]
    heights += [end for line in lines for cell in line.cells for end in _ends(cell.speedup)]
    return min(0.9, *heights) * 0.95, max(1.1, *heights) * 1.05


def _by_gamma(
    page: Page,
    drafter: str,
    lines: dict[str, Line],
    styles: dict[str, Style],
    limits: tuple[float, float],
) -> Markup:
    most = max(cell.gamma or 0.0 for line in lines.values() for cell in line.cells)
    panel = Panel(one_line(drafter), (0, most + 0.5), limits, ("gamma", "speed-up"))
    panel.band(noise(page))
    panel.level(1.0)
    for name, line in lines.items():
        panel.line(line.curve, styles[name], "line theory", DASHED)
        _marks(panel, line.cells, styles[name])
    return panel.svg()


def _marks(panel: Panel, cells: Sequence[Cell], style: Style) -> None:
    points = [(cell.gamma or 0.0, cell.speedup.value) for cell in cells if cell.speedup]
    panel.line(points, style)
    for cell, point in zip(cells, points, strict=True):
        panel.whisker(point[0], cell.speedup, style)
        says = f"{label(cell)}: {spoken(cell.speedup)}; Theorem 3.8: {number(cell.predicted)}"
        panel.mark(point, style, says)


def _varied(cells: Sequence[Cell], drafter: str) -> list[Cell]:
    """The drafter's settings with a gamma and a speed-up."""
    found = by_drafter(cells).get(drafter, [])
    return [cell for cell in found if cell.gamma is not None and cell.speedup is not None]


def _theory(cells: Sequence[Cell], most: float) -> list[Point]:
    """Theorem 3.8 from gamma 0 to the largest one, with the cells' mean alpha and c."""
    alphas = [cell.alpha.value for cell in cells if cell.alpha and 0 <= cell.alpha.value <= 1]
    costs = [cell.c for cell in cells if cell.c is not None and cell.c >= 0]
    if not alphas or not costs:
        return []
    gammas = np.linspace(0, most + 0.5, 60)
    factors = speedup(float(np.mean(alphas)), gammas, float(np.mean(costs)))
    return list(zip(gammas.tolist(), factors.tolist(), strict=True))


def _predicted(page: Page, title: str, predict: Callable[[Cell], float | None]) -> Markup | None:
    known = [(cell, at) for cell in measured(page) if cell.speedup and (at := predict(cell))]
    if not known:
        return None
    ends = [end for cell, at in known for end in (at, *_ends(cell.speedup))]
    limits = min(0.95, *ends) * 0.97, max(1.05, *ends) * 1.03
    limits = max(limits[0], RATIOS[0]), min(limits[1], RATIOS[1])
    panel = Panel(title, limits, limits, ("predicted", "measured"), ratios=True)
    panel.line([(limits[0], limits[0]), (limits[1], limits[1])], NEUTRAL, "line bound", "1 4")
    for cell, at in known:
        _scattered(panel, cell, at, drafters(page)[cell.drafter])
    return panel.svg()


def _scattered(panel: Panel, cell: Cell, at: float, style: Style) -> None:
    assert cell.speedup is not None
    panel.whisker(at, cell.speedup, style)
    says = f"{label(cell)}: measured {spoken(cell.speedup)}, predicted {number(at)}"
    panel.mark((at, cell.speedup.value), style, says)


def _ends(interval: Interval | None) -> Iterator[float]:
    if interval is not None:
        ends = (interval.value, interval.low, interval.high)
        yield from (end for end in ends if end is not None)
