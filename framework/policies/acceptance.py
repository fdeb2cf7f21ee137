"""Online estimates of how many drafted tokens stand, by position; of several texts at a time.

What a text shows is scarce at deep positions and changes with the text. Hence two views of each
text, whose predictions are weighed by how well they did of late:

- *slow*: a rate per position, over the last ``memory`` tokens judged there, drawn towards the rate of
  all positions together as if that had been seen ``prior`` times. A position that is never reached
  has that rate.
- *fast*: the same, times one factor for all positions: what the last few tokens showed over what
  the slow view expected of them. It follows a text that changes.

The evidence is the overlap ``sum(min(target, draft))`` at each position reached, the chance of
acceptance, which varies less than acceptance itself (Leviathan et al. 2023, Corollary 3.6). Rules
that accept more or less than that are met by a factor, accepted over expected. Of rows that share
their evidence, ``n`` in one round count as ``sqrt(n)``: they stand at like places of like texts (all
answers begin at once), and one bad round must not end speculation for all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .rows import Counts, Floats, Outcomes

FAST = 1 / 8  # of the slow memory
LEAST, MOST = 0.001, 0.999


class Acceptance:
    """Estimates of ``lines`` texts for ``most`` positions.

    Args:
        memory: tokens judged at a position after which an observation counts for ``1 / e``.
        prior: observations that what is presumed is worth.
        alpha: the rate that is presumed before there is evidence.
    """

    def __init__(self, lines: int, most: int, memory: float, prior: float, alpha: float) -> None:
        self.most, self.memory, self.prior, self.alpha = most, memory, prior, alpha
        self.hits, self.reached = np.zeros((lines, most)), np.zeros((lines, most))
        self.recent, self.expected = np.zeros(lines), np.zeros(lines)
        self.lead = np.zeros(lines)  # of the fast view's recent log-likelihood over the slow one's
        self.stood, self.promised = np.zeros(lines), np.zeros(lines)
        self.asked, self.given = np.zeros((lines, most)), np.zeros((lines, most))

    def learn(self, seen: Outcomes) -> None:
        """Takes in what a round showed."""
        # Memory is of tokens of one row, however many rows tell about the line.
        weight = 1 / np.sqrt(np.maximum(seen.reached_at[:, :1], 1))
        at, judged, overlaps = seen.lines, seen.reached_at * weight, seen.overlap_at * weight
        count = judged.sum(1)
        slow, factor = self._slow(at), self._factor(at)
        keep = np.exp(-count * weight[:, 0] / self.memory)
        found, expected = overlaps.sum(1), (judged * slow).sum(1)
        self.lead[at] = self.lead[at] * keep + _gain(slow, factor, judged, overlaps)
        self.stood[at] = self.stood[at] * keep + (seen.accepted_at * weight).sum(1)
        self.promised[at] = self.promised[at] * keep + found
        keep = keep ** (1 / FAST)
        self.recent[at] = self.recent[at] * keep + found
        self.expected[at] = self.expected[at] * keep + expected
        still = np.where(judged > 0, np.exp(-judged * weight / self.memory), 1.0)
        self.hits[at] = self.hits[at] * still + overlaps
        self.reached[at] = self.reached[at] * still + judged

    def learn_lengths(self, lines: Counts, asked: NDArray[Any], given: NDArray[Any]) -> None:
        """Takes in how far drafts went.

        Args:
            asked, given: ``[n, most]``, how many rows were asked for a token at this position, and
                how many of them drafted it.
        """
        keep = np.exp(-1 / self.memory)
        self.asked[lines] = self.asked[lines] * keep + asked
        self.given[lines] = self.given[lines] * keep + given

    def chances(self, lines: Counts) -> Floats:
        """``[n, most]``: the chance that position i, if asked for, is drafted."""
        prior = self.prior
        return (self.given[lines] + prior) / (self.asked[lines] + prior)

    def stands(self, lines: Counts) -> Floats:
        """``[n, most]``: the chance that the token at position i, if all are drafted up to there, is
        accepted with all before it."""
        prior = 4 * self.prior
        rule = (self.stood[lines] + prior) / (self.promised[lines] + prior)
        slow = _rates(self._slow(lines) * rule[:, None])
        fast = _rates(slow * self._factor(lines)[:, None])
        # Beyond 30 nothing is left to doubt.
        trust = 1 / (1 + np.exp(-np.minimum(np.maximum(self.lead[lines], -30), 30)))[:, None]
        both: Floats = trust * fast.cumprod(1) + (1 - trust) * slow.cumprod(1)
        return both

    def _slow(self, lines: Counts) -> Floats:
        """The slow view's rates ``[n, most]``."""
        hits, reached, prior = self.hits[lines], self.reached[lines], self.prior
        # What the other positions show: a position's own evidence would count twice.
        others, seen = hits.sum(1, keepdims=True) - hits, reached.sum(1, keepdims=True) - reached
        pool = (others + prior * self.alpha) / (seen + prior)
        rates: Floats = (hits + prior * pool) / (reached + prior)
        return rates

    def _factor(self, lines: Counts) -> Floats:
        """What the fast view multiplies them with ``[n]``."""
        prior = self.prior * max(self.alpha, LEAST)
        factor: Floats = (self.recent[lines] + prior) / (self.expected[lines] + prior)
        return factor


def _gain(slow: Floats, factor: Floats, judged: Floats, overlaps: Floats) -> Floats:
    """``[n]``, by how much the fast view would have given the round the greater likelihood."""
    slow = _rates(slow)
    fast = _rates(slow * factor[:, None])
    stood, fell = np.log(fast / slow), np.log((1 - fast) / (1 - slow))
    gain: Floats = (overlaps * stood + (judged - overlaps) * fell).sum(1)
    return gain


def _rates(values: Floats) -> Floats:
    rates: Floats = np.minimum(np.maximum(values, LEAST), MOST)
    return rates
