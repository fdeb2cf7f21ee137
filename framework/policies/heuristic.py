"""Longer after success, shorter after failure: the rule of transformers' assisted generation."""

from __future__ import annotations

import numpy as np

from .rows import Outcomes, RowPolicySession

UP, DOWN = 2, 1


class HeuristicSession(RowPolicySession):
    """``gamma + 2`` if all drafted tokens stood, else ``max(1, gamma - 1)`` (transformers'
    ``num_assistant_tokens_schedule="heuristic"``). Rows that share a state succeed together: a
    round counts as a success when every token of every row stood."""

    def open(self, lines: int) -> None:
        self.lengths = np.full(lines, self.config.start)

    def gammas(self) -> list[int]:
        lengths: list[int] = self.lengths[self.lines].tolist()
        return lengths

    def learn(self, outcomes: Outcomes) -> None:
        before = self.lengths[outcomes.lines]
        whole = outcomes.accepted == outcomes.drafted
        after = np.where(whole, before + UP, before - DOWN)
        self.lengths[outcomes.lines] = after.clip(1, self.config.max_gamma)
