"""What a record and a failure of a sweep must hold. Imports no torch.

The same checks meet what the program writes and what it reads, so a folder that was changed by hand
is refused with its file and line, and never ends up in a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

KINDS = ("raised", "hung", "killed", "memory")
COUNTERS = ("rounds", "drafted", "accepted", "emitted")
COUNTED = (*COUNTERS, "reached_at", "accepted_at", "overlap")  # a row has all of them or none
_SHORTEST = 1e-9  # seconds; a run that took less was not timed by any clock


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
    return (
        _times_problem(record)
        or _rows_problem(record.get("rows"), unit["prompts"])
        or _prefill_problem(record)
    )


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
    seconds, prefill = record["seconds"], record["prefill"]
    if prefill > seconds:
        return f"prefill={prefill!r} is more than seconds={seconds!r}"
    if 0 < seconds < _SHORTEST:
        return f"seconds={seconds!r} is less than a clock can tell"
    if sum(spent.values()) > (seconds - prefill) * 1.01 + 1e-3:
        return (
            f"the phases in time take {sum(spent.values())!r} s of {seconds - prefill!r} s decoding"
        )
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


def _prefill_problem(record: dict[str, Any]) -> str:
    count, most = record.get("by_prefill", 0), sum(len(row["ids"]) for row in record["rows"])
    good = whole(count) and count <= most
    return "" if good else f"by_prefill={count!r} is no number of its {most} tokens"


def _row_problem(row: dict[str, Any]) -> str:
    if not wholes(row.get("ids")):
        return "ids is no list of token ids"
    for key in COUNTERS:
        if key in row and not whole(row[key]):
            return f"{key}={row[key]!r} is not a whole number from 0"
    for key in ("reached_at", "accepted_at"):
        if key in row and not wholes(row[key]):
            return f"{key} is no list of whole numbers from 0"
    if "overlap" in row and not amount(row["overlap"]):
        return f"overlap={row['overlap']!r} is not a number from 0"
    if row.get("finish") is not None and not isinstance(row["finish"], str):
        return f"finish={row['finish']!r} is no word"
    known = [key for key in COUNTED if key in row]
    if known and len(known) < len(COUNTED):
        return f"it has {known[0]}, but no {next(key for key in COUNTED if key not in row)}"
    if known:
        return _sums_problem(row)
    return "it has by_round, but no counters" if "by_round" in row else ""


def _sums_problem(row: dict[str, Any]) -> str:
    """What in a row's counters contradicts the rest (see ``framework/metrics.py``)."""
    rounds, drafted, accepted, emitted = (row[key] for key in COUNTERS)
    at, stood = row["reached_at"], row["accepted_at"]
    reached, more = sum(at), [n for n, most in zip(stood, at, strict=False) if n > most]
    for value, most in (
        (("accepted", accepted), ("drafted", drafted)),
        (("accepted", accepted), ("the tokens that reached_at counts", reached)),
        (("what reached_at counts", reached), ("drafted", drafted)),
        (("rounds", rounds), ("emitted", emitted)),
        (("emitted", emitted), ("accepted + rounds", accepted + rounds)),
        (("overlap", row["overlap"]), ("what reached_at counts", reached + 1e-3 * (reached + 1))),
    ):
        if value[1] > most[1]:
            return f"{value[0]}={value[1]!r} is more than {most[0]}={most[1]!r}"
    if emitted != len(row["ids"]):
        return f"emitted={emitted!r} is not the number of its {len(row['ids'])} ids"
    if sum(stood) != accepted or len(stood) > len(at) or more:
        return "accepted_at does not add up to accepted within reached_at"
    return _along(row)


def _along(row: dict[str, Any]) -> str:
    """Whether ``by_round`` is what the row's counters are the sums of."""
    each = row.get("by_round")
    if each is None:
        return ""
    wrong = (
        "by_round is no list of drafted, reached and accepted tokens that add up to its counters"
    )
    if not isinstance(each, list) or not all(wholes(one) and len(one) == 3 for one in each):
        return wrong
    drafted, reached, accepted = ([one[at] for one in each] for at in range(3))
    told = (row["rounds"], row["drafted"], sum(row["reached_at"]), row["accepted"])
    fits = all(d >= r >= a for d, r, a in each)
    found = (len(each), sum(drafted), sum(reached), sum(accepted))
    return "" if fits and found == told else wrong


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
