"""The policy. Foredraft opens one session for each batch: ``SteadySession(context, config)``."""

from __future__ import annotations

import math
from collections.abc import Iterable

from foredraft.framework import Context, DraftStep, PolicySession, Round, RowOutcome
from torch import Tensor

from . import SteadyConfig


class SteadySession(PolicySession):
    """One accept rate per row, and nothing shared between rows: a row's text does not depend on
    the batch it runs in."""

    config: SteadyConfig

    def __init__(self, context: Context, config: SteadyConfig) -> None:
        super().__init__(context, config)
        self.rates = [config.prior] * context.rows

    def gammas(self) -> list[int]:
        return [gamma_for(rate, self.config.worth, self.config.longest) for rate in self.rates]

    @property
    def stops(self) -> bool:
        return self.config.sure > 0  # each answer of `go_on` costs a read from the device

    def go_on(self, step: DraftStep) -> Tensor:
        # Of the next token, not the token: that is drawn later, so the output stays exact.
        return step.opinion.amax(-1) >= self.config.sure

    def observe(self, outcome: Round) -> None:
        pairs = zip(self.rates, outcome.rows, strict=True)
        self.rates = [smoothed(rate, verdicts(row), self.config.smoothing) for rate, row in pairs]

    def select(self, rows: list[int]) -> None:
        self.rates = [self.rates[row] for row in rows]


def gamma_for(rate: float, worth: float, longest: int) -> int:
    """The most tokens of which the last still stands with probability ``worth``, if each stands
    with ``rate``: ``rate ** gamma >= worth``. At least 1, or nothing more would be learnt."""
    bounded = min(max(rate, 0.001), 0.999)
    return max(1, min(longest, math.floor(math.log(worth) / math.log(bounded))))


def verdicts(row: RowOutcome) -> list[float]:
    """1 for each drafted position that stood, 0 for one that was reached and did not."""
    reached = len(row.overlaps)  # positions behind the first rejection say nothing
    return [1.0] * row.accepted + [0.0] * (reached - row.accepted)


def smoothed(rate: float, values: Iterable[float], weight: float) -> float:
    """The exponential average after some more values."""
    for value in values:
        rate += weight * (value - rate)
    return rate
