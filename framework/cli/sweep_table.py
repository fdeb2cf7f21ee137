"""What a terminal shows of a sweep: a line per cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from .display import named_column, one_line

if TYPE_CHECKING:
    from ..bench.interval import Interval
    from ..bench.summary import CellSummary, Summary

HEADINGS = ("speed-up", "tokens/s", "tau", "alpha", "output")
STYLES = {"faster": "green", "slower": "red"}


def table(found: Summary) -> Table:
    """Speed-ups hold with 95 % for all cells together, and are over the fastest plain decoding."""
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    named_column(shown, "cell", [cell.id for cell in found.cells])
    for heading in HEADINGS:
        shown.add_column(heading, justify="right", overflow="fold")
    for cell in found.cells:
        shown.add_row(cell.id, *_figures(cell), style=STYLES.get(cell.clear))
    return shown


def _figures(cell: CellSummary) -> list[str]:
    if cell.status != "ok":
        reason = "shared the machine" if cell.status == "contended" else cell.status
        times = [reason, "-"]
    else:
        times = [cell.family.text(), _figure(cell.rate, 1)]
    verdict = one_line(str((cell.verdict or {}).get("verdict", "-")))
    return [*times, _figure(cell.tau, 2), _figure(cell.alpha, 2), verdict]


def _figure(found: Interval, digits: int) -> str:
    """Without its interval, which the page has: a line holds one."""
    return "-" if found.value is None else f"{found.value:.{digits}f}"
