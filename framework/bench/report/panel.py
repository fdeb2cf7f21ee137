"""A pair of axes to draw on."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from .data import Interval
from .svg import Point, Scale, Style, drawing, mark, path, rectangle, ribbon, segment, text

WIDTH = 340.0
HEIGHT = 240.0
LEFT, RIGHT, TOP, BOTTOM = 38.0, 12.0, 26.0, 38.0


class Panel:
    """One drawing with a title over its axes; ``x`` and ``y`` turn values into pixels.

    Args:
        title: what is seen, short.
        x, y: from the smallest to the largest value of each axis.
        names: what the axes are, with units.
        ratios: both axes are speed-ups, on logarithmic scales.
    """

    def __init__(
        self,
        title: str,
        x: tuple[float, float],
        y: tuple[float, float],
        names: tuple[str, str],
        ratios: bool = False,
    ) -> None:
        self.title, self.names = title, names
        self.x = Scale(*x, LEFT, WIDTH - RIGHT, ratios)
        self.y = Scale(*y, HEIGHT - BOTTOM, TOP, ratios)
        self.parts: list[Markup] = [text((LEFT, 14), title, "title")]
        self._axes()

    def line(
        self, points: Sequence[Point], style: Style, css: str = "line", dash: str = ""
    ) -> None:
        """A line through values."""
        if len(points) > 1:
            self.parts.append(path([self.at(point) for point in points], style, css, dash))

    def mark(self, point: Point, style: Style, says: str) -> None:
        """A mark at a value, with words."""
        self.parts.append(mark(self.at(point), style, says))

    def whisker(self, x: float, interval: Interval | None, style: Style) -> None:
        """An upright interval, if there is one."""
        if interval and interval.low is not None and interval.high is not None:
            ends = self.at((x, interval.low)), self.at((x, interval.high))
            self.parts.append(segment(*ends, f"whisker {style.css}"))

    def ribbon(self, intervals: Sequence[tuple[float, Interval]], style: Style) -> None:
        """Intervals joined to an area, where there is more than one."""
        ends = [(x, one.low, one.high) for x, one in intervals]
        lows = [(x, low) for x, low, _ in ends if low is not None]
        highs = [(x, high) for x, _, high in ends if high is not None]
        if len(lows) > 1:
            self.parts.append(ribbon([self.at(p) for p in [*highs, *reversed(lows)]], style))

    def level(self, y: float, css: str = "one") -> None:
        """A line across, at 1.0 for example."""
        self.parts.append(segment(self.at((self.x.low, y)), self.at((self.x.high, y)), css))

    def band(self, interval: Interval | None) -> None:
        """A shaded range of ``y``, if there is one."""
        if interval and interval.low is not None and interval.high is not None:
            left, top = self.at((self.x.low, interval.high))
            right, bottom = self.at((self.x.high, interval.low))
            self.parts.append(rectangle((left, top), (right - left, bottom - top), "band"))

    def at(self, point: Point) -> Point:
        """The pixels of a pair of values."""
        return self.x(point[0]), self.y(point[1])

    def svg(self) -> Markup:
        """The drawing."""
        return drawing(
            WIDTH, HEIGHT, f"{self.title}: {self.names[1]} by {self.names[0]}", self.parts
        )

    def _axes(self) -> None:
        floor = HEIGHT - BOTTOM
        for tick in self.y.ticks():
            y = self.y(tick)
            self.parts.append(segment((LEFT, y), (WIDTH - RIGHT, y), "grid"))
            self.parts.append(text((LEFT - 6, y + 3.5), f"{tick:g}", "tick", "end"))
        for tick in self.x.ticks(8):
            self.parts.append(text((self.x(tick), floor + 14), f"{tick:g}", "tick", "middle"))
        middle = (LEFT + WIDTH - RIGHT) / 2
        self.parts.append(segment((LEFT, floor), (WIDTH - RIGHT, floor), "axis"))
        self.parts.append(text((middle, floor + 30), self.names[0], "name", "middle"))
        self.parts.append(text((WIDTH - RIGHT, 14), self.names[1], "name", "end"))
