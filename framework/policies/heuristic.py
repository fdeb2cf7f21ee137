"""Longer after success, shorter after failure: the rule of transformers' assisted generation."""

from __future__ import annotations

from dataclasses import dataclass

from ..records import RowOutcome
from .rows import RowPolicySession


@dataclass
class Length:
    """The gamma of the next round."""

    gamma: int


class HeuristicSession(RowPolicySession[Length]):
    """``gamma + 2`` if all drafted tokens stood, else ``max(1, gamma - 1)`` (transformers'
    ``num_assistant_tokens_schedule="heuristic"``). A round counts as a success for rows that
    share a state when every one of them succeeded."""

    def new_state(self) -> Length:
        return Length(self.config.start)

    def gammas(self) -> list[int]:
        return [state.gamma for state in self.states]

    def learn(self, state: Length, outcomes: list[RowOutcome]) -> None:
        if all(row.accepted == len(row.drafted) for row in outcomes):
            state.gamma = min(state.gamma + 2, self.config.most)
        else:
            state.gamma = max(state.gamma - 1, 1)
