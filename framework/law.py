"""Draft laws: the distribution that each drafted token was drawn from.

A law answers the questions a verification rule asks (probability of a token, residual, overlap)
and nothing else, so that a point mass never has to be written out over the vocabulary.

Shapes: ``batch`` rows, ``width`` drafted nodes, ``places`` nodes that are asked about (all of
them, in order, where ``nodes`` is None), ``vocab`` target ids. Children of one node were drawn
from one law: asking at any of them gives the same answer, except for point masses, which are
each their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from .errors import PluginFault


def shannon(probs: Tensor) -> Tensor:
    """The entropy of laws ``[..., vocab]`` in nats, ``[...]``."""
    logs = probs.clamp_min(torch.finfo(probs.dtype).tiny)  # the logarithm of 0 times 0 would be NaN
    if logs.is_cpu and logs.dtype in (torch.float32, torch.float64):
        np.log(logs.numpy(), out=logs.numpy())  # half the time of torch's
    else:
        logs.log_()
    entropy: Tensor = -torch.linalg.vecdot(probs, logs)
    return entropy


class DraftLaw(ABC):
    """The laws of a draft's nodes."""

    @abstractmethod
    def prob(self, tokens: Tensor) -> Tensor:
        """Probability of each drafted token. ``tokens [batch, width]`` -> ``[batch, width]``."""

    @abstractmethod
    def residual(self, target_rows: Tensor, nodes: Tensor | None = None) -> Tensor:
        """``max(0, target - draft)``, not normalised.

        ``target_rows [batch, places, vocab]``: what to take the draft's law from; ``nodes
        [batch, places]``. Returns ``[batch, places, vocab]``.
        """

    @abstractmethod
    def valid(self, tokens: Tensor) -> Tensor:
        """True where the law is a law and could have drawn the token. ``-> [batch, width]``."""

    @abstractmethod
    def rows(self, nodes: Tensor | None = None) -> Tensor:
        """The laws written out: ``[batch, places, vocab]``.

        Raises:
            PluginFault: for a point mass, which is not.
        """

    def entropy(self) -> Tensor:
        """Of the law of every node, in nats: ``[batch, width]``."""
        return shannon(self.rows())

    def overlap(self, target_rows: Tensor, nodes: Tensor | None = None) -> Tensor:
        """``sum(min(target, draft))``, the acceptance rate beta (Leviathan et al. 2023,
        Theorem 3.5). ``target_rows [batch, places, vocab]`` -> ``[batch, places]``."""
        return torch.minimum(target_rows, self.rows(nodes)).sum(-1)


class DenseLaw(DraftLaw):
    """Laws written out over the whole vocabulary.

    Args:
        probs: ``[batch, laws, vocab]``.
        index: ``[batch, width]``, which of the laws each node was drawn from; None: one each.
    """

    def __init__(self, probs: Tensor, index: Tensor | None = None) -> None:
        self.probs, self.index = probs.contiguous(), index  # rows are read by flat index

    def prob(self, tokens: Tensor) -> Tensor:
        if self.index is None:
            return self.probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        vocab = self.probs.shape[-1]  # one flat gather: laws are not copied per node
        return self.probs.flatten(1).gather(1, self.index * vocab + tokens)

    def residual(self, target_rows: Tensor, nodes: Tensor | None = None) -> Tensor:
        return (target_rows - self.rows(nodes)).clamp_(min=0)

    def valid(self, tokens: Tensor) -> Tensor:
        # Written so that NaN compares false: a sum or a probability that is NaN is not a law.
        is_law = ((self.probs.sum(-1) - 1).abs() < 1e-3) & (self.probs >= 0).all(-1)
        if self.index is not None:
            is_law = is_law.gather(1, self.index)
        return is_law & (self.prob(tokens) > 0)

    def rows(self, nodes: Tensor | None = None) -> Tensor:
        if nodes is None and self.index is None:
            return self.probs
        laws = self.index if nodes is None else nodes
        if self.index is not None and nodes is not None:
            laws = self.index.gather(1, nodes)
        assert laws is not None
        first = torch.arange(len(laws), device=laws.device).unsqueeze(1) * self.probs.shape[1]
        flat = self.probs.flatten(0, 1).index_select(0, (first + laws).flatten())
        return flat.view(*laws.shape, self.probs.shape[-1])


class PointMass(DraftLaw):
    """Deterministic drafts: all mass on the drafted token, ``tokens [batch, width]``."""

    def __init__(self, tokens: Tensor) -> None:
        self.tokens = tokens

    def prob(self, tokens: Tensor) -> Tensor:
        return (tokens == self.tokens).double()

    def residual(self, target_rows: Tensor, nodes: Tensor | None = None) -> Tensor:
        at = self._at(nodes)
        left = (target_rows.gather(-1, at) - 1).clamp_(min=0)  # above 0 only for scaled targets
        return target_rows.scatter(-1, at, left)

    def valid(self, tokens: Tensor) -> Tensor:
        return tokens == self.tokens

    def rows(self, nodes: Tensor | None = None) -> Tensor:
        raise PluginFault(
            "a PointMass cannot be written out over the vocabulary; a rule that judges chosen tokens "
            "asks it for prob, residual or overlap, one that cannot leaves 'deterministic' out of "
            "chains and trees."
        )

    def entropy(self) -> Tensor:
        return torch.zeros_like(self.tokens, dtype=torch.float64)

    def overlap(self, target_rows: Tensor, nodes: Tensor | None = None) -> Tensor:
        return target_rows.gather(-1, self._at(nodes)).squeeze(-1)

    def _at(self, nodes: Tensor | None) -> Tensor:
        tokens = self.tokens if nodes is None else self.tokens.gather(1, nodes)
        return tokens.unsqueeze(-1)
