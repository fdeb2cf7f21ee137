"""What all checks of verifiers share: which kinds of drafts are tried, and how a rule is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from ....interfaces import Verifier
from ....records import Trial, Verdict
from ....specs import DRAWN, DraftKind, VerifierSpec
from ..subject import Subject

Case = dict[str, object]


def spec_of(subject: Subject) -> VerifierSpec:
    """The spec of a verifier, typed."""
    assert isinstance(subject.spec, VerifierSpec)
    return subject.spec


def kinds_of(subject: Subject) -> list[DraftKind]:
    """The kinds of drafts that a rule says it can judge, chains first."""
    spec = spec_of(subject)
    chains = [DraftKind(drawn) for drawn in DRAWN if drawn in spec.chains]
    return chains + [DraftKind(drawn, True) for drawn in DRAWN if drawn in spec.trees]


def cases_of(subject: Subject, sizes: Sequence[tuple[int, int]], **more: object) -> Iterator[Case]:
    """One case of each size ``(rows, width)`` for each kind of draft, the smallest size first."""
    for rows, width in sizes:
        for kind in kinds_of(subject):
            yield {"rows": rows, "width": width, "drawn": kind.drawn, "tree": kind.tree, **more}


def judge(rule: Verifier, trial: Trial) -> Verdict:
    """The rule's verdict, given as in the loop: no gradients are kept.

    Raises:
        TypeError: it returned something else.
    """
    with torch.inference_mode():
        verdict: object = rule.verify(trial)
    if not isinstance(verdict, Verdict):
        raise TypeError(f"verify returned {type(verdict).__name__}; it must return a Verdict")
    return verdict
