"""A batch run through the real loop, and what can be read off it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch

from ....decoding import Batch, Parts
from ....records import Round
from ....requests import Answer
from .spies import Proposal, Sheet


@dataclass(frozen=True)
class Run:
    """What came of a batch.

    Args:
        answers: per row.
        proposals: every draft, in order.
        rounds: every outcome.
    """

    answers: list[Answer]
    proposals: list[Proposal]
    rounds: list[Round]

    @property
    def ids(self) -> list[list[int]]:
        """The answers' tokens."""
        return [answer.token_ids for answer in self.answers]

    def drafts_of(self, place: int) -> dict[int, Sheet]:
        """A row's drafts by their rounds."""
        found = {proposal.round: proposal.sheets() for proposal in self.proposals}
        return {index: sheets[place] for index, sheets in found.items() if place in sheets}

    def differs(self, other: Run, places: Sequence[int], rounding: float = 0.0) -> str:
        """How some of the rows went another way in another run, in words."""
        for place in places:
            ours, theirs = self.drafts_of(place), other.drafts_of(place)
            same = self.alike(other, place)
            for index in sorted(set(ours) | set(theirs)):
                if rounding and index > same:
                    break  # laws that differ by rounding drew other tokens: not the same text
                if index not in ours or index not in theirs:
                    return f"row {place} drafted in round {index} in one of the two only"
                difference = ours[index].differs(theirs[index], rounding)
                if difference:
                    return f"row {place}, round {index}: {difference}"
        return ""

    def emitted(self, place: int) -> list[list[int]]:
        """What each round of a row committed."""
        return [row.emitted for one in self.rounds for row in one.rows if row.request == place]

    def alike(self, other: Run, place: int) -> int:
        """The last round up to which a row's text is the same as in another run."""
        pairs = zip(self.emitted(place), other.emitted(place), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def stepped(parts: Parts, answers: list[Answer], rounds: int | None) -> Iterator[Round]:
    """``decode``, but for a number of rounds at most."""
    with torch.inference_mode():
        batch = Batch(parts, answers)
    while batch.answers and (rounds is None or batch.context.round_index < rounds):
        with torch.inference_mode():
            outcome = batch.step()
        yield outcome
