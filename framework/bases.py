"""Bases that keep drafters short: write one method, and the law cannot be misreported."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from .device import upload
from .interfaces import Context, Draft, DraftSession
from .law import DenseLaw, PointMass
from .specs import DETERMINISTIC


class TokenSession(DraftSession):
    """Base for deterministic drafters: write ``continuation`` and nothing else."""

    def __init__(self, context: Context) -> None:
        self.context = context

    @abstractmethod
    def continuation(self, row: int, gamma: int) -> Sequence[int]:
        """At most ``gamma`` tokens that may follow ``context.tokens[row]``."""

    def propose(self, gammas: list[int]) -> Draft:
        chains = [
            list(self.continuation(row, gamma)) if gamma else [] for row, gamma in enumerate(gammas)
        ]
        return point_mass_draft(chains, self.context.device)


class StepSession(DraftSession):
    """Base for autoregressive drafters: write ``next_logits`` and nothing else.

    The base draws each token from the very law it reports, through the requests' own sampling.
    While a round is drafted, ``lengths`` says how many tokens each row drafts in it.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.lengths = [0] * context.rows

    @abstractmethod
    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        """Logits of the next drafted token, ``[batch, vocab]``.

        ``drafted`` holds this round's tokens so far, each ``[batch]`` on the device.
        """

    def drafting(self, position: int) -> list[int]:
        """1 for rows that draft token number ``position`` this round, 0 for rows that are done."""
        return [int(length > position) for length in self.lengths]

    def limits(self, gammas: list[int]) -> list[int]:
        """Hook to draft less than asked, for example past the drafter's own context."""
        return gammas

    def propose(self, gammas: list[int]) -> Draft:
        self.lengths = self.limits(gammas)
        drafted: list[Tensor] = []
        laws: list[Tensor] = []
        for position in range(max(self.lengths)):
            laws.append(self.context.law(self.next_logits(drafted), drafted))
            drafted.append(self.context.draw(laws[-1], position))
        if not drafted:
            return empty_draft(self.context)
        return Draft(torch.stack(drafted, 1), self.lengths, DenseLaw(torch.stack(laws, 1)))


def empty_draft(context: Context) -> Draft:
    """A draft of nothing: the round is a plain step."""
    return point_mass_draft([[] for _ in range(context.rows)], context.device)


def point_mass_draft(chains: Sequence[Sequence[int]], device: torch.device) -> Draft:
    """Packs host-side chains, one per row, into a deterministic draft."""
    lengths = [len(chain) for chain in chains]
    width = max(lengths, default=0)
    padded = [[*chain, *([0] * (width - len(chain)))] for chain in chains]
    packed = torch.tensor(padded, dtype=torch.int64).reshape(len(chains), width)
    tokens = upload(packed, device)
    return Draft(tokens, lengths, PointMass(tokens), drawn=DETERMINISTIC)
