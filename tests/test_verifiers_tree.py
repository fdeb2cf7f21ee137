"""Tree rules: more shapes enumerated, golden values, what one rule owes another, edge cases.

The common shapes are enumerated for all rules in ``test_law_enumeration.py``.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from foredraft.framework.children import draw_children
from foredraft.framework.interfaces import Verifier
from foredraft.framework.law import DenseLaw, DraftLaw, PointMass
from foredraft.framework.records import Draft, Trial, Verdict
from foredraft.framework.specs import DETERMINISTIC, INDEPENDENT, WITHOUT_REPLACEMENT, DraftKind
from foredraft.framework.testing.laws import (
    Pair,
    Shape,
    enumerated_joints,
    law_of,
    make_trial,
    mean_accepted,
    means_accepted,
    plain_joint,
    random_table,
)
from foredraft.framework.tree import Tree
from foredraft.verifiers.block import BlockVerifier
from foredraft.verifiers.kseq import KSeqVerifier, _smallest_factor
from foredraft.verifiers.recursive import RecursiveVerifier
from foredraft.verifiers.token import TokenVerifier
from foredraft.verifiers.traversal import TraversalVerifier

LARGEST = 1 - 2.0**-53
RULES: dict[str, Verifier] = {
    "recursive": RecursiveVerifier(),
    "kseq": KSeqVerifier(),
    "traversal": TraversalVerifier(),
}
JUDGED = [(name, way) for name, rule in RULES.items() for way in rule.trees]
every_way = pytest.mark.parametrize(("name", "drawn"), JUDGED, ids=lambda value: str(value))


def tables(vocab: int, count: int, seed: int = 0) -> list[Pair]:
    seeds = range(seed, seed + count)
    return [
        (law_of(random_table(s, vocab)), law_of(random_table(s + 90_000, vocab))) for s in seeds
    ]


def distances(rule: Verifier, pairs: list[Pair], shape: Shape, drawn: str, count: int) -> Tensor:
    """Total variation between what the rule emits and plain decoding."""
    got = enumerated_joints(rule, pairs, shape, count, drawn)
    wanted = torch.stack([plain_joint(target, count) for target, _ in pairs])
    return (got - wanted).abs().flatten(1).sum(1) / 2


# --- the joint law -----------------------------------------------------------------------------

# name -> parents, vocabulary, pairs of tables, tokens
SHAPES: dict[str, tuple[list[int], int, int, int]] = {
    "a bush in a bush": ([-1, -1, 0, 2, 1, 0], 2, 3, 4),
    "leaves between families": ([-1, 0, -1, 1, 2, 1], 2, 3, 4),
    "an only child with children": ([-1, 0, 0, 0], 3, 6, 3),
    "families drawn in parts": ([-1, 0, -1, 0, -1], 3, 2, 3),
}


@every_way
@pytest.mark.parametrize("shape", SHAPES)
def test_joint_law_is_the_targets(name: str, drawn: str, shape: str) -> None:
    parents, vocab, count, tokens = SHAPES[shape]
    assert distances(RULES[name], tables(vocab, count), parents, drawn, tokens).max() < 1e-12


# --- golden values -----------------------------------------------------------------------------


def fixed(*probs: float) -> Any:
    return law_of(torch.tensor([probs], dtype=torch.float64))


@pytest.mark.parametrize(
    ("name", "drawn", "wanted"),
    [
        ("recursive", INDEPENDENT, 3 / 4),
        ("recursive", WITHOUT_REPLACEMENT, 1.0),
        ("traversal", INDEPENDENT, 3 / 4),
        ("traversal", WITHOUT_REPLACEMENT, 1.0),
        ("kseq", INDEPENDENT, 3 / 4),
    ],
)
def test_two_children_of_an_even_draft(name: str, drawn: str, wanted: float) -> None:
    pair = fixed(1.0, 0.0), fixed(0.5, 0.5)
    assert mean_accepted(RULES[name], *pair, [-1, -1], drawn) == pytest.approx(wanted, abs=1e-9)


def test_factor_of_two_children_of_an_even_draft() -> None:
    target = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    draft = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    factor, beta = _smallest_factor(target, draft, torch.tensor([2.0], dtype=torch.float64))
    assert float(factor) == pytest.approx(1.5, abs=1e-8)
    assert float(beta) == pytest.approx(0.5, abs=1e-8)


def test_factor_is_the_smallest_for_which_the_rule_is_a_law() -> None:
    target, draft = random_table(1, 6, laws=200), random_table(2, 6, laws=200)
    count = torch.arange(200).remainder(5).double() + 1

    def spare(factor: Tensor) -> Tensor:
        """What stands at most, less what may stand, at a factor."""
        beta = torch.minimum(draft, target / factor.unsqueeze(1)).sum(1)
        return factor * beta - (1 - (1 - beta) ** count)

    factor, _ = _smallest_factor(target, draft, count)
    assert ((factor >= 1) & (factor <= count)).all()
    assert (spare(factor) > -1e-12).all()
    inside = factor > 1 + 1e-6
    assert 20 < int(inside.sum()) < 200
    assert (spare(factor - 1e-6)[inside] < 0).all()


@pytest.mark.parametrize("name", ["recursive", "traversal"])
def test_chosen_candidates_stand_with_the_targets_probability_of_them(name: str) -> None:
    target, draft = fixed(0.45, 0.30, 0.20, 0.05), fixed(0.10, 0.20, 0.30, 0.40)
    accepted = mean_accepted(RULES[name], target, draft, [-1, -1], DETERMINISTIC)
    assert accepted == pytest.approx(0.05 + 0.20)  # the draft's likeliest two: tokens 3 and 2


@pytest.mark.parametrize("name", ["recursive", "traversal"])
def test_a_chosen_candidate_that_did_not_stand_does_not_follow(name: str) -> None:
    tokens = torch.tensor([[3, 2]])
    draft = Draft(tokens, [2], PointMass(tokens), Tree(torch.tensor([[-1, -1]]), 1, 2))
    target = torch.tensor([0.45, 0.30, 0.20, 0.05], dtype=torch.float64).expand(1, 3, 4)
    uniforms = torch.full((1, 2), LARGEST, dtype=torch.float64)
    verdict = RULES[name].verify(make_trial(draft, target, uniforms))
    assert verdict.accepted.tolist() == [0]
    wanted = torch.tensor([[0.6, 0.4, 0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(verdict.next_law, wanted)
    torch.testing.assert_close(verdict.accept_probs[0, 1], torch.tensor(0.20 / 0.95).double())


# --- one rule and another ----------------------------------------------------------------------


@pytest.mark.parametrize("drawn", RULES["traversal"].trees)
def test_traversal_accepts_no_less_than_recursive_rejection(drawn: str) -> None:
    gain = 0.0
    for parents, vocab in (([-1, -1, 0, 0, 1, 1], 2), ([-1, 0, 0, -1], 3)):
        pairs = tables(vocab, 30, 300)
        deep = means_accepted(RULES["traversal"], pairs, parents, drawn)
        plain = means_accepted(RULES["recursive"], pairs, parents, drawn)
        assert (deep > plain - 1e-12).all()
        gain = max(gain, float((deep - plain).max()))
    # Chosen children have no draft law that a whole path could make better use of.
    assert gain > 0.01 or drawn == DETERMINISTIC


def test_traversal_accepts_as_block_verification_does_in_the_golden_case() -> None:
    pair = fixed(1 / 3, 2 / 3), fixed(2 / 3, 1 / 3)
    assert mean_accepted(RULES["traversal"], *pair, 2) == pytest.approx(11 / 9)
    assert mean_accepted(RULES["traversal"], *pair, [-1, 0], WITHOUT_REPLACEMENT) == pytest.approx(
        11 / 9
    )
    assert mean_accepted(RULES["recursive"], *pair, 2) == pytest.approx(10 / 9)


@pytest.mark.parametrize("drawn", [INDEPENDENT, DETERMINISTIC])
@pytest.mark.parametrize(
    ("rule", "other"),
    [
        (TraversalVerifier(), BlockVerifier()),
        (RecursiveVerifier(), TokenVerifier()),
        (KSeqVerifier(), TokenVerifier()),
    ],
    ids=["traversal and block", "recursive and token", "kseq and token"],
)
def test_same_verdicts_on_chains(rule: Verifier, other: Verifier, drawn: str) -> None:
    rows, width, vocab = 600, 4, 4
    target = random_table(5, vocab, laws=rows * (width + 1)).view(rows, width + 1, vocab)
    drafted = random_table(6, vocab, laws=rows * width).view(rows, width, vocab)
    tokens = drafted.flatten(0, 1).multinomial(1).view(rows, width)
    law = PointMass(tokens) if drawn == DETERMINISTIC else DenseLaw(drafted)
    draft = Draft(tokens, [row % (width + 1) for row in range(rows)], law)
    uniforms = torch.rand(rows, width, dtype=torch.float64)
    one, two = (r.verify(make_trial(draft, target, uniforms)) for r in (rule, other))
    assert torch.equal(one.accepted, two.accepted)
    torch.testing.assert_close(one.next_law, two.next_law)
    asked = one.accept_probs > 0  # nodes that a rule did not come to may have a threshold, or 0
    torch.testing.assert_close(one.accept_probs[asked], two.accept_probs[asked])
    assert one.path is not None
    order = torch.arange(width).where(torch.arange(width) < one.accepted.unsqueeze(1), -1)
    assert torch.equal(one.path, order)


# --- rows of a batch ---------------------------------------------------------------------------

WIDTH, VOCAB = 8, 6


@dataclasses.dataclass(frozen=True)
class Row:
    """One row's draft: parents, tokens, laws behind each node and before it, uniforms."""

    parents: list[int]
    tokens: Tensor
    target: Tensor
    drafted: Tensor
    uniforms: Tensor


def random_row(seed: int, drawn: str, dtype: torch.dtype) -> Row:
    """A random tree of 0 to ``WIDTH`` nodes of up to 3 children, drawn from random laws."""
    source, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    parents: list[int] = []
    for node in range(source.randrange(WIDTH + 1)):
        free = [p for p in range(-1, node) if parents.count(p) < 3]
        parents.append(source.choice(free))
    target = random_table(seed, VOCAB, laws=len(parents) + 1).to(dtype)
    near = target * torch.rand(target.shape, generator=generator)
    other = random_table(seed + 70_000, VOCAB, laws=len(parents) + 1)
    drafted = (near + other).to(dtype) / (near + other).sum(-1, keepdim=True).to(dtype)
    tokens = torch.zeros(len(parents), dtype=torch.int64)
    for parent in set(parents):
        nodes = [node for node, above in enumerate(parents) if above == parent]
        noise = torch.rand(1, 1, len(nodes), generator=generator, dtype=torch.float64)
        tokens[nodes] = draw_children(drafted[parent + 1].view(1, 1, -1), noise, drawn)[0, 0]
    uniforms = torch.rand(len(parents), generator=generator, dtype=torch.float64)
    return Row(parents, tokens, target, drafted, uniforms)


def together(rows: list[Row], drawn: str, width: int, depth: int) -> Trial:
    """One batch of rows; what lies behind a row's own end is rubbish, NaN where it can be."""
    dtype, lengths = rows[0].target.dtype, [len(row.parents) for row in rows]
    parents = torch.randint(-1, width, (len(rows), width)) if width else torch.zeros(len(rows), 0)
    parents = torch.minimum(parents.long(), torch.arange(width) - 1)
    tokens = torch.randint(0, VOCAB, (len(rows), width))
    uniforms = torch.rand(len(rows), width, dtype=torch.float64)
    target = torch.full((len(rows), width + 1, VOCAB), torch.nan, dtype=dtype)
    drafted = target.clone()
    for at, row in enumerate(rows):
        size = lengths[at]
        parents[at, :size] = torch.tensor(row.parents, dtype=torch.int64)
        tokens[at, :size], uniforms[at, :size] = row.tokens, row.uniforms
        target[at, : size + 1], drafted[at, : size + 1] = row.target, row.drafted
    tree = Tree(parents, depth, 3)
    law: DraftLaw = DenseLaw(drafted, tree.contexts)
    if drawn == DETERMINISTIC:
        law = PointMass(tokens)
    return make_trial(Draft(tokens, lengths, law, tree, drawn), target, uniforms)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@every_way
def test_rows_do_not_feel_each_other(name: str, drawn: str, dtype: torch.dtype) -> None:
    rows = [random_row(seed, drawn, dtype) for seed in range(60)]
    batch = RULES[name].verify(together(rows, drawn, WIDTH, WIDTH))
    assert batch.path is not None and batch.path.shape == (60, WIDTH)
    seen = set()
    for at, row in enumerate(rows):
        size = len(row.parents)
        alone = RULES[name].verify(together([row], drawn, size, size))
        accepted = int(alone.accepted)
        seen.add(accepted)
        assert int(batch.accepted[at]) == accepted
        assert alone.path is not None
        assert batch.path[at, :accepted].tolist() == alone.path[0, :accepted].tolist()
        torch.testing.assert_close(batch.accept_probs[at, :size], alone.accept_probs[0])
        assert (batch.accept_probs[at, size:] == 0).all()
        torch.testing.assert_close(batch.next_law[at], alone.next_law[0])
    assert {0, 1, 2} <= seen


@every_way
def test_verdicts_are_well_formed(name: str, drawn: str) -> None:
    rows = [random_row(seed, drawn, torch.float32) for seed in range(300)]
    verdict = RULES[name].verify(together(rows, drawn, WIDTH, WIDTH))
    assert verdict.accepted.dtype == torch.int64 and verdict.path is not None
    assert verdict.next_law.dtype == torch.float32
    assert (verdict.next_law >= 0).all()
    torch.testing.assert_close(verdict.next_law.sum(1), torch.ones(300), rtol=0, atol=1e-5)
    assert ((verdict.accept_probs >= 0) & (verdict.accept_probs <= 1)).all()
    for row, accepted, path in zip(rows, verdict.accepted.tolist(), verdict.path, strict=True):
        way = path[:accepted].tolist()
        assert [row.parents[node] for node in way] == [-1, *way][:accepted]


# --- edge cases --------------------------------------------------------------------------------


@every_way
@pytest.mark.parametrize("depth", [0, 2])
def test_nothing_drafted_is_a_plain_step(name: str, drawn: str, depth: int) -> None:
    empty, target = torch.zeros(2, 0, dtype=torch.int64), random_table(3, 4, laws=2).view(2, 1, 4)
    law = PointMass(empty) if drawn == DETERMINISTIC else DenseLaw(target, empty)
    draft = Draft(empty, [0, 0], law, Tree(empty, depth, 2), drawn)
    verdict = RULES[name].verify(make_trial(draft, target, torch.zeros(2, 0).double()))
    assert verdict.accepted.tolist() == [0, 0]
    assert verdict.accept_probs.shape == (2, 0)
    assert verdict.path is not None and verdict.path.shape == (2, depth)
    assert torch.equal(verdict.next_law, target[:, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@every_way
def test_a_draft_that_agrees_stands(name: str, drawn: str, dtype: torch.dtype) -> None:
    """With one law for both, the first child of each node stands, whatever the uniforms."""
    rows = [random_row(seed, drawn, dtype) for seed in range(100)]
    rows = [dataclasses.replace(r, drafted=r.target, tokens=r.tokens * 0) for r in rows]
    sure = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0, 0.0], dtype=dtype)
    for row in rows:  # the law behind every node: token 0
        row.target[:] = sure
    trial = together(rows, drawn, WIDTH, WIDTH)
    uniforms = torch.full((100, WIDTH), LARGEST, dtype=torch.float64)
    trial = dataclasses.replace(trial, uniforms=uniforms)
    verdict = RULES[name].verify(trial)
    for row, accepted in zip(rows, verdict.accepted.tolist(), strict=True):
        at, depth = -1, 0
        while at in row.parents:
            at, depth = row.parents.index(at), depth + 1
        assert accepted == depth
    assert torch.equal(verdict.next_law, sure.expand(100, VOCAB))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@every_way
def test_laws_that_exclude_each_other_reject_all(name: str, drawn: str, dtype: torch.dtype) -> None:
    draft_row = torch.tensor([0.0, 0.0, 0.5, 0.5], dtype=dtype)
    target = torch.tensor([0.3, 0.7, 0.0, 0.0], dtype=dtype).expand(1, 4, 4)
    tokens = torch.tensor([[3, 2, 2]])
    tree = Tree(torch.tensor([[-1, -1, 0]]), 2, 2)
    law = DenseLaw(draft_row.expand(1, 4, 4), tree.contexts)
    draft = Draft(tokens, [3], law, tree, drawn) if drawn != DETERMINISTIC else None
    draft = draft or Draft(tokens, [3], PointMass(tokens), tree)
    verdict = RULES[name].verify(make_trial(draft, target, torch.zeros(1, 3).double()))
    assert verdict.accepted.tolist() == [0]
    torch.testing.assert_close(verdict.next_law, target[:, 0])


@pytest.mark.parametrize("name", RULES)
def test_what_it_says_it_can_judge(name: str) -> None:
    rule = RULES[name]
    assert rule.lossless and not rule.greedy_only and not rule.shared_noise
    for drawn in (INDEPENDENT, DETERMINISTIC):
        assert rule.judges(DraftKind(drawn))
    assert rule.judges(DraftKind(DETERMINISTIC, True)) == (name != "kseq")
    assert rule.judges(DraftKind(WITHOUT_REPLACEMENT, True)) == (name != "kseq")


class NoHostReads(TorchDispatchMode):
    """Refuses what would make a device wait for the host."""

    READS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__.split(".")[0] in self.READS:
            raise AssertionError(f"{func} reads from the device")
        return func(*args, **(kwargs or {}))


@every_way
def test_no_rule_reads_from_the_device(name: str, drawn: str) -> None:
    trial = together([random_row(s, drawn, torch.float32) for s in range(9)], drawn, WIDTH, WIDTH)
    with NoHostReads():
        RULES[name].verify(trial)
        with pytest.raises(AssertionError, match="reads"):
            bool(trial.uniforms.sum() > 0)


# --- planted faults: the enumeration has to see each -------------------------------------------


class _LikeliestFirst(Verifier):
    """Judges the children of the root in the order of their draft probability."""

    def __init__(self, rule: Verifier) -> None:
        self.rule = rule

    def verify(self, trial: Trial) -> Verdict:
        draft = trial.draft
        order = draft.law.prob(draft.tokens).argsort(dim=1, descending=True, stable=True)
        moved = dataclasses.replace(draft, tokens=draft.tokens.gather(1, order))
        rows = torch.nn.functional.pad(order + 1, (1, 0)).unsqueeze(-1)
        target = trial.target_probs.gather(1, rows.expand_as(trial.target_probs))
        uniforms = trial.uniforms.gather(1, order)
        verdict = self.rule.verify(make_trial(moved, target, uniforms))
        assert verdict.path is not None
        probs = torch.zeros_like(verdict.accept_probs).scatter_(1, order, verdict.accept_probs)
        path = order.gather(1, verdict.path.clamp(min=0)).where(verdict.path >= 0, -1)
        return dataclasses.replace(verdict, accept_probs=probs, path=path)


class _RealProbs(Verifier):
    """Judges chosen children by the probability that the drafter gave them."""

    def __init__(self, rule: Verifier, law: Tensor, drawn: str) -> None:
        self.rule, self.law, self.drawn = rule, law, drawn

    def verify(self, trial: Trial) -> Verdict:
        draft = trial.draft
        laws = self.law.expand(len(draft.lengths), 1, -1)
        law = DenseLaw(laws, torch.zeros_like(draft.tokens))
        moved = Draft(draft.tokens, draft.lengths, law, draft.tree, self.drawn)
        return self.rule.verify(make_trial(moved, trial.target_probs, trial.uniforms))


class _FirstLawForAll(KSeqVerifier):
    """Takes every node for the only child of its parent."""

    def verify(self, trial: Trial) -> Verdict:
        tree = trial.draft.shape
        draft = dataclasses.replace(trial.draft, tree=Tree(tree.parents, tree.depth, 1))
        return super().verify(dataclasses.replace(trial, draft=draft))


FAULTS: dict[str, tuple[Callable[[], Verifier], str]] = {
    "recursive, likeliest first, with": (lambda: _LikeliestFirst(RULES["recursive"]), INDEPENDENT),
    "traversal, likeliest first, with": (lambda: _LikeliestFirst(RULES["traversal"]), INDEPENDENT),
    "recursive, likeliest first, without": (
        lambda: _LikeliestFirst(RULES["recursive"]),
        WITHOUT_REPLACEMENT,
    ),
    "traversal, likeliest first, without": (
        lambda: _LikeliestFirst(RULES["traversal"]),
        WITHOUT_REPLACEMENT,
    ),
    "kseq, of one child": (_FirstLawForAll, INDEPENDENT),
    "kseq, drawn without": (KSeqVerifier, WITHOUT_REPLACEMENT),
    "kseq, chosen": (KSeqVerifier, DETERMINISTIC),
}
DRAFT = [0.5, 0.3, 0.2]


@pytest.mark.parametrize("name", FAULTS)
def test_enumeration_sees_planted_faults(name: str) -> None:
    make, drawn = FAULTS[name]
    pairs = [(fixed(0.1, 0.3, 0.6), fixed(*DRAFT)), (fixed(0.4, 0.25, 0.35), fixed(*DRAFT))]
    rule = make()
    if drawn == DETERMINISTIC:
        rule = _RealProbs(rule, torch.tensor(DRAFT, dtype=torch.float64), INDEPENDENT)
    assert distances(rule, pairs, [-1, -1], drawn, 2).max() > 0.01


@pytest.mark.parametrize("drawn", [INDEPENDENT, WITHOUT_REPLACEMENT])
@pytest.mark.parametrize("name", ["recursive", "traversal"])
def test_a_chosen_child_has_no_draft_probability(name: str, drawn: str) -> None:
    pairs = [(fixed(0.1, 0.3, 0.6), fixed(*DRAFT))]
    broken = _RealProbs(RULES[name], torch.tensor(DRAFT, dtype=torch.float64), drawn)
    assert distances(broken, pairs, [-1, -1], DETERMINISTIC, 2).max() > 0.05
    assert distances(RULES[name], pairs, [-1, -1], DETERMINISTIC, 2).max() < 1e-12
