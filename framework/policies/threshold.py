"""Thresholds that follow the accept rate: what ``confidence`` and ``entropy`` stop by."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from ..device import upload
from ..records import DraftStep, Round, RowOutcome
from .rows import LineSession


class ThresholdSession(LineSession):
    """Drafts on while a score of the step reaches the row's threshold.

    The threshold follows the outcomes so that the accept rate stays at ``config.aim`` (Zhang et al.
    2023, "Draft & Verify", arXiv:2309.08168, section 3.3, and the authors' code): up by
    ``config.step`` where the smoothed rate is below it; down where it is not, unless the draft was
    as long as may be, for then the threshold did not end it. ``step`` 0 keeps it where it is.

    It is kept in plain numbers: a round of a few rows is short, and operations on arrays are not.

    Attributes:
        thresholds, rates: of each line.
        limits: ``[batch]`` on the device, the thresholds of this round.
    """

    limits: Tensor

    @abstractmethod
    def score(self, step: DraftStep) -> Tensor | None:
        """How promising the next token is, ``[batch]``; None where nothing is known yet."""

    def open(self, lines: int) -> None:
        self.thresholds = [float(self.config.threshold)] * lines
        self.rates = [float(self.config.aim)] * lines

    def gammas(self) -> list[int]:
        values = [self.thresholds[line] for line in self.lines.tolist()]
        self.limits = upload(torch.tensor(values, dtype=torch.float64), self.context.device)
        return [self.config.max_gamma] * self.context.rows

    def go_on(self, step: DraftStep) -> Tensor:
        score = self.score(step)
        return (
            torch.ones_like(self.limits, dtype=torch.bool) if score is None else self._above(score)
        )

    def _above(self, score: Tensor) -> Tensor:
        return score >= self.limits

    def observe(self, outcome: Round) -> None:
        told: dict[int, list[RowOutcome]] = {}
        for line, row in zip(self.lines.tolist(), outcome.rows, strict=True):
            if row.drafted:
                told.setdefault(line, []).append(row)
        for line, rows in told.items():
            self._follow(line, rows)

    def _follow(self, line: int, rows: list[RowOutcome]) -> None:
        """Moves a line's threshold after a round in which these rows drafted."""
        config, drafted = self.config, sum(len(row.drafted) for row in rows)
        rate, kept = sum(row.accepted for row in rows) / drafted, config.rate_smoothing
        self.rates[line] = kept * self.rates[line] + (1 - kept) * rate
        if self.rates[line] < config.aim:
            self.move(line, 1)
        elif drafted < config.max_gamma * sum(bool(row.overlaps) for row in rows):
            self.move(line, -1)

    def move(self, line: int, sign: int) -> None:
        """Moves a threshold a step up or down, smoothed as the paper does: the mean of the old value
        and of the one a whole step away."""
        moved = self.thresholds[line] + (1 - self.config.smoothing) * self.config.step * sign
        self.thresholds[line] = min(max(moved, 0.0), 1.0)
