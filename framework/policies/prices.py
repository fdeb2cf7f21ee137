"""What rounds cost, for policies that reckon in seconds: a table's word, corrected by a clock's."""

from __future__ import annotations

import math

import numpy as np

from ..times.steps import StepTimes
from .rows import Floats

BUCKET = 128  # ids of context that are taken together
ROUNDS = 64.0  # after so many, a measured round counts for 1 / e
KEEP = math.exp(-1 / ROUNDS)
BELIEF = 1.0  # rounds that the table's word is worth
WRONG = 1.3  # a table that is off by so much is not to be trusted about anything
OFTEN = 2.5  # rounds of a kind from which on one can be an exception
WILDEST = 3.0  # a round that took longer than that, over what was expected, had another reason


class Prices:
    """Seconds of verifying and drafting 0 to ``most`` tokens; read off the table once each."""

    def __init__(self, times: StepTimes, most: int) -> None:
        self.times, self.most = times, most
        self._known: dict[tuple[int, int], tuple[Floats, Floats]] = {}
        self._plain: dict[tuple[int, int], tuple[list[float], list[float]]] = {}

    def of(self, batch: int, bucket: int) -> tuple[Floats, Floats]:
        """Of a batch of so many rows, behind about ``bucket * BUCKET`` ids: ``[most + 1]`` to score
        so many drafted tokens, ``[most + 1]`` to draft them."""
        key = batch, bucket
        if key not in self._known:
            context = bucket * BUCKET + BUCKET // 2
            verify = self.times.target(batch, range(1, self.most + 2), context)
            draft = self.times.draft(batch, range(self.most + 1))
            # Drafting never takes no time at all, or no clock could correct it.
            least = np.maximum(draft, 1e-4 * verify[0])
            self._known[key] = verify, np.where(np.arange(len(draft)) > 0, least, draft)
        return self._known[key]

    def plain(self, batch: int, bucket: int) -> tuple[list[float], list[float]]:
        """The same in plain numbers."""
        key = batch, bucket
        if key not in self._plain:
            verify, draft = self.of(batch, bucket)
            self._plain[key] = verify.tolist(), draft.tolist()
        return self._plain[key]


class Corrections:
    """Measured over predicted, for each of ``size`` kinds of round, of which neighbours are alike.
    What was not seen of late is taken to be as its neighbours, and they as all together.

    In plain numbers: a round is short, and operations on arrays are not.
    """

    def __init__(self, size: int) -> None:
        self.sums, self.seen = [0.0] * size, [0.0] * size
        self._sums_near, self._seen_near = [0.0] * size, [0.0] * size
        self.plays = [0] * size
        self._near = [0.5**distance for distance in range(size)]
        self.factors = [1.0] * size  # what to multiply predictions with

    def learn(self, kind: int, measured: float, predicted: float) -> None:
        """Takes in a round of a kind."""
        ratio = measured / predicted
        # A first round may be an exception as well, if the table was right about others.
        if self.seen[kind] > OFTEN or (any(self.seen) and not self.wrong):
            usual = self.factors[kind]
            ratio = min(max(ratio, usual / WILDEST), usual * WILDEST)
        for kept in (self.sums, self.seen, self._sums_near, self._seen_near):
            kept[:] = [KEEP * value for value in kept]
        self.sums[kind] += ratio
        self.seen[kind] += 1
        self.plays[kind] += 1
        for other in range(len(self.sums)):
            share = self._near[abs(other - kind)]
            self._sums_near[other] += share * ratio
            self._seen_near[other] += share
        self.factors = self._factors()

    def _factors(self) -> list[float]:
        all_alike = (BELIEF + sum(self.sums)) / (BELIEF + sum(self.seen))
        found = []
        for n, (own, seen) in enumerate(zip(self.sums, self.seen, strict=True)):
            near = (BELIEF * all_alike + self._sums_near[n]) / (BELIEF + self._seen_near[n])
            found.append((BELIEF * near + own) / (BELIEF + seen))
        return found

    @property
    def wrong(self) -> bool:
        """Whether predictions were far off, of whatever was seen most."""
        most = max(self.seen)
        ratio = self.sums[self.seen.index(most)] / max(most, 1e-9)
        return most > 0 and not 1 / WRONG < ratio < WRONG
