"""Losslessness on the joint law, exactly: every draft and every decision of the rule, added up."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ....specs import DETERMINISTIC
from ...enumeration import Pair, Shape
from ...laws import enumerated_joints, law_of, plain_joint, random_table
from ..checks import NotApplicable, ascending, check
from ..subject import Subject
from .asking import Case, spec_of
from .reading import rounded

EXACT = 1e-12
# (shape, depth, vocabulary, pairs of tables): what is cheap to find is looked for first.
CHAINS: list[tuple[Shape, int, int, int]] = [
    (1, 1, 2, 20),
    (1, 1, 3, 40),
    (2, 2, 2, 20),
    (2, 2, 3, 15),
    (3, 3, 2, 12),
]
TREES: list[tuple[Shape, int, int, int]] = [
    ([-1, -1], 1, 2, 20),
    ([-1, -1], 1, 3, 20),
    ([-1, -1, -1], 1, 3, 20),
    ([-1, -1, 0], 2, 2, 12),
    ([-1, 0, 0, -1], 2, 2, 6),
    ([-1, -1, 0, 0, 1, 1], 2, 2, 3),
]


@check(
    "verifier",
    "Every draft and every decision, added up with their probabilities, give the joint law of plain "
    "decoding, to 1e-12, in chains of 1 to 3 tokens; accept_probs are what decides.",
    "This is losslessness itself, for several tokens at a time: rules exist whose first token is "
    "right and whose second is not.",
)
def joint_law_of_chains(subject: Subject) -> None:
    _check(subject, CHAINS, spec_of(subject).chains)


@check(
    "verifier",
    "The same in trees, for each way of drawing a node's children that the rule declares.",
    "The order in which children were drawn, and whether with replacement, are part of the law.",
)
def joint_law_of_trees(subject: Subject) -> None:
    _check(subject, TREES, spec_of(subject).trees)


def _check(
    subject: Subject, shapes: list[tuple[Shape, int, int, int]], ways: tuple[str, ...]
) -> None:
    spec, rule = spec_of(subject), subject.build()
    if not spec.lossless:
        raise NotApplicable("declared lossy")
    if spec.shared_noise:
        raise NotApplicable("draws with shared noise, not with uniforms: engine_law has its law")
    if not ways:
        raise NotApplicable("declares no such drafts")

    def run(shape: Shape, drawn: str, vocab: int, greedy: bool) -> str | None:
        depth, count = next((d, n) for s, d, v, n in shapes if (s, v) == (shape, vocab))
        tables = _tables(subject.seed, vocab, count)
        if greedy:
            tables = [(_one_hot(target), drafter) for target, drafter in tables[: count // 2]]
        pairs = [(law_of(target), law_of(drafter)) for target, drafter in tables]
        try:
            got = enumerated_joints(rule, pairs, shape, depth + 2, drawn, greedy)
        except AssertionError as refused:  # thresholds that do not decide
            return str(refused)
        return _complaint(got, pairs, depth + 2, drawn)

    with torch.inference_mode():
        ascending(_cases(shapes, ways, spec.greedy_only), run)


def _cases(
    shapes: list[tuple[Shape, int, int, int]], ways: tuple[str, ...], greedy_only: bool
) -> Iterator[Case]:
    for shape, _, vocab, _ in shapes:
        for drawn in ways:
            for greedy in (True,) if greedy_only else (False, True):
                yield {"shape": shape, "drawn": drawn, "vocab": vocab, "greedy": greedy}


def _complaint(got: Tensor, pairs: list[Pair], tokens: int, drawn: str) -> str | None:
    """The first pair of laws with which the rule's text does not follow the target."""
    for joint, (target, drafter) in zip(got, pairs, strict=True):
        plain = plain_joint(target, tokens)
        distance = float((joint - plain).abs().sum() / 2)
        if not distance < EXACT:
            first = [rounded(law.flatten(1).sum(1)) for law in (joint, plain)]
            how = "chosen by" if drawn == DETERMINISTIC else "drawn from"
            return (
                f"the law of {tokens} tokens is off by TV {distance:.3g} (first token {first[0]}, "
                f"the target's {first[1]}, drafts {how} {rounded(drafter(()))})"
            )
    return None


def _one_hot(table: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(table.argmax(1), table.shape[1]).double()


def _tables(seed: int, vocab: int, count: int) -> list[tuple[Tensor, Tensor]]:
    """Targets and drafters with zeros; of the first three, one agrees with its target, one hardly
    overlaps with it and one never does."""
    first = 100_000 * seed
    found = [
        (random_table(first + at, vocab), random_table(first + at + 50_000, vocab))
        for at in range(count)
    ]
    low, high = torch.eye(vocab, dtype=torch.float64)[[0, -1]].unsqueeze(1)
    near = ((found[1][0] + 99 * low) / 100, (found[1][1] + 99 * high) / 100)
    return [*found[3:], (found[0][0], found[0][0]), near, (low, high)]
