"""Draft laws: the distribution that each drafted token was drawn from.

A law answers the three questions a verification rule asks (probability of a token, overlap with
the target's law, residual) and nothing else, so that a point mass never has to be written out
over the vocabulary.

Shapes: ``batch`` rows, ``width`` drafted positions, ``vocab`` target ids.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class DraftLaw(ABC):
    """The law of a chain of drafted tokens."""

    @abstractmethod
    def prob(self, tokens: Tensor) -> Tensor:
        """Probability of each drafted token. ``tokens [batch, width]`` -> ``[batch, width]``."""

    @abstractmethod
    def overlap(self, target_probs: Tensor) -> Tensor:
        """``sum(min(target, draft))`` per position, the acceptance rate beta (Leviathan et al. 2023,
        Theorem 3.5). ``target_probs [batch, width, vocab]`` -> ``[batch, width]``."""

    @abstractmethod
    def residual(self, target_row: Tensor, position: Tensor) -> Tensor:
        """``max(0, target - draft)``, not normalised, at one position of each row.

        ``target_row [batch, vocab]`` is the target's law there; ``position [batch]`` is the index
        of the rejected token. Returns ``[batch, vocab]``.
        """

    @abstractmethod
    def valid(self, tokens: Tensor) -> Tensor:
        """True where the law is a law and could have drawn the token. ``-> [batch, width]``."""


class DenseLaw(DraftLaw):
    """A law written out over the whole vocabulary: ``probs [batch, width, vocab]``."""

    def __init__(self, probs: Tensor) -> None:
        self.probs = probs

    def prob(self, tokens: Tensor) -> Tensor:
        return self.probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)

    def overlap(self, target_probs: Tensor) -> Tensor:
        return torch.minimum(target_probs, self.probs).sum(-1)

    def residual(self, target_row: Tensor, position: Tensor) -> Tensor:
        index = position.view(-1, 1, 1).expand(-1, 1, self.probs.shape[-1])
        return (target_row - self.probs.gather(1, index).squeeze(1)).clamp_(min=0)

    def valid(self, tokens: Tensor) -> Tensor:
        # Written so that NaN compares false: a sum or a probability that is NaN is not a law.
        is_law = ((self.probs.sum(-1) - 1).abs() < 1e-3) & (self.probs >= 0).all(-1)
        return is_law & (self.prob(tokens) > 0)


class PointMass(DraftLaw):
    """Deterministic drafts: all mass on the drafted token, ``tokens [batch, width]``."""

    def __init__(self, tokens: Tensor) -> None:
        self.tokens = tokens

    def prob(self, tokens: Tensor) -> Tensor:
        return (tokens == self.tokens).double()

    def overlap(self, target_probs: Tensor) -> Tensor:
        return target_probs.gather(-1, self.tokens.unsqueeze(-1)).squeeze(-1)

    def residual(self, target_row: Tensor, position: Tensor) -> Tensor:
        return target_row.scatter(-1, self.tokens.gather(1, position.unsqueeze(1)), 0.0)

    def valid(self, tokens: Tensor) -> Tensor:
        return tokens == self.tokens
