"""One gamma for the whole batch: the one with the most tokens per second, 0 where none pays."""

from __future__ import annotations

from ..context import Context
from ..interfaces import GammaPolicy
from .builtin_times import GoodputConfig
from .optimal import OptimalSession
from .prices import OFTEN
from .single import NONE, Single

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

    def choose(self) -> list[int]:
        if self.context.apart or not self.single:
            return super().choose()
        rows = self.context.rows
        if self._doubtful():
            return [0] * rows
        # Rows share their rates, so tokens of one row rank gammas as tokens of all do.
        worth = self.single.worth(*self.plain_costs(rows, self.longest()), rows)
        return [self.single.probing(worth, self._trial(self.single, worth.best))] * rows

    def _doubtful(self) -> bool:
        """Whether the table was found wrong and the clock knows nothing of plain steps yet: they are
        the yardstick, and two of them are cheap."""
        timing = self.verifying
        return not self.config.frozen and timing.wrong and timing.plays[0] < PLAIN

    def _trial(self, single: Single, best: int) -> int:
        """What little is known of: how many tokens stand there, or how long such rounds take."""
        trial, seen = single.unknown(best), self.verifying.seen
        if self.config.frozen or trial != NONE:
            return trial
        near = [g for g in (0, best - 1, best + 1) if 0 <= g <= self.most and g != best]
        least = min(near, key=lambda g: seen[g])
        return least if seen[least] < OFTEN else NONE
