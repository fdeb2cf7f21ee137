"""Thresholds that follow the accept rate: what ``confidence`` and ``entropy`` stop by."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor

from ..device import upload
from ..records import DraftStep
from .rows import Outcomes, RowPolicySession


class ThresholdSession(RowPolicySession):
    """Drafts on while a score of the step reaches the row's threshold.

    The threshold follows the outcomes so that the accept rate stays at ``config.aim`` (Zhang et al.
    2023, "Draft & Verify", arXiv:2309.08168, section 3.3, and the authors' code): up by
    ``config.step`` where the smoothed rate is below it; down where it is not, unless the draft was
    as long as may be, for then the threshold did not end it. ``step`` 0 keeps it where it is.

    Attributes:
        thresholds, rates: ``[lines]``.
        limits: ``[batch]`` on the device, the thresholds of this round.
    """

    most = 1  # of the positions, only the number of rows that drafted is of interest
    limits: Tensor

    @abstractmethod
    def score(self, step: DraftStep) -> Tensor | None:
        """How promising the next token is, ``[batch]``; None where nothing is known yet."""

    def open(self, lines: int) -> None:
        self.thresholds = np.full(lines, float(self.config.threshold))
        self.rates = np.full(lines, float(self.config.aim))

    def gammas(self) -> list[int]:
        values = torch.from_numpy(self.thresholds[self.lines])
        self.limits = upload(values, self.context.device)
        return [self.config.max_gamma] * self.context.rows

    def go_on(self, step: DraftStep) -> Tensor:
        score = self.score(step)
        return (
            torch.ones_like(self.limits, dtype=torch.bool) if score is None else self._above(score)
        )

    def _above(self, score: Tensor) -> Tensor:
        return score >= self.limits

    def learn(self, outcomes: Outcomes) -> None:
        lines, config = outcomes.lines, self.config
        rate = outcomes.accepted / outcomes.drafted
        kept = config.rate_smoothing
        self.rates[lines] = rates = kept * self.rates[lines] + (1 - kept) * rate
        longest = outcomes.drafted >= config.max_gamma * outcomes.reached_at[:, 0]
        self.move(lines, np.where(rates < config.aim, 1, np.where(longest, 0, -1)))

    def move(self, lines: np.ndarray, signs: np.ndarray | int) -> None:
        """Moves thresholds a step up or down, smoothed as the paper does: the mean of the old value
        and of the one a whole step away."""
        by = (1 - self.config.smoothing) * self.config.step * signs
        self.thresholds[lines] = (self.thresholds[lines] + by).clip(0, 1)
