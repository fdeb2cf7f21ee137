"""A batch of a replay: one session of the policy, and its rows."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from ..guard import check_go_on
from ..interfaces import GammaPolicy, PolicySession
from ..times.steps import StepTimes
from .context import ReplayContext, ReplayStep
from .stack import Counts, OfBatch, Stack


class Lane:
    """A session with its context.

    Args:
        traces: which traces its rows are.
        apart: whether they are runs of their own that only share the session.

    Attributes:
        rows: where its rows are among all live ones.
        hears: whether the policy listens to outcomes.
        stops: whether it is asked before each token.
    """

    def __init__(
        self, policy: GammaPolicy, stack: Stack, traces: Counts, times: StepTimes, apart: bool
    ) -> None:
        self.stack = stack
        seen = OfBatch(times, 1) if apart else times
        self.context = ReplayContext(stack, traces, seen, apart)
        self.session = policy.start(self.context)
        self.hears = getattr(type(self.session), "observe", None) is not PolicySession.observe
        self.stops = bool(getattr(self.session, "stops", False))
        self.place(int(traces[0]))

    def place(self, begin: int) -> int:
        """Says where its rows begin; returns where they end."""
        self.rows = slice(begin, begin + self.context.rows)
        return begin + self.context.rows

    def ask(self, label: str, lengths: Counts) -> tuple[Counts, Counts]:
        """Asks before each token whether to go on; as ``StepSession.propose`` does.

        Args:
            lengths: ``[rows]``, the most that each row drafts.

        Returns:
            What each row drafts, and the drafter's steps that were run for it.
        """
        steps, position = np.zeros_like(lengths), 0
        probs: list[torch.Tensor] = []
        while position < lengths.max():
            step = ReplayStep(position, probs, partial(self._at, "entropies", position))
            answers = check_go_on(label, self.session.go_on(step), len(lengths))
            if step.ran:
                steps[lengths > position] = position + 1
            lengths = np.where(np.array(answers), lengths, np.minimum(lengths, position))
            probs.append(self._at("confidences", position))
            position += 1
        return lengths, np.maximum(steps, lengths)

    def keep(self, going: NDArray[np.bool_]) -> None:
        """Lets the other rows go."""
        if going.all():
            return
        rows = np.flatnonzero(going).tolist()
        self.context.select(rows)
        if rows:
            self.session.select(rows)

    def _at(self, name: str, position: int) -> torch.Tensor:
        context = self.context
        values = getattr(self.stack, name)[context.traces, context.at, position]
        return torch.from_numpy(values)
