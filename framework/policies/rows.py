"""The base of policies that remember something of each row, or of all rows together."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, TypeVar

from ..context import Context
from ..interfaces import PolicySession
from ..records import Round, RowOutcome

REQUEST, BATCH = "request", "batch"
SCOPES = (REQUEST, BATCH)

State = TypeVar("State")


class RowPolicySession(PolicySession, Generic[State]):
    """Keeps one state per row, or one for all of them, as ``config.scope`` says.

    States are changed in place: rows that share one share the object.
    """

    def __init__(self, context: Context, config: Any = None) -> None:
        super().__init__(context, config)
        shared = self.new_state() if config.scope == BATCH else None
        self.states: list[State] = [
            self.new_state() if shared is None else shared for _ in range(context.rows)
        ]

    @abstractmethod
    def new_state(self) -> State:
        """What is known before the first round."""

    @abstractmethod
    def learn(self, state: State, outcomes: list[RowOutcome]) -> None:
        """Takes in the outcomes of one round, of all rows that share this state; only rows that
        drafted something are among them."""

    def observe(self, outcome: Round) -> None:
        shared: dict[int, tuple[State, list[RowOutcome]]] = {}
        for state, row in zip(self.states, outcome.rows, strict=True):
            if row.drafted:
                shared.setdefault(id(state), (state, []))[1].append(row)
        for state, rows in shared.values():
            self.learn(state, rows)

    def select(self, rows: list[int]) -> None:
        self.states = [self.states[row] for row in rows]
