"""Checks of single rounds: what a policy answers, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from ....context import Context
from ....law import DenseLaw
from ....records import DraftStep
from ..checks import CheckFailed, ascending, check, fail
from ..subject import Subject
from .runs import Replay, Spy, play
from .stage import DRAFTERS, Stage, requests


@check(
    "policy",
    "A call of gammas() gives a list, one plain int from 0 for each live row, also when rows have left; "
    "go_on(), where it is written, gives one truth value per row, as a tensor on the context's device.",
    "The loop refuses anything else, in the middle of a user's run.",
)
def well_formed_gammas(subject: Subject) -> None:
    def run(rows: int, tokens: int) -> str | None:
        spy = Spy(subject.build())
        limits = [max(1, tokens - 3 * row) for row in range(rows)]  # the last row leaves first
        for wanted in (limits, limits[::-1]):
            stage, asked = Stage(subject.seed), requests(rows, wanted, (1.0, 0.0))
            play(subject, spy, stage, asked)
            if spy.complaints:
                return spy.complaints[0]
        return None

    ascending([{"rows": r, "tokens": n} for r, n in ((1, 1), (1, 12), (2, 12), (5, 24))], run)


@check(
    "policy",
    "It gets through every kind of round: nothing drafted, less drafted than asked for, all "
    "accepted, nothing accepted, a stop in the middle of a draft.",
    "Each of them happens in a long run; a division by the number of drafted tokens ends it.",
)
def every_round_observed(subject: Subject) -> None:
    def run(
        drafter: str, tokens: int, most: int | None, temperature: float, stops: tuple[int, ...]
    ) -> None:
        stage = Stage(subject.seed, drafter, most=most)
        asked = requests(3, tokens, (temperature,), stops, subject.seed)
        play(subject, subject.build(), stage, asked)

    ascending(
        [
            {"drafter": d, "tokens": n, "most": most, "temperature": t, "stops": stops}
            for n, most in ((1, None), (3, 1), (16, None))
            for d in DRAFTERS
            for t, stops in ((1.0, ()), (0.0, ()), (1.0, (2,)))
        ],
        run,
    )


@check(
    "policy",
    "It writes to nothing that it is shown: the context, the committed ids, outcomes, the step's "
    "tensors.",
    "The loop and the other parts read the same objects: a changed law or text is emitted.",
)
def inputs_unchanged(subject: Subject) -> None:
    def run(rows: int, tokens: int) -> str | None:
        spy = Spy(subject.build(), watch=None)
        spy.watch = lambda context, call, given: _watched(spy, context, call, given)
        try:
            play(subject, spy, Stage(subject.seed), requests(rows, tokens, (1.0, 0.0)))
        except CheckFailed:
            if not spy.complaints:  # what it wrote may well be what broke the run
                raise
        return spy.complaints[0] if spy.complaints else None

    ascending([{"rows": r, "tokens": n} for r, n in ((1, 1), (1, 12), (3, 24))], run)
    _no_side_effect(subject)


def _no_side_effect(subject: Subject) -> None:
    """The same lengths without the policy have to give the same text."""
    asked = requests(3, 24, (1.0, 0.0), seed=subject.seed)
    trace = play(subject, subject.build(), Stage(subject.seed), asked)
    replayed = play(subject, Replay(trace), Stage(subject.seed), asked)
    for row, ids in trace.answers.items():
        if ids != replayed.answers[row]:
            fail(
                "drafts of the same lengths give another text without the policy",
                request=row,
                text=ids,
                without=replayed.answers[row],
            )


@contextmanager
def _watched(spy: Spy, context: Context, call: str, given: Any) -> Iterator[None]:
    """Compares everything that a call is shown with itself, before and after."""
    before = _copied(_shown(context, given))
    yield
    changed = _changed(before, _copied(_shown(context, given)))
    if changed:
        spy.complaints.append(f"{call}() changed {changed}")


def _shown(context: Context, given: Any) -> dict[str, Any]:
    shown: dict[str, Any] = {
        f"context.{name}": value
        for name, value in vars(context).items()
        if isinstance(value, (int, list, Tensor))
    }
    shown["the attributes of context"] = sorted(vars(context))
    shown["context.noise.keys"] = context.noise.keys
    shown["context.sampler.params"] = context.sampler.params
    if isinstance(given, DraftStep):
        seen = ("position", "tokens", "probs", "law", "opinion")
        # Asking for the law runs the drafter's step, which changes nothing but the time it takes.
        given = {name: getattr(given, name) for name in seen}
    return {**shown, "argument": given}


def _copied(value: Any) -> Any:
    """A deep copy as plain dicts and lists; tensors are cloned."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, DenseLaw):
        return {"probs": value.probs.clone()}
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _copied(getattr(value, field.name)) for field in fields(value)}
    return value


def _changed(before: Any, after: Any, where: str = "") -> str:
    """Where two copies differ: ``argument.rows[0].drafted``; empty if nowhere."""
    if isinstance(before, Tensor) and isinstance(after, Tensor):
        same = before.shape == after.shape and torch.equal(before, after)
        return "" if same else where
    if type(before) is not type(after):
        return where
    if isinstance(before, dict):
        if before.keys() != after.keys():
            return where
        pairs = ((f"{where}.{key}".lstrip("."), key) for key in before)
        return next(filter(None, (_changed(before[k], after[k], at) for at, k in pairs)), "")
    if isinstance(before, list) and len(before) == len(after):
        places = range(len(before))
        found = (_changed(before[i], after[i], f"{where}[{i}]") for i in places)
        return next(filter(None, found), "")
    return "" if before == after else where
