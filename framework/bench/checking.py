"""What a record and a failure of a sweep must hold. Imports no torch.

The same checks meet what the program writes and what it reads, so a folder that was changed by hand
is refused with its file and line, and never ends up in a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

KINDS = ("raised", "hung", "killed", "memory", "disk")
COUNTERS = ("rounds", "drafted", "accepted", "emitted")


def record_problem(record: dict[str, Any], cell: str, units: Sequence[dict[str, Any]]) -> str:
    """What is wrong with a record of this cell, in words; empty if nothing is."""
    if record.get("cell") != cell:
        return f"its cell is {record.get('cell')!r}, not {cell!r}"
    for key, most in (("unit", len(units) - 1), ("repeat", 1 << 31), ("order", 1 << 53)):
        if not whole(record.get(key)) or record[key] > most:
            return f"{key}={record.get(key)!r} is not a whole number from 0 to {most}"
    unit = units[record["unit"]]
    if record.get("group") != unit["group"]:
        return f"group={record.get('group')!r} is not that of unit {unit['index']}"
    return _times_problem(record) or _rows_problem(record.get("rows"), unit["prompts"])


def failure_problem(failure: dict[str, Any], cells: Sequence[str]) -> str:
    """The same for a line of ``failures.jsonl``."""
    if failure.get("cell") not in cells:
        return f"there is no cell {failure.get('cell')!r}"
    if failure.get("kind") not in KINDS:
        return f"kind={failure.get('kind')!r} is none of {', '.join(KINDS)}"
    if not isinstance(failure.get("cause"), str):
        return "its cause is no text"
    for key in ("unit", "repeat"):
        if failure.get(key) is not None and not whole(failure[key]):
            return f"{key}={failure[key]!r} is not a whole number"
    return ""


def _times_problem(record: dict[str, Any]) -> str:
    spent = record.get("time", {})
    if not isinstance(spent, dict):
        return "time is not an object"
    named = [(key, record.get(key)) for key in ("seconds", "prefill")]
    for key, value in [*named, *((f"time.{phase}", part) for phase, part in spent.items())]:
        if not amount(value):
            return f"{key}={value!r} is not a number of seconds from 0"
    if record["prefill"] > record["seconds"]:
        return f"prefill={record['prefill']!r} is more than seconds={record['seconds']!r}"
    if type(record.get("contended", False)) is not bool:
        return f"contended={record['contended']!r} is neither true nor false"
    started = record.get("started")
    good = isinstance(started, str) or amount(started)
    return "" if good else f"started={started!r} is no moment"


def _rows_problem(rows: Any, prompts: Sequence[int]) -> str:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return "rows is no list of objects"
    asked = [row.get("prompt") for row in rows]
    if not wholes(asked) or asked != list(prompts):
        return f"its rows are not those of the prompts {list(prompts)}"
    return next(filter(None, map(_row_problem, rows)), "")


def _row_problem(row: dict[str, Any]) -> str:
    if not wholes(row.get("ids")):
        return "ids is no list of token ids"
    for key in COUNTERS:
        if key in row and not whole(row[key]):
            return f"{key}={row[key]!r} is not a whole number from 0"
    for key in ("reached_at", "accepted_at"):
        if key in row and not wholes(row[key]):
            return f"{key} is no list of whole numbers from 0"
    if row.get("accepted", 0) > row.get("drafted", row.get("accepted", 0)):
        return f"accepted={row['accepted']!r} is more than drafted={row['drafted']!r}"
    if "by_round" in row and not _along(row):
        return "by_round is no list of drafted, reached and accepted tokens that add up to its counters"
    if "overlap" in row and not amount(row["overlap"]):
        return f"overlap={row['overlap']!r} is not a number from 0"
    good = row.get("finish") is None or isinstance(row["finish"], str)
    return "" if good else f"finish={row['finish']!r} is no word"


def _along(row: dict[str, Any]) -> bool:
    """Whether ``by_round`` is what the row's counters are the sums of."""
    each = row["by_round"]
    if not isinstance(each, list) or not all(wholes(one) and len(one) == 3 for one in each):
        return False
    drafted, reached, accepted = ([one[at] for one in each] for at in range(3))
    told = (
        row.get("rounds"),
        row.get("drafted"),
        sum(row.get("reached_at", ())),
        row.get("accepted"),
    )
    fits = all(d >= r >= a for d, r, a in each)
    return fits and (len(each), sum(drafted), sum(reached), sum(accepted)) == told


def whole(value: Any) -> bool:
    """Whether it is a whole number from 0, and no bool."""
    return type(value) is int and 0 <= value < 1 << 63


def wholes(values: Any) -> bool:
    """Whether it is a list of whole numbers from 0."""
    return isinstance(values, list) and all(map(whole, values))


def amount(value: Any) -> bool:
    """Whether it is a number from 0, and no bool."""
    # Also false for NaN and infinity.
    return type(value) in (int, float) and 0 <= value < 1e15
