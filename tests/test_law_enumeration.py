"""Losslessness proven on the joint law, by enumeration with the real verifiers.

The joint law of the first gamma + 2 tokens has the bonus row and the next round in it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from foredraft.framework.interfaces import Draft, Verdict, Verifier
from foredraft.framework.params import SamplingParams
from foredraft.framework.sampling import Sampler
from foredraft.framework.testing.laws import (
    LawOf,
    enumerated_joint,
    plain_joint,
    total_variation,
)
from foredraft.framework.verdicts import law_at
from foredraft.verifiers.greedy import GreedyVerifier
from foredraft.verifiers.token import TokenVerifier

VOCAB = 3
SETTINGS = [
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=0.6, top_k=2),
    SamplingParams(temperature=1.5, top_p=0.8),
    SamplingParams(temperature=1.0, min_p=0.3),
    SamplingParams(temperature=0.0),
]


def law_by_prefix(seed: int, params: SamplingParams, zeros: float = 0.25) -> LawOf:
    """A law that depends on the whole prefix, with zeros, through the real sampling function."""
    sampler = Sampler([params], "cpu")

    @cache
    def law(prefix: tuple[int, ...]) -> Tensor:
        key = sum((token + 1) * 7**i for i, token in enumerate(prefix)) * 1009 + seed
        generator = torch.Generator().manual_seed(key)
        logits = torch.randn(VOCAB, generator=generator, dtype=torch.float64) * 1.5
        dropped = torch.rand(VOCAB, generator=generator) < zeros
        dropped[logits.argmax()] = False
        return sampler.law(logits.masked_fill(dropped, -torch.inf)[None])[0]

    return law


def one_hot(law: LawOf) -> LawOf:
    """The deterministic drafter that proposes the likeliest token."""
    return cache(lambda prefix: torch.nn.functional.one_hot(law(prefix).argmax(), VOCAB).double())


def distance(verifier: Verifier, gamma: int, seed: int, params: SamplingParams, kind: str) -> float:
    target, draft = law_by_prefix(seed, params), law_by_prefix(seed + 500_000, params)
    draft = draft if kind == "dense" else one_hot(draft)
    got = enumerated_joint(verifier, target, draft, gamma, gamma + 2, kind == "point_mass")
    return total_variation(got, plain_joint(target, gamma + 2))


@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("kind", ["dense", "point_mass", "one_hot_dense"])
@pytest.mark.parametrize(
    "params", SETTINGS, ids=lambda p: f"T{p.temperature}k{p.top_k}p{p.top_p}m{p.min_p}"
)
def test_token_rule_keeps_the_joint_law(gamma: int, kind: str, params: SamplingParams) -> None:
    for seed in range(3 if gamma == 3 else 10):
        assert distance(TokenVerifier(), gamma, seed, params, kind) < 1e-12


@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("kind", ["dense", "point_mass"])
def test_greedy_rule_keeps_the_joint_law(gamma: int, kind: str) -> None:
    for seed in range(3):
        assert distance(GreedyVerifier(), gamma, seed, SamplingParams(), kind) < 1e-12


def test_worked_example_of_the_paper() -> None:
    target = torch.tensor([0.4, 0.3, 0.3], dtype=torch.float64)
    draft = torch.tensor([0.8, 0.1, 0.1], dtype=torch.float64)
    from foredraft.framework.law import DenseLaw

    tokens = torch.tensor([[0]])
    verdict = TokenVerifier().verify(
        Draft(tokens, [1], DenseLaw(draft.view(1, 1, 3))),
        target.expand(1, 2, 3),
        torch.tensor([[0.9]], dtype=torch.float64),
    )
    assert verdict.accepted.tolist() == [0]
    torch.testing.assert_close(
        verdict.next_law, torch.tensor([[0.0, 0.5, 0.5]], dtype=torch.float64)
    )
    overlap = DenseLaw(draft.view(1, 1, 3)).overlap(target.view(1, 1, 3))
    torch.testing.assert_close(overlap, torch.tensor([[0.6]], dtype=torch.float64))


class _NoResidual(TokenVerifier):
    def verify(self, draft: Draft, target_probs: Tensor, uniforms: Tensor) -> Verdict:
        right = super().verify(draft, target_probs, uniforms)
        return Verdict(right.accepted, law_at(target_probs, right.accepted), right.accept_probs)


class _BonusRowOffByOne(TokenVerifier):
    def verify(self, draft: Draft, target_probs: Tensor, uniforms: Tensor) -> Verdict:
        right = super().verify(draft, target_probs, uniforms)
        full = (right.accepted == draft.width).unsqueeze(1)
        wrong = law_at(target_probs, (right.accepted - 1).clamp(min=0))
        return Verdict(right.accepted, wrong.where(full, right.next_law), right.accept_probs)


class _AcceptsAll(TokenVerifier):
    def verify(self, draft: Draft, target_probs: Tensor, uniforms: Tensor) -> Verdict:
        every = torch.full((len(draft.lengths),), draft.width)
        return Verdict(every, target_probs[:, -1], torch.ones_like(uniforms))


@pytest.mark.parametrize("broken", [_NoResidual, _BonusRowOffByOne, _AcceptsAll])
def test_enumeration_sees_broken_rules(broken: Any) -> None:
    assert distance(broken(), 2, 0, SETTINGS[0], "dense") > 0.01


@pytest.mark.parametrize("lengths", [[0, 1, 2, 3], [3, 0, 3, 1]])
def test_bonus_is_taken_at_each_rows_own_length(lengths: list[int]) -> None:
    from foredraft.framework.law import PointMass

    tokens = torch.zeros(4, 3, dtype=torch.int64)
    target = torch.zeros(4, 4, 5, dtype=torch.float64)
    target[:, :, 0] = 0.5
    target[:, torch.arange(4), 1 + torch.arange(4)] = 0.5  # row i of the laws names itself
    verdict = TokenVerifier().verify(
        Draft(tokens, lengths, PointMass(tokens)), target, torch.zeros(4, 3, dtype=torch.float64)
    )
    assert verdict.accepted.tolist() == lengths
    assert [int(row[1:].argmax()) for row in verdict.next_law] == lengths
