"""Stop before a token about which the drafter is undecided (AdaEDL)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..records import DraftStep
from .threshold import ThresholdSession


class EntropySession(ThresholdSession):
    """Ends a draft before a token whose law has a high entropy H: when
    ``1 - sqrt(weight H)``, a lower bound of its acceptance, is below the threshold (Agrawal et
    al. 2024, "AdaEDL", arXiv:2410.18351). H in nats."""

    def score(self, step: DraftStep) -> Tensor:
        entropy = torch.special.entr(step.law).sum(-1)
        return 1 - (self.config.weight * entropy).sqrt()
