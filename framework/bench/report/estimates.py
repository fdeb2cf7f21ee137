"""A drawing of estimates with their intervals, row under row, with a line at 1.0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .data import Interval
from .svg import Scale, Style, drawing, mark, ratio_scale, rectangle, segment, text

WIDTH, LEFT, RIGHT, TOP = 340.0, 14.0, 14.0, 30.0
STEP, HEAD, GAP, FOOT = 11.0, 17.0, 9.0, 40.0


@dataclass(frozen=True)
class Estimate:
    """A speed-up on a row; ``says`` is what it stands for, in words."""

    interval: Interval
    style: Style
    says: str


@dataclass(frozen=True)
class Row:
    """A name over the estimates that belong to it. ``strong``: it sums up the others."""

    name: str
    estimates: Sequence[Estimate]
    strong: bool = False

    @property
    def height(self) -> float:
        return HEAD + STEP * len(self.estimates) + GAP


def draw(
    title: str, rows: Sequence[Row], noise: Interval | None = None, beside: Sequence[Row] = ()
) -> Markup:
    """The drawing; ``noise`` is shaded, and the rows ``beside`` it have room on its axis as well."""
    scale = ratio_scale(_ends([*rows, *beside]), LEFT, WIDTH - RIGHT)
    height = TOP + sum(row.height for row in rows) + FOOT
    parts = [text((LEFT, 14), title or "speed-up", "title"), *_frame(scale, height, noise)]
    top = TOP
    for row in rows:
        parts += _row(row, scale, top)
        top += row.height
    return drawing(WIDTH, height, f"speed-up with intervals, {title}", parts)


def _ends(rows: Sequence[Row]) -> Iterator[float]:
    """Every number that has to be on the axis."""
    for row in rows:
        for estimate in row.estimates:
            found = estimate.interval
            yield from (end for end in (found.value, found.low, found.high) if end is not None)


def _frame(scale: Scale, height: float, noise: Interval | None) -> Iterator[Markup]:
    floor = height - FOOT + 4
    if noise and noise.low is not None and noise.high is not None:
        left, right = scale(noise.low), scale(noise.high)
        yield rectangle((left, TOP - 6), (right - left, floor - TOP + 6), "band")
    for tick in scale.ticks():
        x = scale(tick)
        yield segment((x, TOP - 6), (x, floor), "one" if tick == 1 else "grid")
        yield text((x, floor + 14), f"{tick:g}", "tick", "middle")
    yield text((WIDTH / 2, floor + 30), "speed-up", "name", "middle")


def _row(row: Row, scale: Scale, top: float) -> Iterator[Markup]:
    yield text((LEFT, top + 9), row.name, "row strong" if row.strong else "row")
    for index, estimate in enumerate(row.estimates):
        y = top + HEAD + STEP * index + 2
        found = estimate.interval
        if found.low is not None and found.high is not None:
            css = f"whisker {estimate.style.css}"
            yield segment((scale(found.low), y), (scale(found.high), y), css)
        yield mark((scale(found.value), y), estimate.style, estimate.says)
