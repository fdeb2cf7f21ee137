"""Losslessness proven on the joint law, by enumeration with the real verifiers.

The joint law of one token more than a round can emit has the bonus row and the next round in it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from foredraft.framework.interfaces import Verifier
from foredraft.framework.law import DenseLaw, PointMass
from foredraft.framework.params import SamplingParams
from foredraft.framework.records import Draft, Trial, Verdict
from foredraft.framework.sampling import Sampler
from foredraft.framework.specs import DETERMINISTIC, INDEPENDENT, WITHOUT_REPLACEMENT
from foredraft.framework.testing.laws import (
    Pair,
    Shape,
    enumerated_joint,
    enumerated_joints,
    law_of,
    make_trial,
    plain_joint,
    random_table,
    total_variation,
)
from foredraft.framework.verdicts import correction_law, law_at, leading, token_probs
from foredraft.verifiers.block import BlockVerifier
from foredraft.verifiers.greedy import GreedyVerifier
from foredraft.verifiers.kseq import KSeqVerifier
from foredraft.verifiers.recursive import RecursiveVerifier
from foredraft.verifiers.token import TokenVerifier
from foredraft.verifiers.traversal import TraversalVerifier

# Every lossless rule that draws with uniforms. Each is tried with every way of drawing that it
# declares, in chains and in trees.
RULES: dict[str, Verifier] = {
    "token": TokenVerifier(),
    "greedy": GreedyVerifier(),
    "block": BlockVerifier(),
    "recursive": RecursiveVerifier(),
    "kseq": KSeqVerifier(),
    "traversal": TraversalVerifier(),
}

# name -> shape, depth, vocabulary, pairs of random tables
CHAINS: dict[str, tuple[Shape, int, int, int]] = {
    "1": (1, 1, 3, 100),
    "2": (2, 2, 3, 60),
    "3": (3, 3, 2, 40),
    "3, larger": (3, 3, 3, 4),
    "2, larger": (2, 2, 4, 10),
}
TREES: dict[str, tuple[Shape, int, int, int]] = {
    "one level of width 3": ([-1, -1, -1], 1, 3, 100),
    "one level of width 3, larger": ([-1, -1, -1], 1, 4, 10),
    "two levels of width 2": ([-1, -1, 0, 0, 1, 1], 2, 2, 15),
    "uneven": ([-1, -1, 0], 2, 3, 20),
    "drawn branch by branch": ([-1, 0, 0, -1], 2, 2, 20),
    "a chain": ([-1, 0, 1], 3, 2, 20),
}


def cases() -> list[Any]:
    found = []
    for name, rule in RULES.items():
        for shapes, ways in ((CHAINS, rule.chains), (TREES, rule.trees)):
            kind = "chain" if shapes is CHAINS else "tree"
            for shape in shapes:
                found += [
                    pytest.param(rule, shapes[shape], way, id=f"{name}-{kind} {shape}-{way}")
                    for way in ways
                ]
    return found


def one_hot(table: Tensor) -> Tensor:
    """All mass on each law's likeliest token."""
    return torch.nn.functional.one_hot(table.argmax(1), table.shape[1]).double()


def tables(vocab: int, count: int) -> list[tuple[Tensor, Tensor]]:
    """Targets and drafters; the first three agree, hardly overlap, and never overlap."""
    found = [(random_table(s, vocab), random_table(s + 50_000, vocab)) for s in range(count)]
    low, high = torch.eye(vocab, dtype=torch.float64)[[0, -1]].unsqueeze(1)
    near = ((found[1][0] + 99 * low) / 100, (found[1][1] + 99 * high) / 100)
    return [(found[0][0], found[0][0]), near, (low, high), *found[3:]]


def laws(pairs: list[tuple[Tensor, Tensor]]) -> list[Pair]:
    return [(law_of(target), law_of(draft)) for target, draft in pairs]


def distances(
    rule: Verifier,
    found: list[tuple[Tensor, Tensor]],
    shape: Shape,
    depth: int,
    drawn: str,
    greedy: bool = False,
) -> Tensor:
    """Total variation between what the rule emits and plain decoding, for each of the tables."""
    pairs = laws(found)
    got = enumerated_joints(rule, pairs, shape, depth + 2, drawn, greedy)
    wanted = torch.stack([plain_joint(target, depth + 2) for target, _ in pairs])
    return (got - wanted).abs().flatten(1).sum(1) / 2


@pytest.mark.parametrize(("rule", "case", "drawn"), cases())
def test_joint_law_is_the_targets(rule: Verifier, case: Any, drawn: str) -> None:
    shape, depth, vocab, count = case
    pairs = tables(vocab, count)
    if not rule.greedy_only:
        assert distances(rule, pairs, shape, depth, drawn).max() < 1e-12
    greedy = [(one_hot(target), draft) for target, draft in pairs[: max(count // 4, 3)]]
    assert distances(rule, greedy, shape, depth, drawn, greedy=True).max() < 1e-12


SETTINGS = [
    SamplingParams(temperature=0.6, top_k=2),
    SamplingParams(temperature=1.5, top_p=0.8),
    SamplingParams(temperature=1.0, min_p=0.3),
    SamplingParams(temperature=0.0),
]


@pytest.mark.parametrize(
    "params", SETTINGS, ids=lambda p: f"T{p.temperature}k{p.top_k}p{p.top_p}m{p.min_p}"
)
@pytest.mark.parametrize("name", [name for name in RULES if not RULES[name].greedy_only])
def test_joint_law_behind_the_real_sampling_function(name: str, params: SamplingParams) -> None:
    sampler = Sampler([params], "cpu")

    def sampled(table: Tensor) -> Tensor:
        return sampler.law(table.log()[None])[0]

    pairs = [(sampled(target), sampled(draft)) for target, draft in tables(3, 10)]
    drawn = (*RULES[name].chains, *RULES[name].trees)[0]
    assert distances(RULES[name], pairs, 2, 2, drawn, params.greedy).max() < 1e-12


@pytest.mark.parametrize("name", [name for name in RULES if INDEPENDENT in RULES[name].chains])
def test_one_hot_dense_laws_count_as_point_masses(name: str) -> None:
    pairs = [(target, one_hot(draft)) for target, draft in tables(3, 20)]
    if RULES[name].greedy_only:
        pairs = [(one_hot(target), draft) for target, draft in pairs]
    greedy = RULES[name].greedy_only
    dense = enumerated_joints(RULES[name], laws(pairs), 2, 4, INDEPENDENT, greedy)
    point = enumerated_joints(RULES[name], laws(pairs), 2, 4, DETERMINISTIC, greedy)
    torch.testing.assert_close(dense, point, rtol=0, atol=1e-12)


# --- planted faults: the enumeration has to see each -----------------------------------------


class _NoResidual(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        return dataclasses.replace(right, next_law=law_at(trial.target_probs, right.accepted))


class _BonusRowOffByOne(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        full = (right.accepted == trial.draft.width).unsqueeze(1)
        wrong = law_at(trial.target_probs, (right.accepted - 1).clamp(min=0))
        return dataclasses.replace(right, next_law=wrong.where(full, right.next_law))


class _AcceptsAll(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        every = torch.full((len(trial.greedy),), trial.draft.width)
        return Verdict(every, trial.target_probs[:, -1], torch.ones_like(trial.uniforms))


class _CumulativeUniforms(TokenVerifier):
    """Compares products of ratios with products of uniforms."""

    def verify(self, trial: Trial) -> Verdict:
        draft = trial.draft
        ratios = token_probs(trial.target_probs, draft.tokens) / draft.law.prob(draft.tokens)
        older = trial.uniforms.cumprod(1) / trial.uniforms.clamp(min=1e-300)
        probs = (ratios.cumprod(1) / older.clamp(min=1e-300)).clamp(max=1)
        accepted = leading(trial.uniforms < probs)
        return Verdict(accepted, correction_law(draft, trial.target_probs, accepted), probs)


class _Block(Verifier):
    """Block verification once more, step by step, with the faults that it has been given."""

    def __init__(
        self, capped: bool = True, last: bool = True, scaled: bool = True, whole: bool = True
    ) -> None:
        self.capped, self.last, self.scaled, self.whole = capped, last, scaled, whole

    def verify(self, trial: Trial) -> Verdict:
        draft, width = trial.draft, trial.draft.width
        target, law = trial.target_probs[:, :width], draft.law.rows()
        ratios = token_probs(target, draft.tokens) / draft.law.prob(draft.tokens)
        weights = [torch.ones(len(ratios), dtype=torch.float64)]
        for ratio in ratios.unbind(1):
            weights.append((weights[-1] * ratio).clamp(max=1 if self.capped else torch.inf))
        weight = torch.stack(weights, 1)
        left = (weight[:, :-1, None] * target - law).clamp(min=0)
        if not self.scaled:  # the residual of token-wise rejection
            left = (target - law).clamp(min=0)
        mass = (weight[:, :-1, None] * target - law).clamp(min=0).sum(-1)[:, 1:]
        total = mass + 1 - weight[:, 1:-1]
        partial = torch.where(total > 0, mass / total.clamp(min=1e-300), 1.0).clamp(max=1)
        end = weight[:, -1:] if self.whole else ratios[:, -1:]
        probs = torch.cat([partial, end.clamp(max=1)], 1)
        stands = trial.uniforms < probs
        longest = (stands * torch.arange(1, width + 1)).amax(1)
        accepted = longest if self.last else leading(stands)
        return Verdict(accepted, self._next(trial, left, accepted), probs)

    def _next(self, trial: Trial, left: Tensor, accepted: Tensor) -> Tensor:
        residual = law_at(left, accepted.clamp(max=left.shape[1] - 1))
        mass = residual.sum(-1, keepdim=True)
        rejected = (accepted < left.shape[1]).unsqueeze(1) & (mass > 0)
        target = law_at(trial.target_probs, accepted)
        return torch.where(rejected, residual / mass.clamp(min=1e-300), target)


class _WrongThresholds(TokenVerifier):
    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        return dataclasses.replace(right, accept_probs=right.accept_probs**2)


class _Misread(Verifier):
    """Judges children as if they had been drawn in another way."""

    def __init__(self, rule: Verifier, drawn: str) -> None:
        self.rule, self.drawn = rule, drawn

    def verify(self, trial: Trial) -> Verdict:
        draft = dataclasses.replace(trial.draft, drawn=self.drawn)
        return self.rule.verify(dataclasses.replace(trial, draft=draft))


FAULTS = {
    "no residual": _NoResidual(),
    "bonus row off by one": _BonusRowOffByOne(),
    "accepts all": _AcceptsAll(),
    "cumulative uniforms": _CumulativeUniforms(),
    "block: joint ratio not capped": _Block(capped=False),
    "block: stops at the first failure": _Block(last=False),
    "block: residual of the token rule": _Block(scaled=False),
    "block: token-wise test of the last token": _Block(whole=False),
    "thresholds that do not decide": _WrongThresholds(),
}


@pytest.mark.parametrize("name", FAULTS)
def test_enumeration_sees_planted_faults(name: str) -> None:
    try:
        worst = distances(FAULTS[name], tables(3, 12), 2, 2, INDEPENDENT).max()
    except AssertionError as refused:
        assert "accept_probs" in str(refused)
        assert name in ("cumulative uniforms", "thresholds that do not decide")
    else:
        assert worst > 0.01


@pytest.mark.parametrize("shape", ["one level of width 3", "uneven"])
@pytest.mark.parametrize("name", ["recursive", "traversal"])
def test_enumeration_sees_a_wrong_way_of_drawing(name: str, shape: str) -> None:
    found, ways = tables(3, 12), (INDEPENDENT, WITHOUT_REPLACEMENT)
    parents, depth = TREES[shape][:2]
    for drawn, read in (ways, ways[::-1]):
        broken = _Misread(RULES[name], read)
        assert distances(broken, found, parents, depth, drawn).max() > 0.01


def test_the_step_by_step_block_rule_is_right_without_a_fault() -> None:
    pairs = tables(3, 12)
    assert distances(_Block(), pairs, 2, 2, INDEPENDENT).max() < 1e-12


def test_first_token_alone_does_not_show_an_uncapped_joint_ratio() -> None:
    target = torch.tensor([1 / 3, 2 / 3], dtype=torch.float64)
    pair = (law_of(target[None]), law_of(target.flip(0)[None]))
    joint = enumerated_joint(_Block(capped=False), *pair, 2, 2)
    torch.testing.assert_close(joint.sum(1), target)
    assert total_variation(joint, plain_joint(pair[0], 2)) == pytest.approx(1 / 9)


# --- one round, looked at closely ------------------------------------------------------------


def test_worked_example_of_the_paper() -> None:
    target = torch.tensor([0.4, 0.3, 0.3], dtype=torch.float64)
    law = DenseLaw(torch.tensor([[[0.8, 0.1, 0.1]]], dtype=torch.float64))
    draft = Draft(torch.tensor([[0]]), [1], law)
    uniforms = torch.tensor([[0.9]], dtype=torch.float64)
    verdict = TokenVerifier().verify(make_trial(draft, target.expand(1, 2, 3), uniforms))
    assert verdict.accepted.tolist() == [0]
    torch.testing.assert_close(
        verdict.next_law, torch.tensor([[0.0, 0.5, 0.5]], dtype=torch.float64)
    )
    overlap = law.overlap(target.view(1, 1, 3))
    torch.testing.assert_close(overlap, torch.tensor([[0.6]], dtype=torch.float64))


@pytest.mark.parametrize("rule", [TokenVerifier(), BlockVerifier()], ids=["token", "block"])
@pytest.mark.parametrize("lengths", [[0, 1, 2, 3], [3, 0, 3, 1]])
def test_bonus_is_taken_at_each_rows_own_length(rule: Verifier, lengths: list[int]) -> None:
    tokens = torch.zeros(4, 3, dtype=torch.int64)
    target = torch.zeros(4, 4, 5, dtype=torch.float64)
    target[:, :, 0] = 0.5
    target[:, torch.arange(4), 1 + torch.arange(4)] = 0.5  # row i of the laws names itself
    draft = Draft(tokens, lengths, PointMass(tokens), drawn=DETERMINISTIC)
    uniforms = torch.zeros(4, 3, dtype=torch.float64)
    verdict = rule.verify(make_trial(draft, target, uniforms))
    assert verdict.accepted.tolist() == lengths
    assert [int(row[1:].argmax()) for row in verdict.next_law] == lengths
