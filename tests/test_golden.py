"""Golden values: numbers from the papers, or exact by hand, that the rules have to reproduce."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from foredraft.framework.interfaces import Verifier
from foredraft.framework.law import DenseLaw
from foredraft.framework.specs import DETERMINISTIC
from foredraft.framework.testing.laws import (
    Pair,
    enumerated_joint,
    law_of,
    mean_accepted,
    means_accepted,
    random_table,
)
from foredraft.verifiers.block import BlockVerifier
from foredraft.verifiers.token import TokenVerifier

BOTH: list[Verifier] = [TokenVerifier(), BlockVerifier()]
NAMES = ["token", "block"]


def law(*probs: float) -> Tensor:
    return torch.tensor(probs, dtype=torch.float64)


def always(*pair: Tensor) -> Pair:
    """A target and a drafter whose laws never change."""
    target, draft = (law_of(probs[None]) for probs in pair)
    return target, draft


def random_pairs(vocab: int, count: int) -> list[Pair]:
    return [
        (law_of(random_table(seed, vocab)), law_of(random_table(seed + 7_000, vocab)))
        for seed in range(count)
    ]


@pytest.mark.parametrize(("rule", "wanted"), [(BOTH[0], 10 / 9), (BOTH[1], 11 / 9)], ids=NAMES)
def test_two_coins_of_block_verification(rule: Verifier, wanted: float) -> None:
    """Sun et al. 2024, the example of section 2."""
    pair = always(law(1 / 3, 2 / 3), law(2 / 3, 1 / 3))
    assert mean_accepted(rule, *pair, 2) == pytest.approx(wanted, abs=1e-14)


@pytest.mark.parametrize("rule", BOTH, ids=NAMES)
def test_worked_example_of_token_verification(rule: Verifier) -> None:
    """With one token to judge, both rules are Leviathan et al. 2023, Algorithm 1."""
    target, draft = law(0.4, 0.3, 0.3), law(0.8, 0.1, 0.1)
    pair = always(target, draft)
    assert mean_accepted(rule, *pair, 1) == pytest.approx(0.6, abs=1e-14)
    torch.testing.assert_close(enumerated_joint(rule, *pair, 1, 1), target, rtol=0, atol=1e-15)


@pytest.mark.parametrize("rule", BOTH, ids=NAMES)
def test_acceptance_is_the_overlap(rule: Verifier) -> None:
    """Leviathan et al. 2023, Theorem 3.5: ``sum(min(target, draft))``."""
    target, draft = law(0.45, 0.30, 0.20, 0.05), law(0.10, 0.20, 0.30, 0.40)
    overlap = DenseLaw(draft.view(1, 1, 4)).overlap(target.view(1, 1, 4))
    assert float(overlap) == pytest.approx(0.55)
    assert mean_accepted(rule, *always(target, draft), 1) == pytest.approx(0.55)


@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_accepted_tokens_are_equation_1(gamma: int) -> None:
    """Laws without a context: alpha (1 - alpha ** gamma) / (1 - alpha)."""
    target, draft = law(0.45, 0.30, 0.20, 0.05), law(0.10, 0.20, 0.30, 0.40)
    wanted = 0.55 * (1 - 0.55**gamma) / (1 - 0.55)
    got = mean_accepted(TokenVerifier(), *always(target, draft), gamma)
    assert got == pytest.approx(wanted, abs=1e-13)


@pytest.mark.parametrize(("vocab", "gamma"), [(2, 2), (2, 3), (3, 2), (3, 3), (4, 2), (5, 2)])
def test_block_never_accepts_less_than_token(vocab: int, gamma: int) -> None:
    pairs = random_pairs(vocab, 60)
    more = means_accepted(BlockVerifier(), pairs, gamma) - means_accepted(
        TokenVerifier(), pairs, gamma
    )
    assert more.min() > -1e-12
    assert more.max() > 0.05  # and often more


@pytest.mark.parametrize(("vocab", "gamma"), [(2, 3), (3, 1), (3, 3), (5, 2)])
def test_block_is_token_for_point_masses(vocab: int, gamma: int) -> None:
    pairs = random_pairs(vocab, 40)
    block, token = (means_accepted(rule, pairs, gamma, DETERMINISTIC) for rule in BOTH)
    torch.testing.assert_close(block, token, rtol=0, atol=1e-13)
    assert block.max() > 0.5


@pytest.mark.parametrize("vocab", [2, 3, 5])
def test_block_is_token_for_one_token(vocab: int) -> None:
    pairs = random_pairs(vocab, 40)
    block, token = (means_accepted(rule, pairs, 1) for rule in BOTH)
    torch.testing.assert_close(block, token, rtol=0, atol=1e-13)


@pytest.mark.parametrize("rule", BOTH, ids=NAMES)
def test_a_perfect_drafter_is_always_accepted(rule: Verifier) -> None:
    pairs = [(law_of(table), law_of(table)) for table in (random_table(s, 3) for s in range(20))]
    torch.testing.assert_close(
        means_accepted(rule, pairs, 3), torch.full((20,), 3.0, dtype=torch.float64)
    )


@pytest.mark.parametrize("rule", BOTH, ids=NAMES)
def test_nothing_in_common_is_never_accepted(rule: Verifier) -> None:
    pair = always(law(0.5, 0.5, 0.0, 0.0), law(0.0, 0.0, 0.5, 0.5))
    assert mean_accepted(rule, *pair, 3) == 0
