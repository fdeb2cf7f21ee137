"""The result in a sentence, and what to use for which group of prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .data import Cell, Interval, Page
from .words import count, label, one_line, phrase, settings, spoken

FASTER, SLOWER, LEVEL = "faster", "slower", "no difference"


@dataclass(frozen=True)
class Advice:
    """The fastest setting for a group of prompts; ``use`` says whether it is reliably faster."""

    group: str
    cell: Cell
    interval: Interval
    use: bool


def standing(interval: Interval | None) -> str:
    """Where an interval lies: above 1, below 1, or around it. Empty if it is not known."""
    if interval is None or interval.low is None or interval.high is None:
        return ""
    return FASTER if interval.low > 1 else SLOWER if interval.high < 1 else LEVEL


def eligible(page: Page) -> list[Cell]:
    """Settings that may be called best: measured, alone on the machine, and with the output of plain
    decoding for all we know."""
    return [
        cell
        for cell in settings(page)
        if cell.status == "ok" and not (cell.lossy or cell.contended or cell.verdict_ok is False)
    ]


def best(cells: Sequence[Cell], of: Mapping[str, Interval]) -> Cell | None:
    """The cell with the largest estimate; ``of`` gives estimates by cell id. Reliably faster ones
    stand before all others: a large estimate with a wide interval is no result."""
    found = [cell for cell in cells if cell.id in of]
    ranks = {id: (standing(interval) == FASTER, interval.value) for id, interval in of.items()}
    return max(found, key=lambda cell: ranks[cell.id], default=None)


def overall(page: Page) -> Cell | None:
    """The fastest setting over all groups."""
    return best(eligible(page), {cell.id: cell.speedup for cell in page.cells if cell.speedup})


def advise(page: Page) -> list[Advice]:
    """For each group of prompts, the fastest setting, and whether to speculate at all."""
    return [found for group in page.groups if (found := _advice(page, group))]


def headline(page: Page) -> str:
    """The sentence over the page."""
    if page.headline:
        return one_line(page.headline)
    cell = overall(page)
    if cell is None:
        return "Nothing was measured that could be compared with plain decoding."
    if standing(cell.speedup) != FASTER:
        said = "Do not speculate here: no setting is reliably faster than plain decoding over all prompts."
        return f"{said} The best is {phrase(cell)}: {spoken(cell.speedup)}.{_but(page)}"
    return (
        f"{phrase(cell)} is {spoken(cell.speedup)} plain decoding over all prompts{_except(page)}."
    )


def facts(page: Page) -> list[str]:
    """Short sentences under the headline."""
    cells = settings(page)
    lines = [f"{count(len(cells), 'setting')}, {count(len(page.groups), 'group')} of prompts"]
    for status, words in (("failed", "failed"), ("missing", "not measured yet")):
        found = sum(cell.status == status for cell in cells)
        lines += [f"{count(found, 'setting')} {words}"] if found else []
    noisy = [cell for cell in page.cells if cell.noise]
    return lines + [f"{label(cell)}, against itself: {spoken(cell.noise)}" for cell in noisy]


def _advice(page: Page, group: str) -> Advice | None:
    of = {cell.id: cell.groups[group] for cell in page.cells if group in cell.groups}
    cell = best(eligible(page), of)
    if cell is None:
        return None
    return Advice(group, cell, of[cell.id], standing(of[cell.id]) == FASTER)


def _except(page: Page) -> str:
    """On how many groups no setting is reliably faster."""
    found = advise(page)
    idle = [advice for advice in found if not advice.use]
    if not idle or len(found) < 2:
        return ""
    if len(idle) == 1:
        return f"; on {one_line(idle[0].group)} do not speculate"
    return f"; on {len(idle)} of {count(len(found), 'group')} do not speculate"


def _but(page: Page) -> str:
    """Groups on which some setting is reliably faster though none is over all prompts."""
    used = [advice for advice in advise(page) if advice.use]
    if not used:
        return ""
    top = max(used, key=lambda advice: advice.interval.value)
    return f" On {one_line(top.group)} alone, {phrase(top.cell)} reaches {spoken(top.interval)}."
