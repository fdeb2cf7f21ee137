"""Which verdicts are due: on cells without one, and on cells that have answered more prompts since.

A verdict by ids (``same``, ``near-tie``) is on the answers that there were when it was given, and says how
many; a sweep that goes on has more of them. One that looked at rounds, or found a fault, stands.
Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

SAME, NEAR_TIE, DIFFERENT = "same", "near-tie", "different"
AUDITED, FAULTY, LOSSY, UNKNOWN = "audited", "faulty", "lossy", "unknown"
BY_IDS = (SAME, NEAR_TIE)
WRONG = (DIFFERENT, FAULTY)
Pair = list[Any]  # prompt, the cell's ids, plain decoding's ids
Message = dict[str, Any]


def due(
    cells: Sequence[Message], records: Iterable[Message], verdicts: Mapping[str, Message]
) -> Iterator[tuple[str, list[Pair]]]:
    """The cells whose verdict is missing or out of date, and what it is to be on."""
    answers = _answers(records)
    for cell in cells:
        mine, plain = answers.get(cell["id"], {}), answers.get(cell["baseline"], {})
        pairs = [[prompt, mine[prompt], plain[prompt]] for prompt in mine if prompt in plain]
        if cell["baseline"] and mine and not stands(verdicts.get(cell["id"]), len(pairs)):
            yield cell["id"], pairs


def stands(verdict: Message | None, answers: int) -> bool:
    """Whether a verdict need not be given anew."""
    if verdict is None or verdict["verdict"] == UNKNOWN:
        return False
    return verdict["verdict"] not in BY_IDS or verdict.get("answers", answers) >= answers


def better(verdict: Message, known: Message | None) -> bool:
    """Whether a verdict from elsewhere takes the place of the one that is known."""
    if known is None or known["verdict"] == UNKNOWN:
        return True
    return verdict["verdict"] != UNKNOWN and not stands(known, verdict.get("answers", 0))


def wrong(verdicts: Mapping[str, Mapping[str, Any]]) -> set[str]:
    """Cells whose output is not the target's."""
    return {cell for cell, verdict in verdicts.items() if verdict.get("verdict") in WRONG}


def _answers(records: Iterable[Message]) -> dict[str, dict[int, list[int]]]:
    """Ids by cell and prompt. Repeats say the same, because each prompt has its seed."""
    found: dict[str, dict[int, list[int]]] = {}
    for record in records:
        for row in record["rows"]:
            found.setdefault(record["cell"], {}).setdefault(row["prompt"], row["ids"])
    return found
