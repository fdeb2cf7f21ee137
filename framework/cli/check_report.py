"""What ``foredraft check`` prints: a row for each check as it ends, then why the failed ones matter."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from .display import console, visible
from .results import strict

if TYPE_CHECKING:
    from rich.console import Console

    from ..testing.kit import Check, Outcome, Subject

COLOURS = {"passed": "green", "failed": "bold red", "skipped": "yellow"}
HEADINGS = ("check", "outcome", "seconds", "what it means")


def show(
    subject: Subject, checks: Sequence[Check], run: Callable[[Check, Subject], Outcome]
) -> list[Outcome]:
    """Runs the checks, each as a row of a table when it is done.

    The rows have fixed widths: a table of rich's would appear at the end only.
    """
    out = console()
    outcomes: list[Outcome] = []
    width = max(map(len, (HEADINGS[0], *(one.name for one in checks))))
    out.print(f"{subject.kind} {subject.name}: {_values(subject)}", soft_wrap=True)
    out.print(_row(width, *(Text(word, "bold") for word in HEADINGS)))
    out.print("─" * min(out.width, 100))
    for number, one in enumerate(checks, 1):
        with out.status(f"{one.name} ({number} of {len(checks)})"):
            outcomes.append(run(one, subject))
        out.print(_outcome_row(width, outcomes[-1]))
    _show_failures(out, outcomes)
    out.print()
    out.print(summary(outcomes))
    return outcomes


def _row(width: int, *cells: Text) -> Table:
    row = Table.grid(padding=(0, 2, 0, 0), expand=False)
    row.add_column(width=width, no_wrap=True)
    row.add_column(width=len("passed "), no_wrap=True)
    row.add_column(width=len("seconds"), justify="right", no_wrap=True)
    row.add_column(overflow="fold")
    row.add_row(*cells)
    return row


def _outcome_row(width: int, outcome: Outcome) -> Table:
    status = Text(outcome.status, COLOURS.get(outcome.status, ""))
    meaning = outcome.check.meaning
    if outcome.status == "skipped":
        meaning = f"{meaning} (skipped: {outcome.detail})"
    cells = (Text(outcome.check.name), status, Text(f"{outcome.seconds:.2f}"), Text(meaning))
    return _row(width, *cells)


def _values(subject: Subject) -> str:
    shown = [f"{key}={value!r}" for key, value in dataclasses.asdict(subject.config).items()]
    return ", ".join(shown) or "nothing to set"


def _show_failures(out: Console, outcomes: Iterable[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.status != "failed":
            continue
        out.print()
        out.print(Text(outcome.check.name, COLOURS["failed"]))
        for heading, text in (("found", outcome.detail), ("why it matters", outcome.check.why)):
            out.print(Text(f"  {heading}: {visible(text)}"), soft_wrap=True)


def summary(outcomes: Sequence[Outcome]) -> str:
    """``12 passed, 1 failed, 2 skipped``."""
    counts = Counter(outcome.status for outcome in outcomes)
    return ", ".join(f"{counts[status]} {status}" for status in COLOURS)


def as_dict(subject: Subject, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The whole report as plain values."""
    counts = Counter(outcome.status for outcome in outcomes)
    return {
        "kind": subject.kind,
        "name": subject.name,
        "config": strict(dataclasses.asdict(subject.config)),
        "seed": subject.seed,
        "checks": [
            {
                **_described(outcome.check),
                "status": outcome.status,
                "detail": outcome.detail,
                "seconds": round(outcome.seconds, 3),
            }
            for outcome in outcomes
        ],
        **{status: counts[status] for status in COLOURS},
    }


def _described(one: Check) -> dict[str, str]:
    return {"check": one.name, "meaning": one.meaning, "why": one.why}


def show_list(kinds: Sequence[str], as_json: bool) -> None:
    """The checks of these kinds, and what each means."""
    from ..testing.kit import checks_of

    found = {kind: [_described(one) for one in checks_of(kind)] for kind in kinds}
    if as_json:
        print(json.dumps(found, indent=2))
        return
    out = console()
    for kind, checks in found.items():
        table = Table(f"checks of a {kind}", "what it means", box=None, pad_edge=False)
        for one in checks:
            table.add_row(one["check"], one["meaning"])
        out.print(table)
        out.print()
