"""Thresholds that follow the accept rate: what ``confidence`` and ``entropy`` stop by."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from ..device import upload
from ..records import DraftStep, RowOutcome
from .rows import RowPolicySession


@dataclass
class Threshold:
    """Drafting stops below ``value``; ``rate`` is the smoothed accept rate, None at first."""

    value: float
    rate: float | None = None


class ThresholdSession(RowPolicySession[Threshold]):
    """Drafts on while a score of the step reaches the row's threshold.

    The threshold moves by ``config.step`` a round so that the accept rate stays at ``config.aim``
    (Zhang et al. 2023, "Draft & Verify", section 3.3): below it, drafting stops earlier; above it,
    later. ``step`` 0 keeps it where it is.
    """

    @abstractmethod
    def score(self, step: DraftStep) -> Tensor | None:
        """How promising the next token is, ``[batch]``; None where nothing is known yet."""

    def new_state(self) -> Threshold:
        return Threshold(self.config.threshold)

    def gammas(self) -> list[int]:
        return [self.config.gamma] * self.context.rows

    def go_on(self, step: DraftStep) -> Tensor:
        score = self.score(step)
        if score is None:
            return torch.ones(self.context.rows, dtype=torch.bool, device=self.context.device)
        limits = torch.tensor([state.value for state in self.states], dtype=torch.float64)
        return score >= upload(limits, score.device)

    def learn(self, state: Threshold, outcomes: list[RowOutcome]) -> None:
        keep = self.config.smoothing
        accepted = sum(row.accepted for row in outcomes)
        rate = accepted / sum(len(row.drafted) for row in outcomes)
        state.rate = rate if state.rate is None else keep * state.rate + (1 - keep) * rate
        step = self.config.step if state.rate < self.config.aim else -self.config.step
        state.value = min(max(state.value + (1 - keep) * step, 0.0), 1.0)
