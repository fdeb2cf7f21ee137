"""Answers round by round: what was accepted, what was rejected, what the target added itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .data import Answer, Page, Round, Token
from .words import clean, count, cut, label, number, one_line

ACCEPTED, REJECTED, OWN = "accepted", "rejected", "own"
MEANS = {
    ACCEPTED: "accepted draft",
    REJECTED: "rejected draft",
    OWN: "the target's own token",
}
# What a page shows of an answer: more would be slow to open, and nobody reads it.
MOST_ROUNDS, LONGEST_TOKEN, LONGEST_PROMPT = 400, 120, 4000


@dataclass(frozen=True)
class Piece:
    """A token: ``kind`` says what became of it, ``says`` what is known of it."""

    kind: str
    words: str
    says: str


@dataclass(frozen=True)
class Trace:
    """An answer for the page; ``missing`` says how much of it is left out."""

    name: str
    group: str
    prompt: str
    rounds: Sequence[Sequence[Piece]]
    summary: str
    missing: str


def traces(page: Page) -> list[Trace]:
    """The page's answers."""
    names = {cell.id: label(cell) for cell in page.cells}
    return [
        _trace(answer, names.get(answer.cell, one_line(answer.cell))) for answer in page.answers
    ]


def _trace(answer: Answer, name: str) -> Trace:
    more = len(answer.rounds) - MOST_ROUNDS
    return Trace(
        name,
        one_line(answer.group),
        clean(cut(answer.prompt, LONGEST_PROMPT)),
        [list(_pieces(found)) for found in answer.rounds[:MOST_ROUNDS]],
        _summary(answer.rounds),
        f"{count(more, 'more round')} not shown" if more > 0 else "",
    )


def _pieces(found: Round) -> Iterator[Piece]:
    for kind, tokens in ((ACCEPTED, found.accepted), (REJECTED, found.rejected), (OWN, found.own)):
        for token in tokens:
            yield Piece(kind, shown(token.text), _says(kind, token))


def shown(text: str) -> str:
    """A token's text: white space visible, and a line feed still a line feed."""
    return one_line(cut(text, LONGEST_TOKEN)).replace("⏎", "⏎\n")


def _says(kind: str, token: Token) -> str:
    found = (
        ("drafter", token.draft_prob),
        ("target", token.target_prob),
        ("chance of acceptance", token.accept_prob),
    )
    figures = [f"{name} {number(value, 3)}" for name, value in found if value is not None]
    return "; ".join([MEANS[kind], *figures])


def _summary(rounds: Sequence[Round]) -> str:
    accepted = sum(len(found.accepted) for found in rounds)
    rejected = sum(len(found.rejected) for found in rounds)
    own = sum(len(found.own) for found in rounds)
    if not rounds:
        return "no rounds"
    tokens = accepted + own
    return (
        f"{count(tokens, 'token')} in {count(len(rounds), 'round')}, {tokens / len(rounds):.2f} a round: "
        f"{accepted:,} accepted, {own:,} the target's own; {rejected:,} rejected"
    )
