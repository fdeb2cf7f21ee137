"""SpecDec++: stop when a rejection has become likely (Huang et al. 2024, arXiv:2405.19715).

With ``a_i`` the predicted chance that drafted token i is accepted once it is reached, a draft ends
after the token that brings ``1 - prod(a_i)`` above a threshold; the paper shows that the best
policy has this form. Its head reads the drafter's hidden states. This one reads what every drafter
shows: how likely each token was, and how open its law.

A draft ends after a token, never before it for what it was, so the law stays exact.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..context import Context
from ..interfaces import GammaPolicy, PolicySession
from ..records import DraftStep
from .specdecpp_head import Head, features

if TYPE_CHECKING:
    from .specdecpp_config import SpecDecPlusConfig


class SpecDecPlus(GammaPolicy):
    """Holds the head; sessions hold the draft that is being made."""

    stops = True

    def __init__(self, config: SpecDecPlusConfig) -> None:
        self.config = config
        self.head = None if config.path is None else Head.load(config.path)

    def start(self, context: Context) -> SpecDecPlusSession:
        return SpecDecPlusSession(context, self.config, self.head)


class SpecDecPlusSession(PolicySession):
    """Remembers nothing from one round to the next.

    Attributes:
        stands: ``[batch]``, log of the chance that all tokens of this draft so far are accepted.
        before: ``[batch]``, the sum of their log confidences.
        enough: what ``stands`` must not fall below.
    """

    def __init__(
        self, context: Context, config: SpecDecPlusConfig, head: Head | None = None
    ) -> None:
        super().__init__(context, config)
        self.head = None if head is None else head.to(context.device)
        self.newest: DraftStep | None = None
        stands = 1 - config.threshold
        self.enough = math.log(stands) if stands > 0 else -math.inf

    def gammas(self) -> list[int]:
        self.newest = None  # its law was on loan for one round
        return [self.config.max_gamma] * self.context.rows

    def go_on(self, step: DraftStep) -> Tensor:
        if step.position == 0:
            shape = (self.context.rows,)
            self.stands = torch.zeros(shape, dtype=torch.float64, device=self.context.device)
            self.before = self.stands
        else:
            self._take(step.probs[-1], step.position - 1)
        # Its law is computed if the draft goes on, and is looked at then: asking for it now would
        # make the drafter run for a token that may never be drafted.
        self.newest = step
        if step.position < self.config.min_gamma:
            return torch.ones_like(self.stands, dtype=torch.bool)
        return self.stands >= self.enough

    def _take(self, confidence: Tensor, position: int) -> None:
        """Counts the token that was drawn last, of number ``position``."""
        own = confidence.double().clamp_min(torch.finfo(torch.float64).tiny).log()
        if self.head is None:
            self.stands = self.stands + own.clamp_max(0)
            return
        assert self.newest is not None
        entropy = self.newest.entropy.double()
        row = features(confidence.double(), entropy, position, self.before)
        self.stands = self.stands + self.head.log_accept(row)
        self.before = self.before + row[..., 0]
