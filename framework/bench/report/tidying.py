"""A page in which every number is finite, so that nothing that draws has to ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from .data import Cell, Interval, Page, Stretch, Why
from .words import in_order, known


def tidied(page: Page) -> Page:
    """The same page: numbers that are not finite are None, an estimate that is not finite is none, an
    interval has both ends or neither, and the groups are named if the cells have some."""
    cells = [_cell(cell) for cell in page.cells]
    groups = page.groups or in_order(group for cell in cells for group in cell.groups)
    return replace(page, cells=cells, groups=list(groups))


def _cell(cell: Cell) -> Cell:
    return replace(
        cell,
        gamma=known(cell.gamma),
        speedup=_interval(cell.speedup),
        totals=_interval(cell.totals),
        against_loop=_interval(cell.against_loop),
        groups=_intervals(cell.groups),
        tau=_interval(cell.tau),
        alpha=_interval(cell.alpha),
        by_position=_start(cell.by_position),
        c=known(cell.c),
        predicted=known(cell.predicted),
        predicted_timed=known(cell.predicted_timed),
        phases={name: value for name, value in cell.phases.items() if (known(value) or 0) > 0},
        course=[one for part in cell.course if (one := _stretch(part))],
        noise=_interval(cell.noise),
        why=_why(cell.why),
    )


def _interval(interval: Interval | None) -> Interval | None:
    if interval is None or known(interval.value) is None:
        return None
    low, high = known(interval.low), known(interval.high)
    if low is None or high is None:
        return Interval(interval.value)
    return Interval(interval.value, min(low, high), max(low, high))


def _stretch(part: Stretch) -> Stretch | None:
    rate = _interval(part.rate)
    return replace(part, rate=rate) if rate else None


def _intervals(found: Mapping[str, Interval]) -> dict[str, Interval]:
    tidy = {name: _interval(interval) for name, interval in found.items()}
    return {name: interval for name, interval in tidy.items() if interval is not None}


def _start(values: Iterable[float]) -> list[float]:
    """Up to the first position that nothing is known of."""
    found: list[float] = []
    for value in values:
        if known(value) is None:
            break
        found.append(value)
    return found


def _why(why: Why | None) -> Why | None:
    if why is None:
        return None
    return replace(why, factors=[replace(f, ideal=known(f.ideal)) for f in why.factors])
