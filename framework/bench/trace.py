"""The paper's Figure 1: an answer in three colours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.text import Text

from ..records import Round, RowOutcome

ACCEPTED, REJECTED, CORRECTION = "green", "red strike", "bold cyan"


def trace(rounds: Iterable[Round], tokenizer: Any) -> Text:
    """One line per round: accepted drafts, the rejected draft, the target's own token.

    Batches are not traced apart: each round has to hold one row.
    """
    text = Text()
    for outcome in rounds:
        text.append_text(_line(outcome.rows[0], tokenizer))
        text.append("\n")
    return text


def legend() -> Text:
    """What the colours mean."""
    text = Text()
    for word, style in (
        ("accepted draft", ACCEPTED),
        ("rejected draft", REJECTED),
        ("target's own", CORRECTION),
    ):
        text.append(word, style=style)
        text.append("   ")
    return text


def _line(row: RowOutcome, tokenizer: Any) -> Text:
    line = Text()
    for token in row.emitted[: row.accepted]:
        line.append(_shown(tokenizer.decode([token])), style=ACCEPTED)
    for token in row.rejected:
        line.append(_shown(tokenizer.decode([token])), style=REJECTED)
    for token in row.emitted[row.accepted :]:
        line.append(_shown(tokenizer.decode([token])), style=CORRECTION)
    return line


def _shown(piece: str) -> str:
    """A token on one line: white space made visible, control characters never sent to a terminal."""
    piece = piece.replace("\n", "\u23ce").replace("\t", "\u21e5")
    return "".join(c if c.isprintable() or c == "\ufffd" else "\u00b7" for c in piece)
