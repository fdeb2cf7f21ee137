"""What a drafter thinks of the next token, made when a policy asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from .law import shannon

LEAST = -80.0
"""Of a logit below the largest one: what is less likely has no share in an entropy, but 0 times infinity would."""


@dataclass
class Opinion:
    """How likely it finds each token: the law; but for greedy rows, whose law is certain whatever the drafter
    thinks, its logits at temperature 1.

    Args:
        law: ``[batch, vocab]``.
        logits: ``[batch, vocab]``, where rows are greedy.
        greedy: ``[batch]`` bool, which these are; None: all, if there are logits.
    """

    law: Tensor
    logits: Tensor | None = None
    greedy: Tensor | None = None

    @cached_property
    def probs(self) -> Tensor:
        """``[batch, vocab]``."""
        if self.logits is None:
            return self.law
        plain = self.logits.softmax(-1)
        return plain if self.greedy is None else plain.where(self.greedy.unsqueeze(1), self.law)

    @cached_property
    def entropy(self) -> Tensor:
        """``[batch]``, in nats."""
        if self.logits is None:
            return shannon(self.law)
        below, masses, total = self._softened
        dots = (masses.unsqueeze(1) @ below.unsqueeze(2)).view(-1)
        plain: Tensor = total.log() - dots / total
        return plain if self.greedy is None else plain.where(self.greedy, shannon(self.law))

    def prob(self, token: Tensor) -> Tensor:
        """Of the token of each row. ``[batch] -> [batch]``."""
        own = self.law.gather(1, token.unsqueeze(1)).squeeze(1)
        if self.logits is None:
            return own
        logit = self.logits.gather(1, token.unsqueeze(1))
        plain: Tensor = (logit - self._top).exp().squeeze(1) / self._softened[2]
        return plain if self.greedy is None else plain.where(self.greedy, own)

    @cached_property
    def _top(self) -> Tensor:
        assert self.logits is not None
        return self.logits.amax(-1, keepdim=True)

    @cached_property
    def _softened(self) -> tuple[Tensor, Tensor, Tensor]:
        """Logits below the largest, what each weighs, and the sum: all that is asked for, without a softmax, which
        over a large vocabulary takes as long as all else that a policy does."""
        assert self.logits is not None
        below = (self.logits - self._top).clamp_min_(LEAST)
        # numpy's exp takes a fifth of the time of torch's.
        masses = torch.from_numpy(np.exp(below.numpy())) if below.is_cpu else below.exp()
        return below, masses, masses.sum(-1)
