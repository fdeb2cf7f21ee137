"""Stop before a token about which the drafter is undecided (AdaEDL)."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ..records import DraftStep, Round
from .threshold import ThresholdSession


class EntropySession(ThresholdSession):
    """Ends a draft before a token for which ``1 - sqrt(weight H)`` is below the threshold: a lower
    bound of its acceptance, with H the entropy of the drafter's law in nats (Agrawal et al. 2024,
    "AdaEDL", arXiv:2410.18351, whose update of the threshold is that of "Draft & Verify").

    A row whose every draft ended before its first token would learn nothing more. So a round in
    which it drafts nothing lowers its threshold by a step, until it tries again.
    """

    def score(self, step: DraftStep) -> Tensor:
        weight: float = self.config.weight
        return 1 - (weight * step.entropy).sqrt()

    def observe(self, outcome: Round) -> None:
        super().observe(outcome)
        silent = [at for at, row in enumerate(outcome.rows) if row.gamma and not row.drafted]
        drafting = {int(self.lines[at]) for at, row in enumerate(outcome.rows) if row.drafted}
        lines = {int(self.lines[at]) for at in silent} - drafting
        if lines:
            self.move(np.array(sorted(lines)), -1)
