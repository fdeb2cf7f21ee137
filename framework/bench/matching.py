"""What two sweeps have in common: cells and units."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .readings import PLAIN
from .summary import CellSummary, Summary

Pairs = list[tuple[CellSummary, CellSummary]]


def matched(a: Summary, b: Summary) -> Pairs:
    """Cells of the same kind and choices, in B's order; of those left, cells of the same config."""
    configs = [{c["id"]: c.get("config") for c in run.manifest["cells"]} for run in (a, b)]
    found: dict[str, CellSummary] = {}
    for first, second in ((_choices, _choices), (_config(configs[0]), _config(configs[1]))):
        taken = {cell.id for cell in found.values()}
        free = {first(cell): cell for cell in reversed(a.cells) if cell.id not in taken}
        for cell in b.cells:
            match = None if cell.id in found else free.pop(second(cell), None)
            if match:
                found[cell.id] = match
    return [(found[cell.id], cell) for cell in b.cells if cell.id in found]


def _choices(cell: CellSummary) -> str:
    again = cell.kind == PLAIN and cell.id != cell.loop
    return json.dumps([cell.kind, again, dict(cell.choices)], sort_keys=True, default=str)


def _config(configs: Mapping[str, Any]) -> Callable[[CellSummary], str]:
    def key(cell: CellSummary) -> str:
        again = cell.kind == PLAIN and cell.id != cell.loop
        return json.dumps([cell.kind, again, configs[cell.id]], sort_keys=True, default=str)

    return key


def shared_units(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[tuple[int, int]] | None:
    """Places of the units with the same prompts in both runs; None if their prompts differ."""
    if a.get("prompts") != b.get("prompts"):
        return None
    places = {_unit(unit): index for index, unit in enumerate(a["units"])}
    there = [(places.get(_unit(unit)), index) for index, unit in enumerate(b["units"])]
    return [(one, other) for one, other in there if one is not None]


def _unit(unit: Mapping[str, Any]) -> tuple[Any, ...]:
    return (unit["group"], unit.get("batch_size"), *unit["prompts"])
