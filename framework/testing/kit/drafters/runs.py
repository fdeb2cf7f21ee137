"""What one run leaves behind for the next: nothing. And noise that belongs to the request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from ....decoding import Batch
from ....requests import Answer, Request
from ..checks import ascending, check, fail
from ..process import moved, seeded_generators
from ..subject import Subject
from .lab import SAMPLED, Lab
from .rounds import Run
from .scripts import pattern
from .spies import Journal

GAMMA = pattern(3, 2)
LUCK = -20.0  # a logarithm


@check(
    "drafter",
    "A seed gives the same drafts each time, another seed others, and no global generator is used.",
    "Answers cannot be repeated otherwise, and noise that other code shares is not independent.",
)
def seeds(subject: Subject) -> None:
    lab = Lab(subject)

    def run(rows: int) -> str | None:
        prompts = lab.prompts(*[5 + row for row in range(rows)])
        with untouched(1):
            one = lab.run(prompts, GAMMA, seed=1)
        with untouched(2):
            again = lab.run(prompts, GAMMA, seed=1)
        difference = lab.differs(one, again, range(rows))
        return f"one seed, two runs: {difference}" if difference else None

    ascending([{"rows": 1}, {"rows": 4}], run)
    if lab.kind_is_drawn:
        _seed_matters(lab)


def _seed_matters(lab: Lab) -> None:
    """First nodes only: behind them, the texts differ as well."""
    prompts = lab.prompts(*[6] * 48)
    runs = [lab.run(prompts, 3, seed=seed, rounds=1) for seed in (1, 2)]
    laws = [made.laws for made in runs[0].proposals if made.laws is not None]
    # How likely it is that 48 draws come out the same by luck.
    luck = float(laws[0][:, 0].double().square().sum(-1).log().sum()) if laws else 0.0
    if luck < LUCK and not runs[0].differs(runs[1], range(48)):
        fail("two seeds gave the same drafts", prompts=prompts[:2], rows=48)


@contextmanager
def untouched(seed: int) -> Iterator[None]:
    """Fails if a global generator moved; they begin at ``seed`` and come back as they were."""
    with seeded_generators(seed) as begun:
        yield
        if moved(begun):
            fail(f"the global generator of {' and '.join(moved(begun))} was used or seeded")


@check(
    "drafter",
    "A run gives what it gives on a new drafter, whatever ran before it or runs beside it.",
    "State on the drafter hands one user's text to another, and makes answers depend on the order "
    "of requests.",
)
def no_state_across_runs(subject: Subject) -> None:
    lab = Lab(subject)

    @cache
    def expected(rows: int) -> Run:
        other = lab.prompts(*[6 + row for row in range(rows)], seed=2)
        return lab.run(other, GAMMA, tokens=12, drafter=lab.build())

    def run(rows: int, beside: bool) -> str | None:
        one, other = (lab.prompts(*[6 + row for row in range(rows)], seed=n) for n in (1, 2))
        due, used = expected(rows), lab.build()
        if beside:
            found = _in_the_middle(lab, one, other, used)
        else:
            lab.run(one, GAMMA, tokens=12, drafter=used)
            found = lab.run(other, GAMMA, tokens=12, drafter=used)
        difference = lab.differs(found, due, range(rows))
        return f"on a new drafter and on a used one: {difference}" if difference else None

    ascending(
        [{"rows": rows, "beside": beside} for rows in (1, 3) for beside in (False, True)], run
    )


def _in_the_middle(lab: Lab, one: list[list[int]], other: list[list[int]], used: Any) -> Run:
    """Runs ``other`` while a session for ``one`` is open, step by step."""
    with opened(lab, one, used) as first, opened(lab, other, used) as second:
        for _ in range(3):
            for batch in (first, second):
                if batch.answers:
                    batch.step()
        while second.answers:
            second.step()
        journal = second.parts.drafter.journal  # type: ignore[attr-defined]
        return Run([], journal.proposals, [])


@contextmanager
def opened(lab: Lab, prompts: list[list[int]], drafter: Any) -> Iterator[Batch]:
    """A batch to be stepped by hand."""
    journal = Journal(list(range(len(prompts))))
    answers = [
        Answer(Request(list(prompt), 12, SAMPLED, seed=lab.seed, index=place))
        for place, prompt in enumerate(prompts)
    ]
    with lab.blamed(journal, prompts, None), torch.inference_mode():
        yield Batch(lab.parts(drafter, journal, GAMMA, None), answers)


@check(
    "drafter",
    "A run that is given up, or in which the target fails, leaves the drafter as it was.",
    "Servers lose clients and memory; the next request must not pay for it.",
)
def interrupted_runs(subject: Subject) -> None:
    lab = Lab(subject)

    @cache
    def expected(rows: int) -> Run:
        prompts = lab.prompts(*[6 + row for row in range(rows)], seed=1)
        return lab.run(prompts, GAMMA, drafter=lab.build())

    def run(rows: int, how: str) -> str | None:
        prompts, others = (lab.prompts(*[6 + row for row in range(rows)], seed=n) for n in (1, 2))
        due, used = expected(rows), lab.build()
        if how == "given up":
            lab.run(others, GAMMA, drafter=used, rounds=2)
        else:
            _target_fails(lab, others, used)
        found = lab.run(prompts, GAMMA, drafter=used)
        difference = lab.differs(found, due, range(rows))
        return f"before and after: {difference}" if difference else None

    ascending(
        [{"rows": rows, "how": how} for rows in (1, 3) for how in ("given up", "target fails")], run
    )


class _Broken(Exception):
    """The target's own."""


def _target_fails(lab: Lab, prompts: list[list[int]], drafter: Any) -> None:
    """One whole round, and one in which the draft is made and the target's forward raises."""

    def broken(*given: object) -> torch.Tensor:
        raise _Broken

    with opened(lab, prompts, drafter) as batch:
        batch.step()
        setattr(batch.context.target, "forward", broken)  # noqa: B010 - one session, not its class
        try:
            batch.step()
        except Exception as error:
            if not isinstance(error.__cause__, _Broken):
                raise
