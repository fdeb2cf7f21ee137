"""Checks of batches: rows do not feel each other, nor what stands behind their own draft."""

from __future__ import annotations

from ....specs import DETERMINISTIC, DraftKind
from ..checks import ascending, check
from ..subject import Subject
from .asking import cases_of, judge, spec_of
from .reading import Told, told, unlike
from .trials import NOT_A_NUMBER, OTHERS, ZEROS, Row, random_row, rows_of, trial_of

SIZES = [(2, 1), (3, 2), (5, 3), (40, 7)]


@check(
    "verifier",
    "A row gets the same verdict alone, in a batch of others, and in any order of them.",
    "A request's text must not depend on what happens to be answered beside it.",
)
def rows_independent(subject: Subject) -> None:
    rule, shared = subject.build(), spec_of(subject).shared_noise

    def run(rows: int, width: int, drawn: str, tree: bool) -> str | None:
        kind = DraftKind(drawn, tree)
        made = rows_of(subject, kind, rows, width)

        def verdicts(chosen: list[Row]) -> list[Told]:
            trial = trial_of(chosen, kind, shared)
            return told(judge(rule, trial), trial)

        together = verdicts(made)
        alone = [verdicts([row])[0] for row in made]
        difference = unlike(together, alone)
        if difference:
            return f"in the batch and alone: {difference}"
        turned = verdicts(made[::-1])[::-1]
        difference = unlike(together, turned)
        return f"in the batch and with its rows reversed: {difference}" if difference else None

    ascending(cases_of(subject, SIZES), run)


@check(
    "verifier",
    "Tokens, laws, uniforms and noise behind a row's own length do not matter.",
    "In a batch drafts have different lengths, and what fills the shorter ones is arbitrary.",
)
def padding_ignored(subject: Subject) -> None:
    rule, shared = subject.build(), spec_of(subject).shared_noise

    def run(rows: int, width: int, drawn: str, tree: bool) -> str | None:
        kind = DraftKind(drawn, tree)
        made = rows_of(subject, kind, rows, width)
        trial = trial_of(made, kind, shared)
        first = told(judge(rule, trial), trial)
        longer = random_row(subject.seed, kind, width + 2, made[0].greedy)
        for padding in (ZEROS, OTHERS, NOT_A_NUMBER):
            if padding == NOT_A_NUMBER and drawn == DETERMINISTIC:
                continue
            trial = trial_of([*made, longer], kind, shared, padding)
            difference = unlike(first, told(judge(rule, trial), trial)[:-1])
            if difference:
                return f"beside a row of {width + 2} nodes, {padding} in the padding: {difference}"
        return None

    ascending(cases_of(subject, [(1, 0), (1, 1), *SIZES]), run)
