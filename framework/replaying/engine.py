"""The loop of ``decoding.py`` over traces: ask for gammas, draft, judge, commit, observe, select.

All rows of all batches are worked on together in numpy. Only what a policy is told of each row is made
row by row, and only for policies that listen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..guard import blame, check_gammas
from ..interfaces import GammaPolicy
from ..records import Round
from ..times.steps import FLAT, Seconds, StepTimes
from ..traces import DenseTrace
from .lane import Lane
from .outcomes import outcomes
from .result import Replay
from .stack import Costs, Counts, Stack

Recorder = Callable[[Round], None]


def replay(
    policy: GammaPolicy,
    traces: Sequence[DenseTrace] | Stack,
    times: StepTimes | Costs = FLAT,
    *,
    name: str = "given as an object",
    batch: int = 1,
    together: bool = False,
    recorder: Recorder | None = None,
) -> Replay:
    """Runs a policy over traces.

    Args:
        batch: rows that decode together, in the order of the traces: they share each round's time,
            which is that of the widest of them.
        together: open one session for all traces, though each is a run of its own: much quicker,
            and the same for a policy whose rows do not depend on one another and that reads no
            clock. Otherwise each batch has a session of its own.
        recorder: hears every round.

    Raises:
        ConfigError: ``together`` with a batch above 1; the policy wants what a trace does not have.
        PluginFault: what the policy raised, named after it.
    """
    if batch < 1 or (together and batch > 1):
        raise ConfigError(
            f"batch={batch} is not possible; it must be at least 1, and 1 for rows run together."
        )
    stack = traces if isinstance(traces, Stack) else Stack(traces)
    costs = times if isinstance(times, Costs) else Costs(times, stack)
    run = Run(policy, name, stack, costs, batch, together, recorder)
    while run.lanes:
        run.step()
    return run.result


class Run:
    """All live rows, batch by batch.

    Attributes:
        traces, at: ``[rows]``, which trace each row is and where it stands in it.
        lanes: the batches, in the order of their rows.
        alone: whether each row has its own time.
    """

    def __init__(
        self, policy: GammaPolicy, name: str, stack: Stack, costs: Costs, batch: int, together: bool,
        recorder: Recorder | None,
    ) -> None:  # fmt: skip
        self.stack, self.costs, self.recorder = stack, costs, recorder
        self.result = Replay.empty(name, len(stack.traces))
        self.label, self.alone, self.round = f"policy {name!r}", batch == 1, 0
        self.traces = np.arange(len(stack.traces))
        self.at = np.zeros_like(self.traces)
        size = len(self.traces) if together else batch
        parts = np.split(self.traces, range(size, len(self.traces), size))
        with blame(self.label):
            self.lanes = [Lane(policy, stack, part, costs.times, together) for part in parts]
        self.told = recorder is not None or any(lane.hears for lane in self.lanes)

    def step(self) -> None:
        """One round of every row."""
        stack, traces, at = self.stack, self.traces, self.at
        gammas = self._gammas()
        drafted, steps = self._draft(gammas)
        stand = np.minimum(stack.runs[traces, at], drafted)
        left = stack.places[traces] - at
        emitted = np.minimum(stand + 1, left)
        accepted = np.minimum(stand, emitted)
        # As in a live run: a stop inside the accepted tokens leaves the rest unreached.
        reached = np.minimum(np.minimum(stand + 1, drafted), emitted)
        draft, verify = self._seconds(drafted, steps)
        self._count(emitted, drafted, accepted, reached, draft + verify)
        overlaps = stack.overlaps[traces, at, : drafted.max()].tolist() if self.told else []
        self.at = at + emitted
        for lane in self.lanes:
            lane.context.take(emitted[lane.rows])
        if self.told:
            ends = (emitted == left).tolist()
            columns = (traces, drafted, accepted, emitted, reached, gammas)
            rows = outcomes([column.tolist() for column in columns], overlaps, ends)
            self._observe(
                [Round(self.round, rows[lane.rows]) for lane in self.lanes], draft, verify
            )
        self.round += 1
        self._release(emitted < left)

    def _gammas(self) -> Counts:
        """What the policy asks for, cut as the loop cuts it."""
        asked: list[int] = []
        with blame(self.label):
            for lane in self.lanes:
                asked += check_gammas(self.label, lane.session.gammas(), lane.context.rows)
        room = self.stack.rooms[self.traces] - self.at - 1
        gammas = np.minimum(np.array(asked, dtype=np.int64), room)
        self.result.capped += int((gammas > self.stack.most).sum())
        return gammas

    def _draft(self, gammas: Counts) -> tuple[Counts, Counts]:
        """Tokens drafted in each row, and the drafter's steps that this took."""
        lengths = np.minimum(gammas, self.stack.lengths[self.traces, self.at])
        steps = lengths
        if self.lanes[0].stops:
            steps = lengths.copy()
            with blame(self.label):
                for lane in self.lanes:
                    own = lane.rows
                    lengths[own], steps[own] = lane.ask(self.label, lengths[own])
        return lengths, steps

    def _seconds(self, drafted: Counts, steps: Counts) -> tuple[Seconds, Seconds]:
        """Of drafting and of verifying: each row's, or its even share of its batch's."""
        contexts = self.stack.prompts[self.traces] + self.at - 1
        if self.alone:
            return self.costs.rows(contexts, drafted, steps)
        draft, verify = np.zeros(len(contexts)), np.zeros(len(contexts))
        for lane in self.lanes:
            own, count = lane.rows, lane.context.rows
            once = self.costs.batch(contexts[own], drafted[own], steps[own])
            draft[own], verify[own] = once[0] / count, once[1] / count
        return draft, verify

    def _count(
        self, emitted: Counts, drafted: Counts, accepted: Counts, reached: Counts, seconds: Seconds
    ) -> None:
        result, traces = self.result, self.traces
        result.rounds[traces] += 1
        result.tokens[traces] += emitted
        result.drafted[traces] += drafted
        result.accepted[traces] += accepted
        result.reached[traces] += reached
        result.seconds[traces] += seconds

    def _observe(self, rounds: list[Round], draft: Seconds, verify: Seconds) -> None:
        for lane, outcome in zip(self.lanes, rounds, strict=True):
            own = lane.rows
            # Of rows apart that share a session, the mean; no clock could show them all.
            share = 1 / lane.context.rows if self.alone else 1.0
            outcome.seconds["draft"] = float(draft[own].sum()) * share
            outcome.seconds["verify"] = float(verify[own].sum()) * share
        with blame(self.label):
            for lane, outcome in zip(self.lanes, rounds, strict=True):
                lane.session.observe(outcome)
        for outcome in rounds if self.recorder else ():
            self.recorder(outcome)  # type: ignore[misc]

    def _release(self, going: NDArray[np.bool_]) -> None:
        for lane in self.lanes:
            lane.context.round_index = self.round
        if going.all():
            return
        with blame(self.label):
            for lane in self.lanes:
                lane.keep(going[lane.rows])
        self.traces, self.at = self.traces[going], self.at[going]
        self.lanes = [lane for lane in self.lanes if lane.context.rows]
        begin = 0
        for lane in self.lanes:
            begin = lane.place(begin)
