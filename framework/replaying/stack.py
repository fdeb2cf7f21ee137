"""Dense traces as arrays with a line per trace, and what rounds over them cost."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..times.steps import Seconds, StepTimes
from ..traces import DenseTrace

Counts = NDArray[np.int64]
Floats = NDArray[np.float32]


class Stack:
    """Traces under one another, padded to the longest. ``n`` traces, ``T`` places, ``G`` deep.

    Attributes:
        most: ``G``, of the deepest trace.
        places: ``[n]``, tokens of each answer.
        rooms, prompts: ``[n]``, as in ``DenseTrace``.
        runs: ``[n, T]``, drafted tokens that stand at each place.
        lengths: ``[n, T]``, drafted tokens at each place.
    """

    def __init__(self, traces: Sequence[DenseTrace]) -> None:
        if not traces:
            raise InputError("there is nothing to replay: no trace was given.")
        self.traces = list(traces)
        self.most = max(trace.most for trace in traces)
        self.places = np.array([trace.places for trace in traces])
        self.rooms = np.array([trace.room for trace in traces])
        self.prompts = np.array([trace.prompt_tokens for trace in traces])
        self.runs = self._lines([trace.runs for trace in traces])
        self.lengths = self._lines([trace.lengths for trace in traces])

    @cached_property
    def overlaps(self) -> Floats:
        """``[n, T, G]``."""
        return self._blocks("overlaps")

    @cached_property
    def confidences(self) -> Floats:
        """``[n, T, G]``."""
        return self._blocks("confidences")

    @cached_property
    def entropies(self) -> Floats:
        """``[n, T, G]``."""
        return self._blocks("entropies")

    def _lines(self, lines: list[Counts]) -> Counts:
        stacked = np.zeros((len(lines), int(self.places.max())), dtype=np.int64)
        for i, line in enumerate(lines):
            stacked[i, : len(line)] = line
        return stacked

    def _blocks(self, name: str) -> Floats:
        shape = (len(self.traces), int(self.places.max()), self.most)
        stacked = np.zeros(shape, dtype=np.float32)
        for i, trace in enumerate(self.traces):
            stacked[i, : trace.places, : trace.most] = getattr(trace, name)
        return stacked


class Costs:
    """What ``StepTimes`` says, looked up by context: seconds of a target step and of drafting.

    Args:
        times: of any batch and context.
        stack: the traces whose contexts can occur, and how much they can draft.

    Attributes:
        first: the shortest context: ids behind which the first round of a text feeds its tokens.
    """

    def __init__(self, times: StepTimes, stack: Stack) -> None:
        self.times, self.most = times, stack.most
        self.first = int(stack.prompts.min()) - 1
        self.last = int((stack.prompts + stack.places).max())
        self._tables: dict[int, tuple[Seconds, Seconds]] = {}

    def table(self, batch: int) -> tuple[Seconds, Seconds]:
        """Of a batch of so many rows: ``[contexts, most + 1]`` to verify so many drafted tokens,
        the first line being context ``first``; ``[most + 1]`` to draft them."""
        if batch not in self._tables:
            widths = range(1, self.most + 2)
            contexts = range(self.first, self.last + 1)
            verify = np.stack([self.times.target(batch, widths, context) for context in contexts])
            self._tables[batch] = (verify, self.times.draft(batch, range(self.most + 1)))
        return self._tables[batch]

    def rows(self, contexts: Counts, drafted: Counts, steps: Counts) -> tuple[Seconds, Seconds]:
        """Of rows that are runs of batch 1 each: ``[rows]`` to draft and to verify."""
        verify, draft = self.table(1)
        return draft[steps], verify[contexts - self.first, drafted]

    def batch(self, contexts: Counts, drafted: Counts, steps: Counts) -> tuple[float, float]:
        """Of one batch, padded to its widest row and its longest context."""
        verify, draft = self.table(len(contexts))
        return float(draft[steps.max()]), float(verify[contexts.max() - self.first, drafted.max()])


class OfBatch(StepTimes):
    """The times of a batch of this size, whatever size is asked for: rows of a replay that stand
    beside one another only for the computer's sake."""

    def __init__(self, times: StepTimes, batch: int) -> None:
        self.times, self.rows = times, batch

    def target(self, batch: int, widths: Sequence[int], context: int) -> Seconds:
        return self.times.target(self.rows, widths, context)

    def draft(self, batch: int, gammas: Sequence[int]) -> Seconds:
        return self.times.draft(self.rows, gammas)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.times, name)
