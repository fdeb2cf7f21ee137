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
from .rows import Counts, Floats

SPREAD = 0.5  # of a round's tokens, over their mean, before there are rounds to tell it


class Bandit(GammaPolicy):
    """Arms are gammas, or members of ``drafter=one_of``."""

    keeps_apart = True

    def __init__(self, config: BanditConfig) -> None:
        self.config = config

    def start(self, context: Context) -> BanditSession:
        return BanditSession(context, self.config)


class BanditSession(PolicySession):
    """One state for all rows; in a replay whose rows are runs of their own, a line of it for each.

    Every arm is played once, from the first on, before any is compared.
    """

    def __init__(self, context: Context, config: BanditConfig) -> None:
        super().__init__(context, config)
        self.over_drafters = config.over == DRAFTERS
        self.arms = [config.gamma] * config.members if self.over_drafters else list(config.arms)
        self.apart = context.apart
        shape = (context.rows if self.apart else 1, len(self.arms))
        self.plays, self.rows = np.zeros(shape), np.zeros(shape)
        self.tokens, self.squares, self.seconds = (np.zeros(shape) for _ in range(3))
        self.lines = np.arange(shape[0])
        self.draws = np.random.default_rng(config.seed)
        self.arm = np.zeros(shape[0], dtype=np.int64)

    def gammas(self) -> list[int]:
        self.arm = self._choose()
        chosen = np.array(self.arms)[self.arm]
        gammas: list[int] = np.broadcast_to(chosen, (self.context.rows,)).tolist()
        return gammas

    def member(self) -> int | None:
        return int(self.arm[0]) if self.over_drafters else None

    def observe(self, outcome: Round) -> None:
        if not outcome.rows:
            return
        seconds = self._seconds(outcome)
        keep, lines, arm = math.exp(-1 / self.config.memory), self.lines, self.arm
        for kept in (self.plays, self.rows, self.tokens, self.squares, self.seconds):
            kept *= keep
        emitted = np.array([len(row.emitted) for row in outcome.rows], dtype=np.float64)
        each = emitted[None] if not self.apart else emitted[:, None]
        self.plays[lines, arm] += 1
        self.rows[lines, arm] += each.shape[1]
        self.tokens[lines, arm] += each.sum(1)
        self.squares[lines, arm] += (each**2).sum(1)
        self.seconds[lines, arm] += seconds

    def select(self, rows: list[int]) -> None:
        if self.apart:
            self.lines, self.arm = self.lines[rows], self.arm[rows]

    @cached_property
    def prices(self) -> Prices:
        """Of the table, for rounds without a clock."""
        return Prices(self.context.times(), max(self.arms))

    def _choose(self) -> Counts:
        plays = self.plays[self.lines]
        untried = plays == 0
        if untried.any():  # all rows have tried the same arms
            first: Counts = untried.argmax(1)
            return first
        tokens, seconds, rows = (x[self.lines] for x in (self.tokens, self.seconds, self.rows))
        rewards = tokens / seconds / (tokens.sum(1) / seconds.sum(1))[:, None]
        doubt = self.config.explore * rewards * self._spread(tokens, rows) / np.sqrt(rows)
        if self.config.algorithm == THOMPSON:
            width = self.draws.standard_normal(len(self.arms))
        else:
            width = np.sqrt(2 * np.log(1 + plays.sum(1)))[:, None]
        best: Counts = np.argmax(rewards + doubt * width, 1)
        return best

    def _spread(self, tokens: Floats, rows: Floats) -> Floats:
        """Standard deviation of a row's tokens per round, over its mean, for each arm."""
        mean = tokens / rows
        variance = np.maximum(self.squares[self.lines] / rows - mean**2, 0) * rows
        spread: Floats = np.sqrt((variance + (SPREAD * mean) ** 2) / (rows + 1)) / mean
        return spread

    def _seconds(self, outcome: Round) -> Floats | float:
        """What the round took, by the clock or by the table."""
        clock = sum(outcome.seconds.values())
        return clock if clock > 0 and not self.config.frozen else self._by_table(outcome)

    def _by_table(self, outcome: Round) -> Floats:
        pairs = zip(self.context.tokens, outcome.rows, strict=True)
        contexts = np.array([len(row) - len(one.emitted) - 1 for row, one in pairs])
        asked = np.array([row.gamma for row in outcome.rows])
        width = np.array([len(row.drafted) for row in outcome.rows])
        if not self.apart:  # the longest and the widest row set the price
            contexts, asked, width = (x.max(keepdims=True) for x in (contexts, asked, width))
        asked = np.minimum(asked, self.prices.most)
        batch = 1 if self.apart else len(outcome.rows)
        kinds, places = np.unique(contexts // BUCKET, return_inverse=True)
        tables = [self.prices.of(batch, int(kind)) for kind in kinds]
        verify, draft = (np.stack(each) for each in zip(*tables, strict=True))
        seconds: Floats = verify[places, np.minimum(width, asked)] + draft[places, asked]
        return seconds
