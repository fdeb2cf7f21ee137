"""What a policy that aims at tokens per second reckons of a single text, or of rows that share one state.

The sums are those of ``acceptance.py`` and ``timed.py``, of one line and in plain numbers: a round of a small
model is so short that a hundred operations on arrays of sixteen numbers are seconds lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..records import RowOutcome
from .acceptance import FAST, LEAST, MOST

NONE = -1


@dataclass(frozen=True)
class Worth:
    """Expected tokens and seconds of each gamma from 0 on, and the best one."""

    tokens: list[float]
    seconds: list[float]
    best: int

    @property
    def rate(self) -> float:
        """Of the best gamma, tokens per second."""
        return self.tokens[self.best] / self.seconds[self.best]

    def loss(self, gamma: int) -> float:
        """Seconds that it takes longer than the best for the tokens it brings."""
        return self.seconds[gamma] - self.tokens[gamma] / self.rate


class Single:
    """One line of state.

    Args:
        config: ``max_gamma``, ``memory``, ``prior``, ``alpha`` and ``probe`` as in ``TimedConfig``.
    """

    def __init__(self, config: Any) -> None:
        self.config, self.most = config, config.max_gamma
        self.hits, self.reached, self.asked, self.given = ([0.0] * self.most for _ in range(4))
        self.recent = self.expected = self.lead = self.stood = self.promised = self.saved = 0.0
        self._forgets = math.exp(-1 / config.memory)
        self._slow = self._rates()

    def hear(self, rows: Sequence[RowOutcome]) -> None:
        """Takes in what a round's drafts showed."""
        judged, accepted, overlaps = [0] * self.most, 0, [0.0] * self.most
        for row in rows:
            accepted += min(row.accepted, self.most)
            for place, overlap in enumerate(row.overlaps[: self.most]):
                judged[place] += 1
                overlaps[place] += overlap
        if judged[0]:
            self._learn(judged, accepted, overlaps)

    def hear_lengths(self, asked: Sequence[int], given: Sequence[int]) -> None:
        """Takes in how many tokens each row was asked for, and how many of them it drafted."""
        for mine, lengths in ((self.asked, asked), (self.given, given)):
            for place in range(self.most):
                mine[place] *= self._forgets
            for length in lengths:
                for place in range(length):
                    mine[place] += 1

    def worth(self, verify: Sequence[float], draft: Sequence[float], rows: int) -> Worth:
        """What each gamma is worth at these seconds, of verifying and of drafting so many tokens.

        Args:
            rows: that are verified together; the widest of them sets the width.
        """
        prior, stands = self.config.prior, self.stands()
        tokens, steps = [1.0], verify[0]
        seconds, best, most = [steps + draft[0]], 0, 1 / (steps + draft[0])
        for place in range(self.most):
            given = (self.given[place] + prior) / (self.asked[place] + prior)
            wide = given if rows == 1 else 1 - (1 - given) ** rows
            steps += wide * (verify[place + 1] - verify[place])
            tokens.append(tokens[-1] + given * stands[place])
            seconds.append(steps + draft[place + 1])
            if tokens[-1] / seconds[-1] > most:
                best, most = place + 1, tokens[-1] / seconds[-1]
        return Worth(tokens, seconds, best)

    def stands(self) -> list[float]:
        """The chance that the token at each position, if all are drafted up to there, is accepted with all
        before it."""
        prior = 4 * self.config.prior
        rule, factor = (self.stood + prior) / (self.promised + prior), self._factor()
        trust = 1 / (
            1 + math.exp(-min(max(self.lead, -30), 30))
        )  # beyond 30 nothing is left to doubt
        slow = fast = 1.0
        found = []
        for rate in self._slow:
            usual = _rate(rate * rule)
            slow *= usual
            fast *= _rate(usual * factor)
            found.append(trust * fast + (1 - trust) * slow)
        return found

    def unknown(self, best: int) -> int:
        """The next gamma above the best where little is known of it, else ``NONE``."""
        known = best > 0 and self.reached[min(best, self.most - 1)] >= self.config.prior
        return NONE if known or best == self.most else best + 1

    def probing(self, worth: Worth, trial: int) -> int:
        """The best gamma, or ``trial`` where that has been saved up for."""
        seconds = worth.seconds[worth.best]
        loss = worth.loss(trial) if trial != NONE else 0.0
        budget = self.saved + self.config.probe * seconds
        go = trial != NONE and loss <= budget and self.config.probe > 0
        # Saving for ever would end in a long row of probes.
        self.saved = budget - loss if go else min(budget, max(2 * seconds, loss))
        return trial if go else worth.best

    def _learn(self, judged: list[int], accepted: int, overlaps: list[float]) -> None:
        # Memory is of tokens of one row, however many rows tell about the line.
        weight, memory = 1 / math.sqrt(judged[0]), self.config.memory
        keep = math.exp(-sum(judged) * weight * weight / memory)
        found, factor = sum(overlaps) * weight, self._factor()
        gain = expected = 0.0
        for place, count in enumerate(judged):
            if not count:
                break
            reached, overlap = count * weight, overlaps[place] * weight
            still = math.exp(-reached * weight / memory)
            gain += _gain(self._slow[place], factor, reached, overlap)
            expected += reached * self._slow[place]
            self.hits[place] = self.hits[place] * still + overlap
            self.reached[place] = self.reached[place] * still + reached
        self.lead = self.lead * keep + gain
        self.stood = self.stood * keep + accepted * weight
        self.promised = self.promised * keep + found
        keep **= 1 / FAST
        self.recent, self.expected = self.recent * keep + found, self.expected * keep + expected
        self._slow = self._rates()

    def _rates(self) -> list[float]:
        """The slow view's, by position."""
        prior, hits, reached = self.config.prior, sum(self.hits), sum(self.reached)
        presumed = prior * self.config.alpha + hits
        found = []
        for mine, seen in zip(self.hits, self.reached, strict=True):
            # What the other positions show: a position's own evidence would count twice.
            pool = (presumed - mine) / (reached - seen + prior)
            found.append((mine + prior * pool) / (seen + prior))
        return found

    def _factor(self) -> float:
        """What the fast view multiplies them with."""
        prior = self.config.prior * max(self.config.alpha, LEAST)
        return float((self.recent + prior) / (self.expected + prior))


def _gain(slow: float, factor: float, judged: float, overlap: float) -> float:
    """By how much the fast view would have given a position's evidence the greater likelihood."""
    slow = _rate(slow)
    fast = _rate(slow * factor)
    stood, fell = math.log(fast / slow), math.log((1 - fast) / (1 - slow))
    return overlap * stood + (judged - overlap) * fell


def _rate(value: float) -> float:
    return min(max(value, LEAST), MOST)
