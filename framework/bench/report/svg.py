"""Small SVG drawings that stay text: colours come from the page's style sheet by class, so that one
drawing serves light and dark, and every mark says in words what it stands for.

Lengths are in SVG units, which are pixels where a drawing is shown at its own size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .words import one_line

COLOURS, SHAPES, DASHES = 7, 6, ("", "6 3", "2 3", "8 3 2 3")
RATIOS = (0.05, 20.0)  # speed-ups beyond these are drawn at the edge
# The roundest first: a tick is left out where it would stand too close to one before it.
RATIO_TICKS = (
    1,
    2,
    0.5,
    4,
    1.5,
    0.25,
    0.75,
    3,
    8,
    0.1,
    16,
    1.2,
    0.8,
    1.1,
    0.9,
    1.3,
    1.4,
    0.6,
    1.7,
    2.5,
)
APART = 30.0
LONGEST = 48  # letters of a name that a drawing has room for; its marks say the whole
Point = tuple[float, float]


@dataclass(frozen=True)
class Style:
    """How the lines and marks of one name look: a colour, a shape and a dash, so that no two of the
    first 28 names differ by colour alone."""

    index: int

    @property
    def css(self) -> str:
        return f"s{self.index % COLOURS}"

    @property
    def shape(self) -> int:
        return self.index % SHAPES

    @property
    def dash(self) -> str:
        return DASHES[self.index // COLOURS % len(DASHES)]


@dataclass(frozen=True)
class Scale:
    """Values from ``low`` to ``high`` laid on pixels from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value; one beyond the ends is drawn at the end."""
        value = min(max(value, self.low), self.high)
        low, high = self._on(self.low), self._on(self.high)
        share = (self._on(value) - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values on the scale; on a logarithmic one, as many as can be told apart."""
        return self._ratios() if self.log else nice(self.low, self.high, most)

    def _ratios(self) -> list[float]:
        found: list[float] = []
        for tick in RATIO_TICKS:
            near = [abs(self(tick) - self(other)) < APART for other in found]
            if self.low <= tick <= self.high and not any(near):
                found.append(tick)
        return sorted(found)

    def _on(self, value: float) -> float:
        return math.log(max(value, 1e-9)) if self.log else value


def nice(low: float, high: float, most: int = 6) -> list[float]:
    """At most ``most`` multiples of 1, 2 or 5 times a power of ten from ``low`` to ``high``."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    step = 10.0 ** math.floor(math.log10(span / most))
    step *= next(f for f in (1, 2, 5, 10, 20) if math.floor(span / (step * f)) < most or f == 20)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(step * k, 10) for k in range(first, last + 1)]


def ratio_scale(values: Iterable[float], start: float, end: float) -> Scale:
    """A logarithmic scale for speed-ups: 1.0 is on it, and 2.0 is as far from it as 0.5."""
    found = [min(max(value, RATIOS[0]), RATIOS[1]) for value in values]
    low, high = min([0.9, *found]), max([1.1, *found])
    return Scale(low / 1.06, high * 1.06, start, end, log=True)


def text(at: Point, words: str, css: str = "", anchor: str = "start") -> Markup:
    """Words whose base line starts, ends or is centred at a point."""
    line = one_line(words)
    line = line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
    return Markup('<text x="{:.1f}" y="{:.1f}" class="{}" text-anchor="{}">{}</text>').format(
        *at, css, anchor, line
    )


def segment(start: Point, end: Point, css: str) -> Markup:
    """A straight line."""
    return Markup('<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" class="{}"/>').format(
        *start, *end, css
    )


def rectangle(corner: Point, size: Point, css: str, says: str = "") -> Markup:
    """A filled box; with words, it can be pointed at."""
    return Markup(
        '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" class="{}"{}/>'
    ).format(*corner, max(size[0], 0.0), max(size[1], 0.0), css, _named(says))


def path(points: Sequence[Point], style: Style, css: str = "line", dash: str = "") -> Markup:
    """A line through points."""
    way = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return Markup('<path d="{}" class="{} {}" stroke-dasharray="{}"/>').format(
        way, css, style.css, dash or style.dash or "none"
    )


def ribbon(points: Sequence[Point], style: Style) -> Markup:
    """An area between its upper edge and, on the way back, its lower one."""
    way = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points) + "Z"
    return Markup('<path d="{}" class="ribbon {}"/>').format(way, style.css)


def mark(at: Point, style: Style, says: str, size: float = 4.0) -> Markup:
    """A mark that can be pointed at if it has words: its area is larger than its shape."""
    x, y = at
    return Markup(
        '<g class="mark {}"{}><circle cx="{:.1f}" cy="{:.1f}" r="8" class="area"/><path d="{}"/></g>'
    ).format(style.css, _named(says), x, y, outline(style.shape, x, y, size))


def outline(shape: int, x: float, y: float, size: float) -> str:
    """The path of a circle, square, triangle, diamond, downward triangle or cross."""
    if shape == 0:
        return (
            f"M{x - size:.1f} {y:.1f}a{size} {size} 0 1 0 {2 * size:.1f} 0"
            f"a{size} {size} 0 1 0 {-2 * size:.1f} 0Z"
        )
    r, t = size * 0.9, size / 3
    corners: dict[int, list[Point]] = {
        1: [(-r, -r), (r, -r), (r, r), (-r, r)],
        2: [(0, -size * 1.2), (size * 1.1, r), (-size * 1.1, r)],
        3: [(0, -size * 1.3), (size * 1.3, 0), (0, size * 1.3), (-size * 1.3, 0)],
        4: [(0, size * 1.2), (size * 1.1, -r), (-size * 1.1, -r)],
        5: [(-t, -size), (t, -size), (t, -t), (size, -t), (size, t), (t, t),
            (t, size), (-t, size), (-t, t), (-size, t), (-size, -t), (-t, -t)],
    }  # fmt: skip
    return "M" + " L".join(f"{x + dx:.1f} {y + dy:.1f}" for dx, dy in corners[shape]) + "Z"


def drawing(width: float, height: float, says: str, parts: Iterable[Markup]) -> Markup:
    """A whole drawing, with its name for those who do not see it."""
    return Markup(
        '<svg viewBox="0 0 {:.0f} {:.0f}" role="group" aria-label="{}" data-roving="">{}</svg>'
    ).format(width, height, one_line(says), Markup("\n").join(parts))


def _named(says: str) -> Markup:
    return Markup(' role="img" aria-label="{}"').format(one_line(says)) if says else Markup()
