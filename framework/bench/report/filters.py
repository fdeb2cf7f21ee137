"""What the settings of a page can be filtered by."""

from __future__ import annotations

from .data import Cell, Page
from .words import choice, in_order, label, one_line, settings


def choices(page: Page) -> dict[str, list[str]]:
    """What can be filtered by: keys with more than one value, and few enough to pick from."""
    found: dict[str, list[str]] = {}
    for cell in settings(page):
        for key, value in _picked(cell).items():
            found.setdefault(key, []).append(value)
    unique = {key: in_order(values) for key, values in found.items()}
    return {key: values for key, values in unique.items() if 1 < len(values) <= 20}


def filtering(page: Page) -> list[dict[str, object]]:
    """What the page's script needs to filter: of each cell its words and its choices."""
    return [{"words": _words(cell), "choices": _picked(cell)} for cell in page.cells]


def _picked(cell: Cell) -> dict[str, str]:
    return {one_line(key): choice(value) for key, value in cell.choices.items()}


def _words(cell: Cell) -> str:
    return " ".join([label(cell), one_line(cell.id), cell.status, one_line(cell.verdict)]).lower()
