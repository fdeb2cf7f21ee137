"""Reported faults about precision, repeatability and the draft length as a setting."""

from __future__ import annotations

import math

import pytest
import torch
from helpers import SAMPLED, make_engine, noisy_copy, plain, random_prompts, rounds_of, target_of

from foredraft.drafters.causal_lm import CausalLMDrafter
from foredraft.framework.errors import ConfigError
from foredraft.framework.policies.builtin import FixedConfig


@torch.no_grad()
def gaps_in_ulps(model: object, prompt: list[int], answer: list[int]) -> list[float]:
    """How far below the maximum each token's logit lies, in bfloat16 steps at the maximum."""
    ids = torch.tensor([prompt + answer])
    logits = model(input_ids=ids, use_cache=False)[0][0].double()  # type: ignore[operator]
    gaps = []
    for row, token in zip(logits[len(prompt) - 1 :], answer, strict=False):
        best = float(row.max())
        ulp = 2.0 ** (math.floor(math.log2(abs(best))) - 7)
        gaps.append((best - float(row[token])) / ulp)
    return gaps


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("gamma", [1, 4, 8])
def test_bfloat16_differs_by_near_ties_only(kind: str, gamma: int) -> None:
    """One-token and many-token passes use other kernels, so near-ties flip in half precision
    (HF#39421); a token more than two steps below the maximum would be a fault."""
    target = target_of(kind, dtype=torch.bfloat16)
    drafter = CausalLMDrafter(noisy_copy(target.model), target)
    prompt = random_prompts((6,))[0]
    answer = make_engine(target, drafter, gamma, max_new_tokens=80).generate(prompt)
    assert max(gaps_in_ulps(target.model, prompt, answer.token_ids)) <= 2
    assert answer.metrics.accepted > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_first_token_does_not_depend_on_the_prefill(dtype: torch.dtype) -> None:
    """Prefill cut in another way than in plain decoding flipped the first token (mlx-lm#1109)."""
    target = target_of("llama", dtype=dtype)
    drafter = CausalLMDrafter(target.model, target)
    prompts = random_prompts(range(1, 21))
    for gamma in (0, 4):
        engine = make_engine(target, drafter, gamma, batch_size=1, max_new_tokens=5)
        for prompt, answer in zip(prompts, engine.generate_many(prompts), strict=True):
            if dtype == torch.float32:
                assert answer.token_ids[0] == plain(target.model, prompt, 1)[0]
            assert gaps_in_ulps(target.model, prompt, answer.token_ids[:1])[0] <= 2


def test_acceptance_trace_repeats() -> None:
    """Same text, other acceptance between runs (vllm#53436)."""
    target, traces = target_of("llama"), []
    for _ in range(2):
        drafter = CausalLMDrafter(noisy_copy(target.model), target)
        engine = make_engine(target, drafter, 4, sampling=SAMPLED)
        rounds = rounds_of(engine, random_prompts((3, 9)), max_new_tokens=40)
        traces.append([[(r.drafted, r.accepted, r.emitted) for r in o.rows] for o in rounds])
    assert traces[0] == traces[1]
    assert len({accepted for rows in traces[0] for _, accepted, _ in rows}) > 1


@pytest.mark.parametrize("gamma", [-1, 1.9, True, "3", None, 10**6, float("nan"), 4.0])
def test_impossible_draft_lengths_are_refused(gamma: object) -> None:
    """They surfaced as a negative derived number, or 1.9 became 1 (vllm#50708)."""
    with pytest.raises(ConfigError) as error:
        FixedConfig(gamma)  # type: ignore[arg-type]
    assert f"policy.gamma={gamma!r}" in str(error.value)
    assert "from 0 to" in str(error.value)


@pytest.mark.parametrize("sampled", [False, True])
def test_gamma_0_is_plain_decoding(sampled: bool) -> None:
    target = target_of("llama")
    options = {"max_new_tokens": 30, **({"sampling": SAMPLED} if sampled else {})}
    model_drafter = CausalLMDrafter(target.model, target)
    with_drafter = make_engine(target, model_drafter, 0, **options).generate([1, 2])
    without = make_engine(target, None, 4, **options).generate([1, 2])
    assert with_drafter.token_ids == without.token_ids
    for answer in (with_drafter, without):
        assert (answer.metrics.rounds, answer.metrics.drafted, answer.metrics.tau) == (30, 0, 1.0)
        assert answer.metrics.accept_rate is None and answer.metrics.alpha is None
