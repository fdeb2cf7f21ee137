"""Checks of single verdicts: what the rule declares, their form, what it may touch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

from ....interfaces import Verifier
from ....law import DenseLaw, PointMass
from ....records import Draft, Trial
from ....specs import DRAWN, DraftKind
from ....tree import Tree
from ..checks import ascending, check, fail
from ..process import generator_states, moved
from ..subject import Subject
from .asking import Case, cases_of, judge, kinds_of, spec_of
from .reading import malformed, told, unlike
from .trials import CHILDREN, Row, random_row, rows_of, trial_of

SIZES = [(1, 0), (1, 1), (2, 1), (1, 3), (5, 3), (40, 7)]
ABILITIES = ("lossless", "greedy_only", "chains", "trees", "shared_noise")
DTYPES = {"float64": torch.float64, "float32": torch.float32}


@check(
    "verifier",
    "The rule is a Verifier, and its attributes say what its spec says.",
    "A drafter is paired by the spec, a draft is judged by the rule: where they differ, a rule "
    "gets drafts that it does not judge rightly, or a lossy run is called lossless.",
)
def declared_abilities(subject: Subject) -> None:
    spec, rule = spec_of(subject), subject.build()
    if not isinstance(rule, Verifier):
        fail(f"the factory made a {type(rule).__name__}; it must make a Verifier")
    for name in ABILITIES:
        said, done = getattr(spec, name), getattr(rule, name)
        if said != done and not (name in ("chains", "trees") and set(said) == set(done)):
            fail(f"{name} is {said!r} in the spec and {done!r} in the rule")
    ways = {*spec.chains, *spec.trees}
    if not ways or ways - set(DRAWN):
        fail(f"chains={spec.chains!r}, trees={spec.trees!r}: at least one of {', '.join(DRAWN)}")
    for drawn, tree in product(DRAWN, (False, True)):
        kind = DraftKind(drawn, tree)
        if spec.judges(kind) != rule.judges(kind):
            fail(f"the spec and the rule's judges() differ about {kind}")


@check(
    "verifier",
    "Verdicts have the right shapes and dtypes, accept a path from the root that is no longer than "
    "the draft, and name a law for the next token; also of empty drafts and ragged batches.",
    "The loop commits what a verdict says: a sum that is not 1 shifts every later token.",
)
def well_formed_verdicts(subject: Subject) -> None:
    rule, shared = subject.build(), spec_of(subject).shared_noise

    def run(rows: int, width: int, drawn: str, tree: bool, dtype: str) -> str | None:
        kind = DraftKind(drawn, tree)
        made = rows_of(subject, kind, rows, width)
        trial = trial_of(made, kind, shared, dtype=DTYPES[dtype])
        return malformed(judge(rule, trial), trial)

    sizes = [size for size in SIZES if size[1]]
    ascending(_empty_cases(subject), lambda **case: _empty(rule, subject, **case))
    for dtype in DTYPES:
        ascending(cases_of(subject, sizes, dtype=dtype), run)


def _empty_cases(subject: Subject) -> Iterator[Case]:
    """A round without a draft is a chain of no chosen tokens, whatever the rule declares."""
    trees = [False] + [True] * any(kind.tree for kind in kinds_of(subject))
    for rows, tree in product((1, 4), trees):
        yield {"rows": rows, "width": 0, "tree": tree}


def _empty(rule: Verifier, subject: Subject, rows: int, width: int, tree: bool) -> str | None:
    trial = empty_trial(subject, rows, tree)
    verdict = judge(rule, trial)
    complaint = malformed(verdict, trial)
    if complaint is None and not torch.allclose(
        verdict.next_law.double(), trial.target_probs[:, 0], rtol=0, atol=1e-9
    ):
        complaint = "nothing was drafted, and next_law is not the target's law"
    return complaint


def empty_trial(subject: Subject, rows: int, tree: bool = False) -> Trial:
    """Rows without a draft, as the loop makes them."""
    spec, kind = spec_of(subject), DraftKind()
    made = [random_row(at, kind, 0, spec.greedy_only) for at in range(rows)]
    trial = trial_of(made, kind, spec.shared_noise)
    tokens = trial.draft.tokens
    shape = Tree(tokens.clone(), 0, CHILDREN) if tree else None
    draft = Draft(tokens, [0] * rows, PointMass(tokens), shape)
    return Trial(
        draft, trial.target_probs, trial.uniforms, trial.logits, trial.greedy, trial.gumbel
    )


@check(
    "verifier",
    "Nothing in a trial is written to.",
    "The loop and the drafter read the same tensors after the rule did.",
)
def inputs_unchanged(subject: Subject) -> None:
    rule = subject.build()

    def run(rows: int, width: int, drawn: str, tree: bool) -> str | None:
        trial = _trial(subject, rows, width, drawn, tree)
        before = {name: tensor.clone() for name, tensor in _tensors(subject, trial).items()}
        lengths = list(trial.draft.lengths)
        judge(rule, trial)
        for name, tensor in _tensors(subject, trial).items():
            if not torch.equal(tensor.nan_to_num(9.0), before[name].nan_to_num(9.0)):
                return f"verify wrote into {name}"
        return None if lengths == trial.draft.lengths else "verify changed draft.lengths"

    ascending(cases_of(subject, SIZES[1:]), run)


def _trial(subject: Subject, rows: int, width: int, drawn: str, tree: bool) -> Trial:
    kind = DraftKind(drawn, tree)
    made: list[Row] = rows_of(subject, kind, rows, width)
    return trial_of(made, kind, spec_of(subject).shared_noise)


def _tensors(subject: Subject, trial: Trial) -> dict[str, Tensor]:
    """Every tensor of a trial, by name."""
    found = {
        name: getattr(trial, name) for name in ("target_probs", "uniforms", "logits", "greedy")
    }
    found["draft.tokens"], law = trial.draft.tokens, trial.draft.law
    if isinstance(law, DenseLaw):
        found["draft.law"] = law.probs
    if trial.draft.tree is not None:
        found["draft.tree.parents"] = trial.draft.tree.parents
    if spec_of(subject).shared_noise:
        found["gumbel()"] = trial.gumbel()
    return found


@check(
    "verifier",
    "The same trial gets the same verdict, whatever was judged in between and by whichever object; "
    "no global random state is read or moved.",
    "One rule serves all requests: what it remembered of one would change the text of another, and "
    "a run could not be repeated from its seed.",
)
def repeatable(subject: Subject) -> None:
    rule = subject.build()

    def run(rows: int, width: int, drawn: str, tree: bool) -> str | None:
        trial = _trial(subject, rows, width, drawn, tree)
        other = _trial(subject, rows + 1, width + 1, drawn, tree)
        states = generator_states()
        first = told(judge(rule, trial), trial)
        if moved(states):
            return "verify moved a global random generator"
        again = unlike(first, told(judge(rule, trial), trial))
        if again:
            return f"the same trial twice: {again}"
        judge(rule, other)
        later = unlike(first, told(judge(rule, trial), trial))
        if later:
            return f"the same trial before and after another one: {later}"
        fresh = unlike(first, told(judge(subject.build(), trial), trial))
        return f"the same trial before a new object: {fresh}" if fresh else None

    ascending(cases_of(subject, SIZES[1:]), run)
