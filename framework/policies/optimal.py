"""Each row's best gamma by what its text showed so far."""

from __future__ import annotations

import numpy as np

from ..context import Context
from ..interfaces import GammaPolicy
from .builtin_times import OptimalConfig
from .prices import BUCKET
from .rows import Floats
from .timed import TimedPolicySession


class Optimal(GammaPolicy):
    """Leviathan et al. 2023, section 3.5: the gamma with the most expected tokens per second, from
    acceptance by position, estimated online, and measured step times."""

    def __init__(self, config: OptimalConfig) -> None:
        self.config = config

    def start(self, context: Context) -> OptimalSession:
        return OptimalSession(context, self.config)


class OptimalSession(TimedPolicySession):
    """Every row for itself, as if it alone set the round's width."""

    def choose(self) -> list[int]:
        batch = self.config.batch or self.context.rows
        if self.single:
            worth = self.single.worth(*self.plain_costs(batch, self.longest()), 1)
            return [self.single.probing(worth, self.single.unknown(worth.best))] * self.context.rows
        values = self.values(self.lines, *self._row_costs(batch))
        chosen = self.probing(self.lines, values, self.unknown(self.lines, values.best))
        return [int(gamma) for gamma in chosen]

    def _row_costs(self, batch: int) -> tuple[Floats, Floats]:
        """``[rows, most + 1]``, by the context of each row; a single line where one serves all."""
        lengths = [len(row) - 1 for row in self.context.tokens]
        longest, least = max(lengths) // BUCKET, min(lengths) // BUCKET
        if longest == least:
            verify, draft = self.costs(batch, longest)
            return verify[None], draft[None]
        kinds, places = np.unique(np.array(lengths) // BUCKET, return_inverse=True)
        pairs = [self.costs(batch, int(kind)) for kind in kinds]
        verify, draft = (np.stack(each) for each in zip(*pairs, strict=True))
        return verify[places], draft[places]
