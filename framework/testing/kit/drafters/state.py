"""What a session holds: rolled back exactly, told of every round, each row on its own."""

from __future__ import annotations

from ..checks import NotApplicable, ascending, check
from ..subject import Subject
from .lab import GREEDY, MANY, SAMPLED, Lab
from .rounds import Run
from .scripts import Rule, pattern, rounds_of

FATES: dict[str, Rule | int] = {
    "nothing accepted": 0,
    "one accepted": 1,
    "all accepted": MANY,
    "in turn": pattern(1, MANY, 0, 2),
}
ZEROS: dict[str, Rule] = {
    "every other round": rounds_of(3, 0),
    "three rounds without": rounds_of(2, 0, 0, 0),
    "rows in turn": pattern(3, 0, 1),
}


@check(
    "drafter",
    "After a round of any fate, the next draft is what a new session makes of the committed text.",
    "A rejected token left behind, or a committed one left out, makes every later draft worse or "
    "its law another one.",
)
def rollback(subject: Subject) -> None:
    lab = Lab(subject)

    def run(rows: int, gamma: int, fate: str) -> str | None:
        return stale(lab, rows, gamma, FATES[fate])

    cases: list[dict[str, object]] = [{"rows": 1, "gamma": 1, "fate": "nothing accepted"}]
    cases += [{"rows": rows, "gamma": 3, "fate": fate} for rows in (1, 3) for fate in FATES]
    ascending(cases, run)
    _says_nothing_of_learners(lab)


@check(
    "drafter",
    "Rounds in which a row, or nobody, drafts are taken in like all others.",
    "Policies stop drafting where it does not pay; a drafter that misses those rounds drafts from a "
    "text that is not there.",
)
def every_round_observed(subject: Subject) -> None:
    lab = Lab(subject)

    def run(rows: int, gammas: str, fate: str) -> str | None:
        return stale(lab, rows, ZEROS[gammas], FATES[fate])

    ascending(
        [
            {"rows": rows, "gammas": gammas, "fate": fate}
            for rows in (1, 2)
            for gammas in ZEROS
            for fate in ("all accepted", "in turn")
        ],
        run,
    )
    _says_nothing_of_learners(lab)


def stale(lab: Lab, rows: int, gamma: Rule | int, fate: Rule | int) -> str | None:
    """How a draft differs from a new session's; for a drafter that learns, from the same run's."""
    prompts = lab.prompts(*[5 + 2 * row for row in range(rows)])
    # In half precision, rounding decides near ties, and a greedy law is all or nothing.
    certain = SAMPLED if lab.rounding else GREEDY
    settings = [SAMPLED if row % 2 == 0 else certain for row in range(rows)]
    run = lab.run(prompts, gamma, fate, 14, settings)
    if lab.learns:
        again = lab.run(prompts, gamma, fate, 14, settings)
        return lab.differs(run, again, range(rows)) or None
    return _not_fresh(lab, run)


def _not_fresh(lab: Lab, run: Run) -> str | None:
    for made in run.proposals:
        ours, theirs = made.sheets(), lab.fresh(run, made).sheets()
        for place, sheet in ours.items():
            difference = sheet.differs(theirs[place])
            if difference and lab.rounding:
                difference = sheet.differs(theirs[place], lab.rounding)
            if difference:
                return (
                    f"row {place}, round {made.round}: the draft differs from a new session's on the "
                    f"same text: {difference}"
                )
    return None


def _says_nothing_of_learners(lab: Lab) -> None:
    if lab.learns:
        raise NotApplicable(
            "the drafter learns from rounds, so that a new session may draft otherwise; that a run "
            "can be repeated was checked"
        )


@check(
    "drafter",
    "A row drafts in a batch what it drafts alone.",
    "A row that reads another one's text, law or noise gives answers that depend on who shares the "
    "batch.",
)
def rows_independent(subject: Subject) -> None:
    lab = Lab(subject)

    def run(rows: int, gamma: int, mixed: bool) -> str | None:
        rule = pattern(gamma, 1, 2) if mixed else pattern(gamma)
        return _unlike_alone(lab, rows, rule, None, [10] * rows)

    ascending(
        [
            {"rows": rows, "gamma": gamma, "mixed": mixed}
            for rows, gamma, mixed in ((2, 1, False), (2, 3, False), (3, 3, True), (5, 2, True))
        ],
        run,
    )


@check(
    "drafter",
    "Rows that finish earlier, or have more accepted, leave the drafts of the others as they were.",
    "Rows leave the batch at different times; state that is not moved with them belongs to others.",
)
def row_fates(subject: Subject) -> None:
    lab = Lab(subject)

    def run(tokens: list[int], fate: str) -> str | None:
        return _unlike_alone(lab, len(tokens), pattern(3), FATES[fate], tokens)

    cases: list[dict[str, object]] = [
        {"tokens": [3, 8], "fate": "nothing accepted"},
        {"tokens": [3, 9], "fate": "in turn"},
    ]
    cases += [{"tokens": [12, 2, 7, 12], "fate": fate} for fate in ("in turn", "one accepted")]
    ascending(cases, run)


def _unlike_alone(
    lab: Lab, rows: int, gamma: Rule, fate: Rule | int | None, tokens: list[int]
) -> str | None:
    prompts = lab.prompts(*[(7, 4, 11, 3, 9)[row % 5] for row in range(rows)])
    settings = [SAMPLED if row % 3 < 2 else GREEDY for row in range(rows)]
    whole = lab.run(prompts, gamma, fate, tokens, settings)
    for row in range(rows):
        alone = lab.run([prompts[row]], gamma, fate, tokens[row], settings[row], places=[row])
        difference = lab.differs(whole, alone, [row])
        if difference:
            return f"in a batch and alone: {difference}"
    return None
