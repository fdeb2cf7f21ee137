"""Checks of rows: their neighbours, and the neighbours' fates, are none of their business."""

from __future__ import annotations

from ....requests import Request
from ....specs import PolicySpec
from ..checks import NotApplicable, ascending, check
from ..subject import Subject
from .runs import Choice, Trace, difference, play
from .stage import Stage, requests

ROUNDS = 8


@check(
    "policy",
    "A row's gammas are the same in any batch, in any place of it, as when it is alone.",
    "Otherwise its text depends on which requests happen to share its batch.",
)
def rows_independent(subject: Subject) -> None:
    _needs_local_rows(subject)
    run_alone = _Alone(subject, ROUNDS)

    def run(rows: int, drafter: str) -> str | None:
        asked = requests(rows, 200, (1.0, 0.0, 0.7), seed=subject.seed)
        stage = Stage(subject.seed, drafter)
        alone = run_alone(stage, asked)
        together = (
            play(subject, subject.build(), stage, order, ROUNDS) for order in (asked, asked[::-1])
        )
        found = (difference(one, alone, f"beside {rows - 1} others", "alone") for one in together)
        return next(filter(None, found), None)

    ascending([{"rows": r, "drafter": d} for r in (2, 4) for d in ("close", "same", "wrong")], run)


class _Alone:
    """Every request in a batch of its own; one that several cases ask for is run once."""

    def __init__(self, subject: Subject, rounds: int | None = None) -> None:
        self.subject, self.rounds = subject, rounds
        self.seen: dict[tuple[str, str], dict[int, list[Choice]]] = {}

    def __call__(self, stage: Stage, asked: list[Request]) -> Trace:
        whole = Trace()
        for one in asked:
            key = stage.drafter, repr(one)
            if key not in self.seen:
                policy = self.subject.build()
                self.seen[key] = play(self.subject, policy, stage, [one], self.rounds).choices
            whole.choices |= self.seen[key]
        return whole


@check(
    "policy",
    "A row's gammas stay the same when other rows finish, or are cancelled, before it.",
    "State that is kept by a row's place goes to the wrong row once one before it has left.",
)
def row_fates(subject: Subject) -> None:
    _needs_local_rows(subject)
    run_alone = _Alone(subject)

    def run(rows: int, ends: str, drafter: str) -> str | None:
        stage = Stage(subject.seed, drafter)
        early = {row: 1 + row % 3 for row in range(rows - 1) if row % 3 != 1}
        limits = [4 * early.get(row, 6) for row in range(rows)]
        asked = requests(rows, limits, (1.0, 0.0, 0.7), seed=subject.seed)
        cancel = early if ends == "cancelled" else {}
        together = play(subject, subject.build(), stage, asked, cancel=cancel)
        alone = run_alone(stage, asked)
        return difference(together, alone, "when others left before it", "alone")

    ascending(
        [
            {"rows": r, "ends": e, "drafter": d}
            for r in (2, 5)
            for e in ("finished", "cancelled")
            for d in ("close", "same")
        ],
        run,
    )


def _needs_local_rows(subject: Subject) -> None:
    spec = subject.spec
    assert isinstance(spec, PolicySpec)
    if not spec.ability("row_local", subject.config):
        raise NotApplicable("declared row_local=False: its rows share what they learn")
    if not spec.ability("repeatable", subject.config):
        raise NotApplicable("declared repeatable=False: no two runs of it need to be alike")
