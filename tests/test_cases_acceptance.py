"""Reported faults of the acceptance rule and of the residual, each with the test that shows it.

The toy laws are those of the reports; 10,000 draws tell every faulty law from the right one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from helpers import (
    SAMPLED,
    TOY_DRAFT,
    TOY_TARGET,
    assert_law,
    assert_same,
    cycle,
    make_engine,
    markov,
    noisy_copy,
    one_token_law,
    plain,
    rounds_of,
    target_of,
)
from torch import Tensor

from foredraft.drafters.causal_lm import CausalLMDrafter
from foredraft.framework.config import as_dict, compose, to_objects
from foredraft.framework.config.build import check_pairing
from foredraft.framework.errors import ConfigError
from foredraft.framework.interfaces import Drafter
from foredraft.framework.params import SamplingParams
from foredraft.framework.records import RowOutcome
from foredraft.framework.testing.scripted import OracleDrafter, ScriptedDrafter, WrongDrafter

DRAWS = 10_000


def draw_many(
    target_law: Tensor, drafter: Drafter, gamma: int, tokens: int = 2
) -> Iterator[list[int]]:
    """10,000 answers, 2,000 rows at a time, under the one-token law."""
    engine = make_engine(
        one_token_law(target_law), drafter, gamma, sampling=SAMPLED, batch_size=2000,
        max_new_tokens=tokens, memory_check=False,
    )  # fmt: skip
    for answer in engine.generate_many([[0]] * DRAWS):
        yield answer.token_ids


@pytest.mark.parametrize("gamma", [1, 3])
def test_drawn_drafts_keep_the_law(gamma: int) -> None:
    """The residual went through a softmax (HF#28508); the law of each position is checked."""
    answers = list(draw_many(TOY_TARGET, ScriptedDrafter(law=TOY_DRAFT), gamma, 3))
    for position in range(3):
        assert_law([answer[position] for answer in answers], TOY_TARGET)


@pytest.mark.parametrize("token", range(4))
def test_fixed_drafts_keep_the_law(token: int) -> None:
    """The draft was the likeliest token, the ratio used the whole law (HF#32867): token 2 vanished."""
    drafter = ScriptedDrafter(lambda row, turn: [token] * 2)
    answers = list(draw_many(TOY_TARGET, drafter, 2))
    for position in range(2):
        found = [answer[position] for answer in answers]
        assert_law(found, TOY_TARGET)
        assert set(found) == {0, 1, 2, 3}


def toy_rows(drafter: Drafter, target: Tensor, rows: int = 2000) -> list[RowOutcome]:
    engine = make_engine(
        one_token_law(target), drafter, 1, sampling=SAMPLED, batch_size=rows, max_new_tokens=2
    )
    return rounds_of(engine, [[0]] * rows)[0].rows


def test_acceptance_is_the_overlap_of_the_laws() -> None:
    """.55 here; accepting everything gives 1 and exact match .185 (HF#28508, mlx-lm#1709)."""
    rows = toy_rows(ScriptedDrafter(law=TOY_DRAFT), TOY_TARGET, DRAWS)
    share = sum(row.accepted for row in rows) / len(rows)
    assert abs(share - 0.55) < 4 * (0.55 * 0.45 / DRAWS) ** 0.5
    assert all(abs(row.overlaps[0] - 0.55) < 1e-9 for row in rows)


def test_a_residual_of_one_token_gives_that_token() -> None:
    target = torch.tensor([0.5, 0.5, 0.0, 0.0])
    rows = toy_rows(ScriptedDrafter(law=torch.tensor([0.5, 0.0, 0.5, 0.0]).double()), target)
    rejected = [row for row in rows if row.accepted == 0]
    assert {row.drafted[0] for row in rejected} == {2}
    assert {row.emitted[0] for row in rejected} == {1}
    assert len(rejected) > 500


@pytest.mark.parametrize("point_mass", [True, False])
def test_disjoint_laws_accept_nothing(point_mass: bool) -> None:
    """Every drafted token was accepted (HF#28508)."""
    law = None if point_mass else torch.tensor([0.0, 1.0, 0.0, 0.0]).double()
    drafter = ScriptedDrafter((lambda row, turn: [1]) if point_mass else None, law)
    rows = toy_rows(drafter, torch.tensor([1.0, 0.0, 0.0, 0.0]), 200)
    assert {(row.accepted, *row.emitted) for row in rows} == {(0, 0)}


@pytest.mark.parametrize("gamma", [1, 2, 3, 4])
def test_the_law_of_the_right_position_is_used(gamma: int) -> None:
    """The residual or the bonus token came from a neighbouring position (HF#28166)."""
    due = [(1 + at) % 4 for at in range(30)]
    for right in range(gamma + 1):
        drafter = OracleDrafter([[0]], [due], 4, right_for=right)
        engine = make_engine(cycle(4), drafter, gamma, sampling=SAMPLED, max_new_tokens=24)
        answer = engine.generate([0])
        assert answer.token_ids == due[:24]
        full_rounds = -(-24 // (right + 1))
        assert answer.metrics.rounds == full_rounds


SPARSE = [
    [0.0, 0.7, 0.3, 0.0, 0.0],
    [0.0, 0.0, 0.5, 0.5, 0.0],
    [0.6, 0.0, 0.0, 0.0, 0.4],
    [0.2, 0.0, 0.8, 0.0, 0.0],
    [0.0, 0.5, 0.0, 0.5, 0.0],
]


@pytest.mark.parametrize("gamma", [1, 2, 5])
@pytest.mark.parametrize("kind", ["fixed", "drawn", "uniform"])
def test_no_impossible_neighbours(kind: str, gamma: int) -> None:
    """A rejection took effect one step late: a word vanished, its continuation stayed
    (openvino.genai#4190); a token was repeated at an accept boundary (imp#667)."""
    laws = {
        "drawn": torch.tensor([0.4, 0.3, 0.1, 0.1, 0.1]).double(),
        "uniform": torch.full((5,), 0.2).double(),
    }
    drafter = ScriptedDrafter(
        (lambda row, turn: [1, 2, 0, 2, 4]) if kind == "fixed" else None, laws.get(kind)
    )
    engine = make_engine(
        markov(SPARSE), drafter, gamma, sampling=SAMPLED, batch_size=50, max_new_tokens=40
    )
    answers = engine.generate_many([[0]] * 50)
    for answer in answers:
        chain = [0, *answer.token_ids]
        assert all(SPARSE[a][b] > 0 for a, b in zip(chain, chain[1:], strict=False))
    assert 0 < sum(a.metrics.accepted for a in answers) < sum(a.metrics.drafted for a in answers)


@pytest.mark.parametrize("gamma", [1, 3])
def test_position_0_is_verified(gamma: int) -> None:
    """The first drafted token was committed unchecked (lattice#243); rejected tokens stayed in the
    output (lucidrains/speculative-decoding#3)."""
    target = target_of("llama")
    due = plain(target.model, [1, 2, 3], 20)
    drafter = WrongDrafter([[1, 2, 3]], [due], target.vocab_size)
    answer = make_engine(target, drafter, gamma, max_new_tokens=20).generate([1, 2, 3])
    assert_same(target.model, [1, 2, 3], due, answer.token_ids)
    assert (answer.metrics.accepted, answer.metrics.rounds) == (0, 20)


@pytest.mark.parametrize(
    ("temperature", "verifier"),
    [(0, "token"), (0, "greedy"), (0.0, "greedy"), (1e-8, "token"), (1e-300, "token")],
)
def test_temperatures_at_and_near_0(temperature: float, verifier: str) -> None:
    """The marker for "greedy" changed: division by zero, NaN, no drafts (vllm#27077, lcpp#5657)."""
    target = target_of("llama")
    drafter = CausalLMDrafter(noisy_copy(target.model), target)
    engine = make_engine(target, drafter, 3, verifier, max_new_tokens=30)
    answer = engine.generate([1, 2, 3], sampling=SamplingParams(temperature=temperature))
    assert_same(target.model, [1, 2, 3], plain(target.model, [1, 2, 3], 30), answer.token_ids)
    assert 0 < answer.metrics.accepted <= answer.metrics.drafted


@pytest.mark.parametrize("temperature", [None, -1, -1e-9, float("nan"), float("inf"), "0", True])
def test_temperatures_that_mean_nothing_are_refused(temperature: object) -> None:
    with pytest.raises(ConfigError, match="sampling.temperature="):
        SamplingParams(temperature=temperature)  # type: ignore[arg-type]


def test_drafting_for_itself_accepts_everything_when_sampling() -> None:
    """Exact match is lossless but would take only the sum of p squared (mlx-lm#1709)."""
    target = target_of("llama")
    drafter = CausalLMDrafter(target.model, target)
    engine = make_engine(target, drafter, 4, sampling=SAMPLED, max_new_tokens=41)
    metrics = engine.generate([1, 2, 3]).metrics
    assert metrics.accepted == metrics.drafted == 32
    assert metrics.alpha == pytest.approx(1.0, abs=1e-9)


def test_exact_match_is_refused_when_sampling() -> None:
    parts = to_objects(as_dict(compose(["verifier=greedy", "sampling.temperature=1.0"])))
    with pytest.raises(ConfigError, match="verifier=greedy works only with.*verifier=token"):
        check_pairing(parts)


def test_top_k_holds_at_verification() -> None:
    """Truncation was applied to the ratio and not to the residual, or not at all."""
    engine = make_engine(
        one_token_law(TOY_TARGET), ScriptedDrafter(law=TOY_DRAFT), 2, batch_size=2000,
        sampling=SamplingParams(temperature=1.0, top_k=2), max_new_tokens=2,
    )  # fmt: skip
    found = [t for answer in engine.generate_many([[0]] * DRAWS) for t in answer.token_ids[:1]]
    assert_law(found, torch.tensor([0.6, 0.4, 0.0, 0.0], dtype=torch.float64))


def test_temperature_reaches_the_verification() -> None:
    cold = torch.softmax(TOY_TARGET.log() / 0.5, -1)
    engine = make_engine(
        one_token_law(TOY_TARGET), ScriptedDrafter(law=TOY_DRAFT), 2, batch_size=2000,
        sampling=SamplingParams(temperature=0.5), max_new_tokens=2,
    )  # fmt: skip
    firsts: Sequence[int] = [a.token_ids[0] for a in engine.generate_many([[0]] * DRAWS)]
    assert_law(firsts, cold)
