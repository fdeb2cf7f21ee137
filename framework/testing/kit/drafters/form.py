"""What a draft looks like: its kind, its size, its ids and its law."""

from __future__ import annotations

from dataclasses import replace

from ..checks import ascending, check, fail
from ..subject import Subject, declared
from .lab import GREEDY, SAMPLED, Lab
from .scripts import pattern
from .spies import Judge, Proposal
from .wellformed import malformed

# The loop never asks for nothing but zeros, but a drafter of drafters may.
GAMMAS = [[0], [1], [0, 0], [1, 0], [0, 1, 3], [3, 0, 1, 7], [12, 1]]
SIZES: list[dict[str, object]] = [
    {"rows": rows, "gamma": gamma} for rows, gamma in ((1, 1), (1, 3), (2, 2), (4, 4))
]


@check(
    "drafter",
    "Drafts are of the kind that the spec and the built drafter declare.",
    "Verifiers are chosen by the declared kind; one that cannot judge what comes changes the law.",
)
def declared_kind(subject: Subject) -> None:
    lab, said = Lab(subject), declared(subject).kind_of(subject.config)
    if lab.drafter.kind != said:
        fail("spec and built drafter differ in their kind", spec=said, drafter=lab.drafter.kind)
    if said.tree and lab.drafter.max_nodes < 1:
        fail("a drafter of trees has to say its max_nodes", max_nodes=lab.drafter.max_nodes)

    def complaint(made: Proposal) -> str:
        kind = made.draft.kind
        return f"declared {said}, drafted {kind}" if made.draft.width and kind != said else ""

    ascending(SIZES, lambda rows, gamma: drafts(lab, rows, gamma, complaint))


@check(
    "drafter",
    "No row gets more than the gamma asked for it, nor more nodes than max_nodes; 0 is possible.",
    "Buffers and limits are planned by gamma, and a row that may not draft has no room for more.",
)
def at_most_gamma(subject: Subject) -> None:
    lab = Lab(subject)

    def complaint(made: Proposal) -> str:
        return too_much(made, lab.drafter.max_nodes)

    def run(gammas: list[int]) -> str | None:
        prompts = lab.prompts(*[5 + row for row in range(len(gammas))])
        if any(gammas):
            lab.run(prompts, lambda place, _: gammas[place], 1, 16, rounds=2, judge=complaint)
            return None
        ran = lab.run(prompts, 2, 1, 16, rounds=2)
        asked = [replace(made, asked=gammas) for made in ran.proposals[-1:]]
        return next((text for one in asked if (text := complaint(lab.fresh(ran, one)))), None)

    ascending([{"gammas": gammas} for gammas in GAMMAS], run)


@check(
    "drafter",
    "Ids, dtypes, device and shapes are right; each law sums to 1 within 1e-6 and allows its token.",
    "A wrong id or shape stops the run, and a law that is none changes what users read.",
)
def well_formed_drafts(subject: Subject) -> None:
    lab = Lab(subject)
    ascending(
        SIZES,
        lambda rows, gamma: drafts(lab, rows, gamma, lambda made: malformed(made, lab.target)),
    )


def drafts(lab: Lab, rows: int, gamma: int, judge: Judge) -> None:
    """Some rounds of every fate; the first complaint about a draft fails the check."""
    prompts = lab.prompts(*[4 + 3 * row for row in range(rows)])
    settings = [SAMPLED if row % 2 == 0 else GREEDY for row in range(rows)]
    lab.run(prompts, gamma, pattern(0, 1, 2), 12, settings, judge=judge)


def too_much(made: Proposal, max_nodes: int) -> str:
    """Which row drafted more than it was asked for; empty if none did."""
    if len(made.lengths) != len(made.asked):
        return f"{len(made.lengths)} lengths for {len(made.asked)} rows"
    tree = made.draft.tree is not None
    for row, (length, gamma) in enumerate(zip(made.lengths, made.asked, strict=True)):
        most = gamma if not tree or gamma == 0 else max_nodes
        if length > most:
            return f"row {row} drafted {length} tokens where {most} are possible (gamma {gamma})"
        if tree and length and int(made.draft.shape.depths[row, :length].max()) >= gamma:
            return f"row {row} drafted a path longer than its gamma {gamma}"
    return ""
