"""What rounds cost, for policies that reckon in seconds: a table's word, corrected by a clock's."""

from __future__ import annotations

import numpy as np

from ..times.steps import StepTimes
from .rows import Floats

BUCKET = 128  # ids of context that are taken together
ROUNDS = 64.0  # after so many, a measured round counts for 1 / e
KEEP = np.exp(-1 / ROUNDS)
BELIEF = 1.0  # rounds that the table's word is worth
WRONG = 1.3  # a table that is off by so much is not to be trusted about anything
OFTEN = 2.5  # rounds of a kind from which on one can be an exception
WILDEST = 3.0  # a round that took longer than that, over what was expected, had another reason


class Prices:
    """Seconds of verifying and drafting 0 to ``most`` tokens; read off the table once each."""

    def __init__(self, times: StepTimes, most: int) -> None:
        self.times, self.most = times, most
        self._known: dict[tuple[int, int], tuple[Floats, Floats]] = {}

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


class Corrections:
    """Measured over predicted, for each of ``size`` kinds of round, of which neighbours are alike.
    What was not seen of late is taken to be as its neighbours, and they as all together."""

    def __init__(self, size: int) -> None:
        self._both = np.zeros((2, size))  # in one, because a round is short and operations are not
        self.sums, self.seen = self._both
        self.plays = [0] * size
        places = np.arange(size)
        self._near = 0.5 ** np.abs(places - places[:, None])
        self.factors = np.ones(size)  # what to multiply predictions with

    def _factors(self) -> Floats:
        sums, seen = (BELIEF + self._both.sum(1)).tolist()
        sums_near, seen_near = self._both @ self._near  # symmetric
        near = (BELIEF * sums / seen + sums_near) / (BELIEF + seen_near)
        factors: Floats = (BELIEF * near + self.sums) / (BELIEF + self.seen)
        return factors

    def learn(self, kind: int, measured: float, predicted: float) -> None:
        """Takes in a round of a kind."""
        ratio = measured / predicted
        # A first round may be an exception as well, if the table was right about others.
        if self.seen[kind] > OFTEN or (self.seen.any() and not self.wrong):
            usual = float(self.factors[kind])
            ratio = min(max(ratio, usual / WILDEST), usual * WILDEST)
        self._both *= KEEP
        self.sums[kind] += ratio
        self.seen[kind] += 1
        self.plays[kind] += 1
        self.factors = self._factors()

    @property
    def wrong(self) -> bool:
        """Whether predictions were far off, of whatever was seen most."""
        kind = int(self.seen.argmax())
        ratio = self.sums[kind] / max(self.seen[kind], 1e-9)
        return bool(self.seen[kind] > 0 and not 1 / WRONG < ratio < WRONG)
