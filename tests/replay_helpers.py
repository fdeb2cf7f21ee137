"""What the tests of replays share: policies of every shape, and dense traces by brute force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from foredraft.framework.bases import SessionPolicy
from foredraft.framework.context import Context
from foredraft.framework.decoding import Parts, decode
from foredraft.framework.interfaces import GammaPolicy, PolicySession
from foredraft.framework.policies.rows import Outcomes, RowPolicySession
from foredraft.framework.records import DraftStep, Round, RowOutcome
from foredraft.framework.requests import Answer, Request
from foredraft.framework.traces import DenseTrace


@dataclass
class Scope:
    """A config of nothing but the scope."""

    scope: str = "request"


class Learner(RowPolicySession):
    """Rates per position, and the gamma with the most tokens per second by them."""

    most = 8

    def open(self, lines: int) -> None:
        self.rates, self.counts = np.full((lines, 8), 0.8), np.ones((lines, 8))

    def learn(self, outcomes: Outcomes) -> None:
        at = outcomes.lines
        self.counts[at] += outcomes.reached_at
        missed = outcomes.overlap_at - self.rates[at] * outcomes.reached_at
        self.rates[at] += missed / self.counts[at]

    def gammas(self) -> list[int]:
        tokens = 1 + np.cumprod(self.rates[self.lines], 1).cumsum(1)
        seconds = self.context.times().target(1, range(2, 10), 0)
        seconds = seconds + self.context.times().draft(1, range(1, 9))
        return [int(gamma) + 1 for gamma in (tokens / seconds).argmax(1)]


class Steps(PolicySession):
    """Two more after a full accept, one less otherwise: plain Python, state in a list."""

    def __init__(self, context: Context, config: object = None) -> None:
        super().__init__(context, config)
        self.state = [3] * context.rows

    def gammas(self) -> list[int]:
        return list(self.state)

    def observe(self, outcome: Round) -> None:
        pairs = zip(self.state, outcome.rows, strict=True)
        self.state = [
            min(gamma + 2, 7) if row.accepted == len(row.drafted) else max(gamma - 1, 0)
            for gamma, row in pairs
        ]

    def select(self, rows: list[int]) -> None:
        self.state = [self.state[row] for row in rows]


class Sure(Steps):
    """Ends a draft after a token that was not likely."""

    def go_on(self, step: DraftStep) -> Tensor:
        if not step.probs:
            return torch.ones(self.context.rows, dtype=torch.bool)
        return step.probs[-1] > 0.4


class Open(Steps):
    """Ends a draft before a law that is too open."""

    def go_on(self, step: DraftStep) -> Tensor:
        return step.entropy < 1.0


class Shared(Steps):
    """One state for all rows: what a row gets depends on its batch."""

    def observe(self, outcome: Round) -> None:
        good = sum(row.accepted for row in outcome.rows)
        self.state = [min(good, 6) + 1] * len(outcome.rows)


POLICIES: dict[str, GammaPolicy] = {
    "learner": SessionPolicy(Learner, Scope()),
    "steps": SessionPolicy(Steps, None),
    "sure": SessionPolicy(Sure, None, True),
    "open": SessionPolicy(Open, None, True),
}


@dataclass
class Probe(GammaPolicy):
    """Plain steps up to a place, and one draft there."""

    place: int
    gamma: int
    seen: list[RowOutcome] = field(default_factory=list)

    def start(self, context: Context) -> PolicySession:
        return _ProbeSession(context, self)


class _ProbeSession(PolicySession):
    def gammas(self) -> list[int]:
        here = self.context.round_index == self.config.place
        return [self.config.gamma if here else 0]

    def observe(self, outcome: Round) -> None:
        if outcome.index == self.config.place:
            self.config.seen.extend(outcome.rows)


def dense(parts: Parts, request: Request, gamma: int) -> DenseTrace:
    """A live run per place, which drafts there and nowhere else."""
    answer = Answer(request)
    for _ in decode(_with(parts, Probe(-1, 0)), [answer]):
        pass
    text = answer.token_ids
    shape = (len(text), gamma)
    accepts, lengths = np.zeros(shape, dtype=bool), np.zeros(len(text), dtype=np.int64)
    numbers = [np.zeros(shape, dtype=np.float32) for _ in range(3)]
    # Longer answers than the text leave room for a whole draft at its end.
    wide = replace(request, max_new_tokens=len(text) + gamma + 1)
    for place in range(len(text)):
        probe = Probe(place, gamma)
        for outcome in decode(_with(parts, probe), [Answer(wide)], True):
            if outcome.index == place:
                break
        (row,) = probe.seen
        assert row.detail is not None and row.gamma == gamma
        lengths[place] = len(row.drafted)
        accepts[place, : row.accepted] = True
        for array, values in zip(
            numbers, (row.overlaps, row.detail.confidence, row.detail.entropy), strict=True
        ):
            array[place, : len(values)] = values
    about = {"prompt_tokens": len(request.prompt), "room": request.max_new_tokens}
    overlaps, confidences, entropies = numbers
    return DenseTrace(accepts, overlaps, confidences, entropies, lengths, about)


def _with(parts: Parts, policy: GammaPolicy) -> Parts:
    return Parts(parts.target, parts.drafter, parts.verifier, policy, {}, parts.times)


def live(parts: Parts, policy: GammaPolicy, requests: Sequence[Request]) -> list[Round]:
    """The rounds of a live run of one batch."""
    answers = [Answer(request) for request in requests]
    return list(decode(_with(parts, policy), answers))


def told(rounds: Sequence[Round]) -> list[list[tuple[object, ...]]]:
    """What rows were told, ids apart, in a form that can be compared."""
    return [
        [
            (row.request, len(row.drafted), row.accepted, len(row.emitted), row.finish is not None,
             row.gamma, row.path, len(row.rejected), [round(x, 5) for x in row.overlaps])
            for row in outcome.rows
        ]
        for outcome in rounds
    ]  # fmt: skip


def by_request(rounds: Sequence[Round]) -> list[tuple[object, ...]]:
    """The same, request by request."""
    rows = [row for outcome in told(rounds) for row in outcome]
    return sorted(rows, key=lambda row: int(str(row[0])))
