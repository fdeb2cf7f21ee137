"""One gamma for the whole batch: the one with the most tokens per second, 0 where none pays."""

from __future__ import annotations

import numpy as np

from ..context import Context
from ..interfaces import GammaPolicy
from .builtin_times import GoodputConfig
from .optimal import OptimalSession
from .prices import BUCKET, OFTEN
from .rows import Counts
from .timed import NONE

PLAIN = 2  # plain steps that are timed where the table is wrong


class Goodput(GammaPolicy):
    """Controls what counts, as TurboSpec does (Liu et al. 2024, arXiv:2406.14066): tokens per second
    of all rows together, by the seconds that rounds were seen to take."""

    keeps_apart = True

    def __init__(self, config: GoodputConfig) -> None:
        self.config = config

    def start(self, context: Context) -> GoodputSession:
        return GoodputSession(context, self.config)


class GoodputSession(OptimalSession):
    """All rows share one state: a round costs what its widest row needs, so one gamma serves all."""

    def choose(self) -> Counts:
        if self.context.apart:
            return super().choose()
        rows, lines = self.context.rows, self.lines[:1]
        if self._doubtful():
            return np.zeros(rows, dtype=np.int64)
        longest = max(len(row) for row in self.context.tokens) - 1
        verify, draft = self.costs(rows, longest // BUCKET)
        # Rows share their rates, so tokens of one row rank gammas as tokens of all do.
        values = self.values(lines, verify[None], draft[None], rows)
        chosen = self.probing(lines, values, self._trial(lines, values.best))
        return np.full(rows, chosen[0])

    def _doubtful(self) -> bool:
        """Whether the table was found wrong and the clock knows nothing of plain steps yet: they are
        the yardstick, and two of them are cheap."""
        timing = self.verifying
        return not self.config.frozen and timing.wrong and timing.plays[0] < PLAIN

    def _trial(self, lines: Counts, best: Counts) -> Counts:
        """What little is known of: how many tokens stand there, or how long such rounds take."""
        trial = self.unknown(lines, best)
        if self.config.frozen or trial[0] != NONE:
            return trial
        seen, gamma = self.verifying.seen, int(best[0])
        near = [g for g in (0, gamma - 1, gamma + 1) if 0 <= g <= self.most and g != gamma]
        least = min(near, key=lambda g: float(seen[g]))
        return np.array([least if seen[least] < OFTEN else NONE])
