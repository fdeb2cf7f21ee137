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
that accept more or less than that are met by a factor, accepted over expected.
"""

from __future__ import annotations

import numpy as np

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
        at = seen.lines
        shared = np.maximum(seen.reached_at[:, 0], 1)  # rows that tell about the line
        self._score(seen)
        expected = (seen.reached_at * self._slow(at)).sum(1)
        judged = seen.reached_at.sum(1) / shared
        keep = np.exp(-judged / (FAST * self.memory))
        self.recent[at] = self.recent[at] * keep + seen.overlap_at.sum(1)
        self.expected[at] = self.expected[at] * keep + expected
        keep = np.exp(-judged / self.memory)
        self.stood[at] = self.stood[at] * keep + seen.accepted_at.sum(1)
        self.promised[at] = self.promised[at] * keep + seen.overlap_at.sum(1)
        still = np.exp(-seen.reached_at / shared[:, None] / self.memory)
        self.hits[at] = self.hits[at] * still + seen.overlap_at
        self.reached[at] = self.reached[at] * still + seen.reached_at

    def learn_lengths(self, lines: Counts, asked: Floats, given: Floats) -> None:
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
        slow = self._fitted(lines, self._slow(lines))
        fast = np.clip(slow * self._factor(lines)[:, None], LEAST, MOST)
        trust = 1 / (1 + np.exp(-np.clip(self.lead[lines], -30, 30)))[:, None]
        return trust * np.cumprod(fast, 1) + (1 - trust) * np.cumprod(slow, 1)

    def _score(self, seen: Outcomes) -> None:
        """Moves ``lead`` by what the two views would have given the round."""
        at = seen.lines
        slow = np.clip(self._slow(at), LEAST, MOST)
        fast = np.clip(slow * self._factor(at)[:, None], LEAST, MOST)
        missed = seen.reached_at - seen.overlap_at
        gain = seen.overlap_at * np.log(fast / slow) + missed * np.log((1 - fast) / (1 - slow))
        shared = np.maximum(seen.reached_at[:, 0], 1)
        keep = np.exp(-seen.reached_at.sum(1) / shared / self.memory)
        self.lead[at] = self.lead[at] * keep + gain.sum(1)

    def _slow(self, lines: Counts) -> Floats:
        hits, reached = self.hits[lines], self.reached[lines]
        prior = self.prior
        pool = (hits.sum(1) + prior * self.alpha) / (reached.sum(1) + prior)
        rates: Floats = (hits + prior * pool[:, None]) / (reached + prior)
        return rates

    def _factor(self, lines: Counts) -> Floats:
        prior = self.prior * self.alpha
        factor: Floats = (self.recent[lines] + prior) / (self.expected[lines] + prior)
        return factor

    def _fitted(self, lines: Counts, rates: Floats) -> Floats:
        prior = 4 * self.prior
        factor = (self.stood[lines] + prior) / (self.promised[lines] + prior)
        return np.clip(rates * factor[:, None], LEAST, MOST)
