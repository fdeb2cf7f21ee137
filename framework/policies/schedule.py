"""Gamma from a table: by the number of live rows, or by the place in the answer."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..context import Context
from ..interfaces import PolicySession

BATCH, POSITION = "batch", "position"
BY = (BATCH, POSITION)


class ScheduleSession(PolicySession):
    """The gamma of the largest key that is not above the number of live rows (``config.by`` =
    ``batch``) or the row's number of answer tokens so far (``position``)."""

    def __init__(self, context: Context, config: Any = None) -> None:
        super().__init__(context, config)
        self.starts = np.array(sorted(config.gammas))
        self.values = np.array([config.gammas[start] for start in self.starts.tolist()])

    def gammas(self) -> list[int]:
        context, count = self.context, self.context.rows
        if self.config.by == BATCH:
            return [self._at(count)] * count
        lengths = map(len, context.tokens)
        answered = np.fromiter(lengths, np.int64, count) - np.array(context.prompt_lengths)
        gammas: list[int] = self.values[self._places(answered)].tolist()
        return gammas

    def _at(self, value: int) -> int:
        return int(self.values[self._places(np.array(value))])

    def _places(self, values: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.starts, values, side="right") - 1
