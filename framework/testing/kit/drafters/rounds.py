"""A batch run through the real loop, and what can be read off it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
            for index in sorted(set(ours) | set(theirs)):
                if index not in ours or index not in theirs:
                    return f"row {place} drafted in round {index} in one of the two only"
                difference = ours[index].differs(theirs[index], rounding)
                if difference:
                    return f"row {place}, round {index}: {difference}"
                if ours[index].tokens != theirs[index].tokens:
                    break  # by rounding: from here on, the texts are not the same
        return ""


def stepped(parts: Parts, answers: list[Answer], rounds: int | None) -> Iterator[Round]:
    """``decode``, but for a number of rounds at most."""
    with torch.inference_mode():
        batch = Batch(parts, answers)
    while batch.answers and (rounds is None or batch.context.round_index < rounds):
        with torch.inference_mode():
            outcome = batch.step()
        yield outcome
