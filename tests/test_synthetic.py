"""The synthetic drafter has the alpha and the cost that were asked for; and the clock behind it."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch
from helpers import (
    FALSE_ALARM,
    SAMPLED,
    PerRow,
    assert_same,
    make_batch,
    one_token_law,
    plain,
    random_prompts,
    target_of,
)
from law_cases import MIXED, PROMPT, TOKENS, table
from scipy.stats import binomtest
from torch import Tensor

from foredraft.drafters import synthetic
from foredraft.drafters.builtin import SyntheticConfig
from foredraft.drafters.synthetic import Synthetic, plain_step, worsened
from foredraft.framework import load
from foredraft.framework.clock import Clock, book, hidden, now
from foredraft.framework.config import compose
from foredraft.framework.decoding import Parts
from foredraft.framework.engine import Defaults, Engine
from foredraft.framework.errors import ConfigError
from foredraft.framework.interfaces import GammaPolicy, Target
from foredraft.framework.metrics import total
from foredraft.framework.params import SamplingParams
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.targets.table import TableSession
from foredraft.framework.testing.draws import law_p_values
from foredraft.framework.testing.laws import random_table
from foredraft.verifiers.block import BlockVerifier
from foredraft.verifiers.greedy import GreedyVerifier
from foredraft.verifiers.token import TokenVerifier

PROMPTS = random_prompts((5, 1, 9, 3))
ALPHAS = [0.0, 0.35, 0.8, 1.0]


def synthetic_of(target: Target, alpha: float, cost: float = 0.0, step: float = 1.0) -> Synthetic:
    return Synthetic(SyntheticConfig(alpha, cost, step), target)


def engine_of(
    target: Target, alpha: float, gamma: int | GammaPolicy = 3, rule: Any = None, **rest: Any
) -> Engine:
    policy = Fixed(FixedConfig(gamma)) if isinstance(gamma, int) else gamma
    parts = Parts(target, synthetic_of(target, alpha), rule or TokenVerifier(), policy, {})
    return Engine(parts, Defaults(**{"batch_size": 64, **rest}))


# --- the law --------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.05, *ALPHAS[1:]])
def test_the_overlap_is_alpha(alpha: float) -> None:
    for zeros in (0.0, 0.3):
        laws = random_table(1, 40, zeros)
        draft = worsened(laws, alpha)
        assert (draft.sum(-1) - 1).abs().max() < 1e-12 and draft.min() >= 0
        assert (torch.minimum(laws, draft).sum(-1) - alpha).abs().max() < 1e-12


def test_the_overlap_is_never_below_the_least_likely_id() -> None:
    laws = torch.tensor([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    draft = worsened(laws, 0.0)
    assert torch.minimum(laws, draft).sum(-1).tolist() == pytest.approx([0.2, 0.0, 0.0])
    assert draft.tolist() == [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]


SETTINGS = {
    "sampled": {"temperature": 1.0},
    "greedy": {},
    "truncated": {"temperature": 1.3, "top_k": 5, "top_p": 0.9},
    "penalties": {"temperature": 0.9, "repetition_penalty": 1.5, "presence_penalty": 0.3},
    "greedy with penalties": {"repetition_penalty": 1.5, "bad_words": [[3], [4]]},
    "drafts raw": {"temperature": 0.6, "top_k": 4, "draft": "none"},
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_live_alpha_and_accept_rate_are_alpha(name: str, alpha: float) -> None:
    """The overlap at every position is alpha to rounding; acceptance is alpha by the number."""
    params = SamplingParams(**SETTINGS[name])  # type: ignore[arg-type]
    engine = engine_of(target_of("llama"), alpha, sampling=params, max_new_tokens=40)
    answers = engine.generate_many(PROMPTS * 4)
    metrics = total(answer.metrics for answer in answers)
    assert metrics.alpha == pytest.approx(alpha, abs=2e-2 if alpha == 0 else 1e-9)
    if alpha > 0:
        assert binomtest(metrics.accepted, metrics.reached, alpha).pvalue > FALSE_ALARM
    assert metrics.reached > 400


@pytest.mark.parametrize("rule", [TokenVerifier, BlockVerifier, GreedyVerifier])
def test_greedy_text_is_that_of_plain_decoding(rule: Any) -> None:
    target = target_of("llama")
    gammas = PerRow(lambda place, turn: (4, 1, 0, 3)[(place + turn) % 4])
    for alpha in (0.0, 0.7):
        engine = engine_of(target, alpha, gammas, rule(), max_new_tokens=30)
        for prompt, answer in zip(PROMPTS, engine.generate_many(PROMPTS), strict=True):
            assert_same(target.model, prompt, plain(target.model, prompt, 30), answer.token_ids)


@pytest.mark.parametrize("rule", [TokenVerifier, BlockVerifier])
def test_draws_follow_the_joint_law(rule: Any) -> None:
    target = table(1, 0.0)
    parts = Parts(target, synthetic_of(target, 0.5), rule(), Fixed(FixedConfig(3)), {})
    assert min(law_p_values(parts, MIXED, PROMPT, TOKENS, 6000)) > 1e-6


def test_its_cache_is_the_committed_ids() -> None:
    """The law behind the committed ids is always the target's, whatever became of rounds before,
    and though a row has left."""
    target = target_of("gpt2")
    gammas = PerRow(lambda place, turn: 0 if turn % 5 == 3 else (4, 0, 2, 1)[(place + turn) % 4])
    engine = engine_of(target, 0.6, gammas, sampling=SAMPLED)
    batch = make_batch(engine, PROMPTS, max_new_tokens=24)
    batch.stoppers[1].limit = batch.stoppers[1].max_new_tokens = 7
    session: Any = batch.drafter
    with torch.inference_mode():
        while batch.answers:
            batch.step()
            if batch.answers:
                ragged, tokens = session.oracle.ragged, batch.context.tokens
                assert ragged.lengths == session.kept
                assert all(n < len(row) for n, row in zip(session.kept, tokens, strict=True))
                session.lengths = [0] * len(tokens)
                got = session.next_logits([])
                session._missing = []
                for row, ids in enumerate(tokens):
                    due = target.model(input_ids=torch.tensor([ids]), use_cache=False)[0][0, -1]
                    torch.testing.assert_close(got[row], due, atol=1e-10, rtol=0)


# --- the cost -------------------------------------------------------------------------------------


def test_the_draft_phase_shows_the_set_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the oracle's own time is in no phase, nor waited for anything."""
    real = TableSession.forward

    def slow(self: TableSession, *given: Any) -> Tensor:
        if self is not served[0]:
            time.sleep(0.02)
        return real(self, *given)

    monkeypatch.setattr(TableSession, "forward", slow)
    target = one_token_law(torch.tensor([0.5, 0.3, 0.2]))
    drafter = synthetic_of(target, 0.5, cost=0.25, step=4.0)
    parts = Parts(target, drafter, TokenVerifier(), Fixed(FixedConfig(3)), {})
    engine = Engine(parts, Defaults(sampling=SAMPLED))
    batch = make_batch(engine, [[0], [1]], max_new_tokens=50)
    served = [batch.context.target]
    begin = time.perf_counter()
    with torch.inference_mode():
        for _ in range(3):
            seconds = batch.step().seconds
            assert seconds["draft"] == pytest.approx(3.0, abs=0.05)
            assert sum(seconds.values()) < 3.5
    assert 0.18 < time.perf_counter() - begin < 2


def test_a_step_is_measured_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    target = one_token_law(torch.tensor([0.5, 0.3, 0.2]))
    assert 0 < plain_step(target) < 0.1
    monkeypatch.setattr(synthetic, "plain_step", lambda target: 2.0)
    assert Synthetic(SyntheticConfig(cost=0.25), target).seconds == 0.5
    assert Synthetic(SyntheticConfig(cost=0.25, step_seconds=1.0), target).seconds == 0.25
    assert Synthetic(SyntheticConfig(), target).session_bytes(3, 9) == target.session_bytes(3, 9)


def test_what_is_hidden_or_booked_is_off_the_clock_or_on_it() -> None:
    clock = Clock()
    with clock.phase("draft"):
        with hidden():
            time.sleep(0.05)
            with hidden():
                time.sleep(0.05)
        book(2.0)
    with hidden():
        time.sleep(0.05)
    spent = clock.lap()
    assert spent["draft"] == pytest.approx(2.0, abs=0.02)
    assert spent["other"] < 0.02 and sum(spent.values()) == pytest.approx(2.0, abs=0.04)
    assert sum(clock.lap().values()) < 0.02


def test_a_thread_has_a_clock_of_its_own() -> None:
    begin = now()
    other = threading.Thread(target=lambda: book(100.0))
    other.start()
    other.join()
    assert now() - begin < 10


# --- configs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "override", ["alpha=1.1", "alpha=-.1", "alpha=nan", "cost=-1", "step_seconds=-1", "alpha='1'"]
)
def test_impossible_values_are_refused(override: str) -> None:
    with pytest.raises(ConfigError, match=f"drafter.{override.partition('=')[0]}="):
        compose(["target=table", "drafter=synthetic", f"drafter.{override}"])


def test_it_works_by_name() -> None:
    engine = load("target=table", "drafter.alpha=.9", "sampling.temperature=1", drafter="synthetic")
    assert len(engine.generate("0 1 0", max_new_tokens=9).token_ids) == 9
