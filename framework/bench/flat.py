"""A cell of a sweep as one flat row, for CSV and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .gap import Gap
from .interval import Interval

if TYPE_CHECKING:
    from .summary import CellSummary

PLAIN = ("status", "cause", "loop", "units", "runs", "contended", "tokens", "unequal", "clear")
SPREAD = ("speedup", "family", "totals", "against_loop", "rate", "tau", "alpha", "accept_rate")


def row(cell: CellSummary) -> dict[str, Any]:
    """Names to plain values: an interval ``x`` as ``x``, ``x_low`` and ``x_high``; what there is for
    each group, phase or position as ``x[math]``, ``x[verify]``, ``x[1]``."""
    found: dict[str, Any] = {"cell": cell.id, "kind": cell.kind, **cell.choices}
    found |= {name: getattr(cell, name) for name in PLAIN}
    found["base"] = " / ".join(cell.base)
    for name in SPREAD:
        found |= _spread(name, getattr(cell, name))
    for group, interval in cell.groups.items():
        found |= _spread(f"speedup[{group}]", interval)
    for group, interval in cell.tau_groups.items():
        found |= _spread(f"tau[{group}]", interval)
    found |= cell.counts
    found |= {f"seconds[{name}]": value for name, value in cell.phases.items()}
    found |= {f"accept_at[{i}]": rate for i, rate in enumerate(cell.accept_at, 1)}
    found |= _gap(cell.gap) if cell.gap else {}
    found["verdict"] = (cell.verdict or {}).get("verdict")
    return found


def _spread(name: str, interval: Interval) -> dict[str, float | None]:
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _gap(found: Gap) -> dict[str, Any]:
    named = ("theory", "by_times", "gamma", "c", "width")
    row: dict[str, Any] = {name: getattr(found, name) for name in named}
    row |= {f"if_ideal[{name}]": value for name, value in found.if_ideal.items()}
    return {**row, "largest_loss": found.largest, "advice": found.advice}
