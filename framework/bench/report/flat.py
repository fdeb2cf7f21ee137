"""The same figures for programs and for text: ``summary.csv`` and ``summary.md``."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence

from .data import Cell, Interval, Page
from .headline import advise, facts, headline
from .table import Entry, Table
from .tables import groups_table, settings_table
from .tidying import tidied
from .why import why_table
from .words import choice, in_order, one_line, phrase, spoken

FORMULAS = ("=", "+", "-", "@")  # a spreadsheet would compute what begins so
INTERVALS = ("speedup", "totals", "against_loop", "tau", "alpha")
Value = str | int | float | bool | None


def csv_text(pages: Sequence[Page]) -> str:
    """A line for each cell of each run; numbers in full, nothing where nothing is known."""
    found = [tidied(page) for page in pages]
    rows = [dict(_figures(page, cell)) for page in found for cell in page.cells]
    names = in_order(name for row in rows for name in row)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_safe(name) for name in names])
    writer.writerows([_safe(row.get(name)) for name in names] for row in rows)
    return out.getvalue()


def markdown(pages: Sequence[Page]) -> str:
    """The result, the tables and where they come from."""
    parts = [part for page in pages for part in _markdown(tidied(page))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _figures(page: Page, cell: Cell) -> Iterator[tuple[str, Value]]:
    yield from (("run", page.title), ("cell", cell.id), ("kind", cell.kind))
    yield from ((f"choice {key}", choice(value)) for key, value in cell.choices.items())
    yield from (("status", cell.status), ("cause", cell.cause), ("pairs", cell.units))
    yield "tokens", cell.tokens
    for name in INTERVALS:
        yield from _ends(name, getattr(cell, name))
    yield from (
        ("c", cell.c),
        ("predicted", cell.predicted),
        ("predicted_timed", cell.predicted_timed),
    )
    yield from (("verdict", cell.verdict), ("verdict_ok", cell.verdict_ok), ("lossy", cell.lossy))
    yield "contended", cell.contended
    for group in page.groups:
        yield from _ends(f"speedup {group}", cell.groups.get(group))
    yield from ((f"seconds per token {name}", value) for name, value in cell.phases.items())
    yield from ((f"accepted at {at}", share) for at, share in enumerate(cell.by_position, 1))
    for part in cell.course:
        yield from _ends(f"accepted in tokens {part.first} to {part.last}", part.rate)


def _ends(name: str, interval: Interval | None) -> Iterator[tuple[str, Value]]:
    yield name, interval.value if interval else None
    yield f"{name} low", interval.low if interval else None
    yield f"{name} high", interval.high if interval else None


def _safe(value: Value) -> str:
    """What a spreadsheet takes for text stays text: an apostrophe goes before what it would compute."""
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    words = one_line(value)
    return f"'{words}" if words.lstrip().startswith(FORMULAS) else words


def _markdown(page: Page) -> Iterator[str]:
    yield f"# {_literal(page.title)}"
    yield _literal(headline(page))
    yield "\n".join(f"- {_literal(line)}" for line in [*facts(page), *page.notes])
    yield _advice(page)
    for table in (settings_table(page), groups_table(page), why_table(page)):
        yield _table(table) if table.rows else ""
    yield _about(page)


def _advice(page: Page) -> str:
    found = [
        f"| {_literal(a.group)} | {_literal(phrase(a.cell)) if a.use else 'do not speculate'} "
        f"| {spoken(a.interval)} |"
        for a in advise(page)
    ]
    return "\n".join(
        ["| group | use | best speed-up |", "| --- | --- | --- |", *found] if found else []
    )


def _table(table: Table) -> str:
    heads = [_literal(column.name) for column in table.columns]
    rule = ["---:" if column.numbers else "---" for column in table.columns]
    lines = [heads, rule, *([_entry(entry) for entry in row.entries] for row in table.rows)]
    written = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{_literal(table.caption)}\n\n{written}"


def _entry(entry: Entry) -> str:
    return " ".join(_literal(word) for word in (entry.words, entry.note, entry.sign) if word)


def _about(page: Page) -> str:
    about = page.about
    facts_: Mapping[str, str] = {
        "command": about.command, "date": about.date, "commit": about.commit, **about.versions,
        **about.hardware, **about.facts,
    }  # fmt: skip
    return "\n".join(
        f"- {_literal(key)}: {_literal(value)}" for key, value in facts_.items() if value
    )


def _literal(words: str) -> str:
    """Text that Markdown shows as it is, in a table as well."""
    for character in "\\`*_[]<>|#~":
        words = words.replace(character, f"\\{character}")
    return one_line(words).replace("&", "&amp;")
