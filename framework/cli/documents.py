"""Texts to count n-grams of: plain files and JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..errors import InputError
from .prompts import read_object, read_text

FIELDS = ("text", "prompt", "turns")


def read_documents(paths: Sequence[str]) -> list[str]:
    """The documents of all files: a text is one, a line of ``.jsonl`` is one."""
    found = [document for path in paths for document in _documents(path)]
    if not any(document.strip() for document in found):
        raise InputError(f"there is no text to fit in {', '.join(paths)}.")
    return found


def _documents(path: str) -> Iterator[str]:
    text = read_text(path, "text")
    if not path.endswith(".jsonl"):
        yield text
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"line {number} of {path}"
            yield _text(read_object(line, where), where)


def _text(value: dict[str, Any], where: str) -> str:
    field = next((name for name in FIELDS if name in value), None)
    if field is None:
        raise InputError(f"{where} must have one of {', '.join(FIELDS)}.")
    texts = value[field] if field == "turns" else [value[field]]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{where}: {field} is not text.")
    return "\n\n".join(texts)
