"""Writes the files of a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...files import written_whole
from .data import Page
from .flat import csv_text, markdown
from .html import render


def write_report(pages: Sequence[Page], folder: str | Path) -> list[Path]:
    """Writes ``report.html``, ``summary.md`` and ``summary.csv``, each whole or not at all.

    Args:
        pages: one run, or several to be shown side by side.
        folder: where to; it is there.

    Returns:
        The three paths, ``report.html`` first.

    Raises:
        InputError: a file cannot be written.
    """
    texts = {
        "report.html": render(pages), "summary.md": markdown(pages), "summary.csv": csv_text(pages)
    }  # fmt: skip
    return [_write(Path(folder) / name, text) for name, text in texts.items()]


def _write(path: Path, text: str) -> Path:
    with written_whole(path) as partial:
        partial.write_bytes(text.encode("utf-8", "replace"))
    return path
