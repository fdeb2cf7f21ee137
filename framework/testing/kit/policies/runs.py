"""Runs of a policy through the real loop, and what was seen of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

from torch import Tensor

from ....context import Context
from ....decoding import decode
from ....errors import PluginFault
from ....interfaces import GammaPolicy, PolicySession
from ....records import DraftStep, Round
from ....requests import Answer, Request
from ..checks import CheckFailed
from ..subject import Subject
from .stage import Stage

Watch = Callable[[Context, str, Any], AbstractContextManager[None]]
Choice = tuple[int, int]  # a row's gamma, and how many tokens it drafted by it


@dataclass
class Trace:
    """What one run showed, by request.

    Args:
        choices: of each round, in order.
        answers: the ids that were emitted.
    """

    choices: dict[int, list[Choice]] = field(default_factory=dict)
    answers: dict[int, list[int]] = field(default_factory=dict)


class Spy(GammaPolicy):
    """Lets a policy do its work and notes what it answers.

    Args:
        watch: wraps each call of its session: ``watch(context, "gammas", argument)``.
    """

    def __init__(self, policy: GammaPolicy, watch: Watch | None = None) -> None:
        self.policy, self.watch = policy, watch or (lambda *given: nullcontext())
        self.gammas: list[int] = []
        self.complaints: list[str] = []

    def start(self, context: Context) -> SpySession:
        with self.watch(context, "start", None):
            return SpySession(self, self.policy.start(context), context)


class SpySession(PolicySession):
    """Passes every call on."""

    def __init__(self, spy: Spy, inner: PolicySession, context: Context) -> None:
        super().__init__(context)
        self.spy, self.inner = spy, inner

    @property
    def stops(self) -> bool:
        return isinstance(self.inner, PolicySession) and self.inner.stops

    def gammas(self) -> list[int]:
        with self.spy.watch(self.context, "gammas", None):
            found = self.inner.gammas()
        self.spy.gammas = list(found) if isinstance(found, list) else []
        return found

    def go_on(self, step: DraftStep) -> Tensor:
        with self.spy.watch(self.context, "go_on", step):
            found = self.inner.go_on(step)
        if isinstance(found, Tensor) and found.device != self.context.device:
            place = f"on {found.device}; it belongs on {self.context.device}"
            self.spy.complaints.append(f"go_on answered {place}")
        return found

    def observe(self, outcome: Round) -> None:
        with self.spy.watch(self.context, "observe", outcome):
            self.inner.observe(outcome)

    def select(self, rows: list[int]) -> None:
        with self.spy.watch(self.context, "select", rows):
            self.inner.select(rows)


class Replay(GammaPolicy):
    """Asks for as many tokens as were drafted in another run."""

    def __init__(self, trace: Trace) -> None:
        self.drafted = [[n for _, n in trace.choices[row]] for row in sorted(trace.choices)]

    def start(self, context: Context) -> PolicySession:
        return _ReplaySession(context, self.drafted)


class _ReplaySession(PolicySession):
    def gammas(self) -> list[int]:
        return [drafted[self.context.round_index] for drafted in self.config]

    def select(self, rows: list[int]) -> None:
        self.config = [self.config[row] for row in rows]


def play(
    subject: Subject,
    policy: GammaPolicy,
    stage: Stage,
    wanted: Sequence[Request],
    rounds: int | None = None,
    cancel: Mapping[int, int] | None = None,
) -> Trace:
    """Runs requests as one batch.

    Args:
        rounds: abandons the run after so many; None runs to the end.
        cancel: request -> the round before which its caller cancels it.

    Raises:
        CheckFailed: the policy raised, or answered what the loop refuses.
    """
    spy = policy if isinstance(policy, Spy) else Spy(policy)
    answers, trace = [Answer(request) for request in wanted], Trace()
    with refusals(), running(subject, spy, stage, answers) as rounds_of_run:
        for outcome in rounds_of_run:
            for gamma, row in zip(spy.gammas, outcome.rows, strict=True):
                choices = trace.choices.setdefault(row.request, [])
                choices.append((gamma, len(row.drafted)))
            for answer in answers:
                if (cancel or {}).get(answer.request.index) == outcome.index + 1:
                    answer.cancel()
            if outcome.index + 1 == rounds:
                break
    trace.answers = {answer.request.index: answer.token_ids for answer in answers}
    return trace


@contextmanager
def running(
    subject: Subject, policy: GammaPolicy, stage: Stage, answers: list[Answer]
) -> Iterator[Iterator[Round]]:
    """A run's rounds; what is left of it is given up on the way out."""
    rounds = decode(stage.parts(policy, subject.name), answers)
    with closing(cast("Generator[Round]", rounds)):
        yield rounds


@contextmanager
def refusals() -> Iterator[None]:
    """Makes the loop's refusal of a policy a failed check."""
    try:
        yield
    except PluginFault as fault:
        raise CheckFailed(str(fault).rstrip(".")) from fault


def difference(one: Trace, other: Trace, first: str, second: str) -> str | None:
    """How the choices in two runs differ, for requests that are in both."""
    for request in sorted(one.choices.keys() & other.choices.keys()):
        pairs = zip(one.choices[request], other.choices[request], strict=False)
        for index, (a, b) in enumerate(pairs):
            if a != b:
                return (
                    f"request {request}, round {index}: gamma {a[0]} with {a[1]} tokens drafted "
                    f"{first}, gamma {b[0]} with {b[1]} {second}"
                )
    return None


def never_drafts(trace: Trace) -> bool:
    """Whether no token was drafted in the whole run."""
    return not any(drafted for choices in trace.choices.values() for _, drafted in choices)
