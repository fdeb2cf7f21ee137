"""Checks of runs that follow one another: the same again, another one, one that was cut short."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from unittest.mock import patch

from ....interfaces import GammaPolicy
from ....requests import Answer
from ....specs import PolicySpec
from ..checks import CheckFailed, NotApplicable, ascending, check
from ..process import generator_states, moved
from ..subject import Subject
from .runs import Trace, difference, play, running
from .stage import DRAFTERS, Stage, requests

# Milliseconds that a draft and a forward take, as far as any clock can tell.
SPEEDS = ((1, 1), (1, 1000), (1000, 1))
CLOCKS = ("time", "perf_counter", "monotonic", "process_time", "thread_time")


@check(
    "policy",
    "The same run gives the same gammas, however fast the machine is, and leaves the global random "
    "generators alone.",
    "A text that cannot be had again cannot be compared; a run that draws from a global generator "
    "changes everybody else's results.",
)
def repeatable(subject: Subject) -> None:
    def run(rows: int, tokens: int) -> str | None:
        before = generator_states()
        traces = [_timed(subject, rows, tokens, *speed) for speed in SPEEDS[: _worlds(subject)]]
        if moved(before):
            return f"a run moved the global random generator of {' and '.join(moved(before))}"
        found = (
            difference(traces[0], other, f"at speed {SPEEDS[0]}", f"at speed {speed}")
            for speed, other in zip(SPEEDS[1:], traces[1:], strict=False)
        )
        return next(filter(None, found), None)

    ascending([{"rows": r, "tokens": n} for r, n in ((1, 12), (3, 40))], run)
    if not _repeatable(subject):
        raise NotApplicable("declared repeatable=False; only the global generators were looked at")


def _worlds(subject: Subject) -> int:
    return len(SPEEDS) if _repeatable(subject) else 1


def _timed(subject: Subject, rows: int, tokens: int, draft: int, forward: int) -> Trace:
    """A run in which drafts and forwards take as many milliseconds, on every clock there is."""
    with _clocks() as passes:
        stage = Stage(
            subject.seed,
            propose=lambda: passes(draft * 1e-3),
            forward=lambda: passes(forward * 1e-3),
        )
        return play(subject, subject.build(), stage, requests(rows, tokens, seed=subject.seed))


@contextmanager
def _clocks() -> Iterator[Callable[[float], None]]:
    """Stops the clocks of ``time`` and gives the function that moves them on by some seconds."""
    now = [1e6]

    def passes(seconds: float) -> None:
        now[0] += seconds

    with ExitStack() as stack:
        for name in CLOCKS:
            stack.enter_context(patch.object(time, name, lambda: now[0]))
            stack.enter_context(patch.object(time, f"{name}_ns", lambda: int(now[0] * 1e9)))
        yield passes


@check(
    "policy",
    "A run's gammas do not depend on the runs before it, nor on one that is under way.",
    "State on the policy object, its class or its module leaks from one user's request to the next.",
)
def no_state_across_runs(subject: Subject) -> None:
    _needs_repeatable(subject)
    first = _first_runs(subject)

    def run(earlier: str, tokens: int) -> str | None:
        stage, asked = Stage(subject.seed), requests(2, tokens, seed=subject.seed)
        alone, policy = first(tokens), subject.build()
        play(subject, policy, replace(stage, drafter=earlier), requests(3, tokens, seed=99))
        again = play(subject, policy, stage, asked)
        beside = _interleaved(subject, policy, replace(stage, drafter=earlier), tokens)
        found = difference(alone, again, "in a first run", "after another")
        return found or difference(alone, beside, "in a first run", "beside another")

    ascending([{"earlier": d, "tokens": n} for n in (3, 20) for d in DRAFTERS], run)


def _first_runs(subject: Subject) -> Callable[[int], Trace]:
    """A new policy's run of two requests of so many tokens; cases that compare with it share it."""

    @cache
    def first(tokens: int) -> Trace:
        asked = requests(2, tokens, seed=subject.seed)
        return play(subject, subject.build(), Stage(subject.seed), asked)

    return first


def _interleaved(subject: Subject, policy: GammaPolicy, other: Stage, tokens: int) -> Trace:
    """The run of interest, with a round of another one on the same policy before each of its own."""
    neighbours = [Answer(request) for request in requests(1, 10 * tokens, seed=98)]
    with running(subject, policy, other, neighbours) as rounds:

        def between() -> None:
            next(rounds, None)

        stage = Stage(subject.seed, forward=between)
        return play(subject, policy, stage, requests(2, tokens, seed=subject.seed))


_INTERRUPTED = "the kit ends this run"


@check(
    "policy",
    "After a run that its caller gave up, or that another part's exception ended, the next run is as "
    "if there had been none.",
    "Users stop streams, and a server goes on after a failed request.",
)
def interrupted_runs(subject: Subject) -> None:
    first = _first_runs(subject)

    def run(ended_by: str, after: int) -> str | None:
        stage, asked = Stage(subject.seed), requests(2, 16, seed=subject.seed)
        alone, policy = first(16), subject.build()
        _cut_short(subject, policy, ended_by, after)
        again = play(subject, policy, stage, asked)
        if not _repeatable(subject):
            return None
        return difference(alone, again, "in a first run", "after the one that was cut short")

    causes = ("the caller", "the target", "the drafter")
    ascending([{"ended_by": c, "after": after} for after in (1, 3) for c in causes], run)


def _cut_short(subject: Subject, policy: GammaPolicy, ended_by: str, after: int) -> None:
    """A run that ends in its round number ``after + 1``."""
    calls = [0]

    def hook() -> None:
        calls[0] += 1
        if calls[0] > after:
            raise RuntimeError(_INTERRUPTED)

    stage, asked = Stage(subject.seed), requests(3, 30, seed=99)
    if ended_by == "the caller":
        play(subject, policy, stage, asked, rounds=after)
        return
    in_target = ended_by == "the target"
    hooked = replace(stage, forward=hook) if in_target else replace(stage, propose=hook)
    try:
        play(subject, policy, hooked, asked)
    except CheckFailed as failure:
        if _INTERRUPTED not in str(failure):
            raise


def _needs_repeatable(subject: Subject) -> None:
    if not _repeatable(subject):
        raise NotApplicable("declared repeatable=False: no two runs of it need to be alike")


def _repeatable(subject: Subject) -> bool:
    assert isinstance(subject.spec, PolicySpec)
    return bool(subject.spec.ability("repeatable", subject.config))
