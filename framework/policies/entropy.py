"""Stop before a token about which the drafter is undecided (AdaEDL)."""

from __future__ import annotations

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
        lines = self.lines.tolist()
        drafting = {line for line, row in zip(lines, outcome.rows, strict=True) if row.drafted}
        asked = {line for line, row in zip(lines, outcome.rows, strict=True) if row.gamma}
        for line in asked - drafting:
            self.move(line, -1)
