"""Arms that are tried and played by what they bring in tokens per second.

BanditSpec (Hou et al. 2025, arXiv:2505.15141) plays UCB over gammas and over whole configurations;
Thompson sampling (Thompson 1933) is the other classic. Here an arm's reward is tokens over seconds,
both summed over its rounds, older ones counting less (discounted UCB: Garivier and Moulines 2011,
arXiv:0805.3415), over that of all arms together.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from ..context import Context
from ..interfaces import GammaPolicy, PolicySession
from ..records import Round
from .builtin_times import DRAFTERS, THOMPSON, BanditConfig
from .prices import BUCKET, Prices
from .rows import Floats

SPREAD = 0.5  # of a round's tokens, over their mean, before there are rounds to tell it


class Bandit(GammaPolicy):
    """Arms are gammas, or members of ``drafter=one_of``."""

    def __init__(self, config: BanditConfig) -> None:
        self.config = config

    def start(self, context: Context) -> BanditSession:
        return BanditSession(context, self.config)


class BanditSession(PolicySession):
    """One state for all rows; every arm is played once, from the first on, before any is compared."""

    def __init__(self, context: Context, config: BanditConfig) -> None:
        super().__init__(context, config)
        self.over_drafters = config.over == DRAFTERS
        self.arms = [config.gamma] * config.members if self.over_drafters else list(config.arms)
        count = len(self.arms)
        self.plays, self.rows = np.zeros(count), np.zeros(count)
        self.tokens, self.squares, self.seconds = np.zeros(count), np.zeros(count), np.zeros(count)
        self.draws = np.random.default_rng(config.seed)
        self.arm = 0

    def gammas(self) -> list[int]:
        self.arm = self._choose()
        return [self.arms[self.arm]] * self.context.rows

    def member(self) -> int | None:
        return self.arm if self.over_drafters else None

    def observe(self, outcome: Round) -> None:
        if not outcome.rows:
            return
        seconds = self._seconds(outcome)
        keep = math.exp(-1 / self.config.memory)
        for kept in (self.plays, self.rows, self.tokens, self.squares, self.seconds):
            kept *= keep
        emitted = [len(row.emitted) for row in outcome.rows]
        self.plays[self.arm] += 1
        self.rows[self.arm] += len(emitted)
        self.tokens[self.arm] += sum(emitted)
        self.squares[self.arm] += sum(n * n for n in emitted)
        self.seconds[self.arm] += seconds

    @cached_property
    def prices(self) -> Prices:
        """Of the table, for rounds without a clock."""
        return Prices(self.context.times(), max(self.arms))

    def _choose(self) -> int:
        untried = np.flatnonzero(self.plays == 0)
        if len(untried):
            return int(untried[0])
        rates = self.tokens / self.seconds
        rewards = rates / (self.tokens.sum() / self.seconds.sum())
        doubt = self.config.explore * rewards * self._spread() / np.sqrt(self.rows)
        if self.config.algorithm == THOMPSON:
            return int(np.argmax(rewards + doubt * self.draws.standard_normal(len(rates))))
        return int(np.argmax(rewards + doubt * math.sqrt(2 * math.log(1 + self.plays.sum()))))

    def _spread(self) -> Floats:
        """Standard deviation of a row's tokens per round, over its mean, for each arm."""
        mean = self.tokens / self.rows
        variance = np.maximum(self.squares / self.rows - mean**2, 0) * self.rows
        presumed = (SPREAD * mean) ** 2
        spread: Floats = np.sqrt((variance + presumed) / (self.rows + 1)) / mean
        return spread

    def _seconds(self, outcome: Round) -> float:
        """What the round took, by the clock or by the table."""
        clock = sum(value for key, value in outcome.seconds.items() if key != "prefill")
        if clock > 0 and not self.config.frozen:
            return clock
        pairs = zip(self.context.tokens, outcome.rows, strict=True)
        longest = max((len(row) - len(one.emitted) - 1 for row, one in pairs), default=0)
        verify, draft = self.prices.of(max(1, len(outcome.rows)), longest // BUCKET)
        asked = min(max((row.gamma for row in outcome.rows), default=0), self.prices.most)
        width = min(max((len(row.drafted) for row in outcome.rows), default=0), asked)
        return float(verify[width] + draft[asked])
