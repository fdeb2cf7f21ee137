"""The base of policies that remember something of each row, or of all rows together.

State lies in numpy arrays with one line per row, or a single line that all rows share, so that a
thousand rows of a replay cost little more than one.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..context import Context
from ..interfaces import PolicySession
from ..records import Round, RowOutcome

REQUEST, BATCH = "request", "batch"
SCOPES = (REQUEST, BATCH)

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Outcomes:
    """What a round showed, one line per state that it told something about.

    Args:
        lines: ``[n]``, which lines of the state these are; each occurs once.
        drafted, accepted: ``[n]``, tokens; sums over the rows that share the line.
        reached_at, accepted_at: ``[n, most]``, how many rows reached position i, and how many
            accepted it.
        overlap_at: ``[n, most]``, the sum of their overlaps there.
    """

    lines: Counts
    drafted: Counts
    accepted: Counts
    reached_at: Counts
    accepted_at: Counts
    overlap_at: Floats


class LineSession(PolicySession):
    """Keeps a state per row, or one for all rows, as ``config.scope`` says.

    Attributes:
        lines: ``[rows]``, the line of state of each row. Lines of rows that have left stay.
    """

    def __init__(self, context: Context, config: Any = None) -> None:
        super().__init__(context, config)
        # Rows of a replay can be runs of their own: then nothing is shared.
        alone = config.scope == REQUEST or context.apart
        self.lines = np.arange(context.rows) if alone else np.zeros(context.rows, dtype=np.int64)
        self.open(int(self.lines.max()) + 1)

    @abstractmethod
    def open(self, lines: int) -> None:
        """Makes the state of so many lines: what is known before the first round."""

    def select(self, rows: list[int]) -> None:
        self.lines = self.lines[rows]


class RowPolicySession(LineSession):
    """Hears of rounds as arrays.

    Attributes:
        most: the deepest position that ``Outcomes`` tells about.
    """

    most = 0

    @abstractmethod
    def learn(self, outcomes: Outcomes) -> None:
        """Takes in a round. Only rows that drafted something are in it."""

    def observe(self, outcome: Round) -> None:
        drafting = [at for at, row in enumerate(outcome.rows) if row.drafted]
        if drafting:
            rows = [outcome.rows[at] for at in drafting]
            self.learn(_outcomes(rows, self.lines[drafting], self.most))


def _outcomes(rows: list[RowOutcome], lines: Counts, most: int) -> Outcomes:
    if len(rows) == 1:
        return _outcome(rows[0], lines, most)
    drafted = np.array([len(row.drafted) for row in rows])
    accepted = np.array([row.accepted for row in rows])
    reached = np.array([len(row.overlaps) for row in rows])
    positions = np.arange(most)
    overlaps = np.zeros((len(rows), most))
    overlaps[positions < reached[:, None]] = [x for row in rows for x in row.overlaps[:most]]
    each = (
        drafted,
        accepted,
        (positions < reached[:, None]).astype(np.int64),
        (positions < accepted[:, None]).astype(np.int64),
        overlaps,
    )
    if len(lines) > 1 and (lines == lines[0]).all():  # all rows share the one line
        return Outcomes(lines[:1], *(values.sum(0, keepdims=True) for values in each))
    return Outcomes(lines, *each)


def _outcome(row: RowOutcome, lines: Counts, most: int) -> Outcomes:
    """Of a single row, in a few operations: a round of batch 1 is short."""
    overlaps, accepted = row.overlaps[:most], min(row.accepted, most)
    places = [
        [1] * len(overlaps) + [0] * (most - len(overlaps)),
        [1] * accepted + [0] * (most - accepted),
    ]
    counts = np.array([[len(row.drafted)], [row.accepted]])
    at = np.array(places).reshape(2, 1, most)
    known = np.array([[*overlaps, *([0.0] * (most - len(overlaps)))]])
    return Outcomes(lines, counts[0], counts[1], at[0], at[1], known)
