"""Controls in the whole engine, greedy: every gamma gives what plain decoding and transformers give."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import model_of, noisy_copy, random_prompts, target_of
from transformers.generation.logits_process import LogitsProcessor, NoRepeatNGramLogitsProcessor

from foredraft.drafters.builtin import PromptLookupConfig
from foredraft.drafters.causal_lm import CausalLMDrafter
from foredraft.drafters.none import NoDrafter
from foredraft.drafters.prompt_lookup import PromptLookup
from foredraft.framework.decoding import Parts, decode
from foredraft.framework.interfaces import Drafter, Verifier
from foredraft.framework.params import SamplingParams
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.requests import Answer, Request
from foredraft.verifiers.greedy import GreedyVerifier
from foredraft.verifiers.recursive import RecursiveVerifier
from foredraft.verifiers.token import TokenVerifier

TOKENS = 30
# What transformers' generate has under another name.
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "repetition_penalty": ({"repetition_penalty": 1.5}, {"repetition_penalty": 1.5}),
    "logit_bias": ({"logit_bias": {5: 3.0, 9: -2.0}}, {"sequence_bias": [[[5], 3.0], [[9], -2.0]]}),
    "bad_words": ({"bad_words": [[7], [3, 4], [60]]}, {"bad_words_ids": [[7], [3, 4], [60]]}),
    "presence_penalty": ({"presence_penalty": 1.0}, {}),
    "frequency_penalty": ({"frequency_penalty": 0.7}, {}),
    "temperature zero with truncation": ({"top_k": 3, "top_p": 0.5, "min_p": 0.4, "typical_p": 0.5}, {}),
    "draft by temperature": ({"repetition_penalty": 1.5, "draft": "temperature"}, {"repetition_penalty": 1.5}),
    "draft raw": ({"frequency_penalty": 0.7, "draft": "none"}, {}),
}  # fmt: skip


def run(drafter: Drafter, verifier: Verifier, gamma: int) -> list[list[int]]:
    """Every setting as one row of a ragged batch."""
    prompts = random_prompts([3 + 2 * i for i in range(len(SETTINGS))])
    answers = [
        Answer(Request(p, TOKENS - i % 3, SamplingParams(**ours), index=i))
        for i, (p, (ours, _)) in enumerate(zip(prompts, SETTINGS.values(), strict=True))
    ]
    parts = Parts(target_of("llama"), drafter, verifier, Fixed(FixedConfig(gamma)), {})
    for _ in decode(parts, answers):
        pass
    return [answer.token_ids for answer in answers]


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return run(NoDrafter(), TokenVerifier(), 0)


def small_model() -> Drafter:
    return CausalLMDrafter(noisy_copy(model_of("llama")), target_of("llama"))


@pytest.mark.parametrize("gamma", range(1, 7))
def test_every_control_is_honoured_in_a_draft(gamma: int, plain: list[list[int]]) -> None:
    assert run(small_model(), TokenVerifier(), gamma) == plain


@pytest.mark.parametrize(
    "verifier", [RecursiveVerifier(), GreedyVerifier()], ids=["recursive", "greedy"]
)
@pytest.mark.parametrize("gamma", [1, 4])
def test_every_control_is_honoured_in_a_tree(
    gamma: int, verifier: Verifier, plain: list[list[int]]
) -> None:
    assert run(PromptLookup(PromptLookupConfig(branches=4)), verifier, gamma) == plain


def test_plain_decoding_is_transformers(plain: list[list[int]]) -> None:
    prompts = random_prompts([3 + 2 * i for i in range(len(SETTINGS))])
    compared = 0
    for prompt, answer, (ours, theirs) in zip(prompts, plain, SETTINGS.values(), strict=True):
        if ours.keys() & {"presence_penalty", "frequency_penalty"}:
            continue
        ids = torch.tensor([prompt])
        out = model_of("llama").generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=len(answer), do_sample=False,
            pad_token_id=0, eos_token_id=None, **theirs,
        )  # fmt: skip
        assert out[0, len(prompt) :].tolist() == answer
        compared += 1
    assert compared == 5


def one(request: Request, gamma: int, drafter: Drafter | None = None) -> Answer:
    answer = Answer(request)
    parts = Parts(
        target_of("llama"), drafter or small_model(), TokenVerifier(), Fixed(FixedConfig(gamma)), {}
    )
    for _ in decode(parts, [answer]):
        pass
    return answer


@pytest.mark.parametrize("gamma", range(1, 7))
def test_min_new_tokens_and_several_ends(gamma: int) -> None:
    prompt = random_prompts([6])[0]
    free = one(Request(list(prompt), 24), 0, NoDrafter()).token_ids
    ends = (free[3], free[5], free[8])
    params = SamplingParams(min_new_tokens=5)
    plain_answer = one(Request(list(prompt), 24, params, stop_ids=ends), 0, NoDrafter())
    answer = one(Request(list(prompt), 24, params, stop_ids=ends), gamma)
    assert answer.token_ids == plain_answer.token_ids and len(answer.token_ids) >= 5
    assert answer.finish_reason == plain_answer.finish_reason
    first = one(Request(list(prompt), 24, stop_ids=ends), gamma)
    end = min(free.index(token) for token in ends)
    assert first.token_ids == free[: end + 1] and first.finish_reason == "eos"


class Alternating(LogitsProcessor):  # type: ignore[misc]
    """Bans odd ids at odd lengths: depends on the prefix alone."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        banned = torch.arange(scores.shape[1]) % 2 == input_ids.shape[1] % 2
        return scores.masked_fill(banned, -torch.inf)


@pytest.mark.parametrize("gamma", range(1, 7))
def test_processors_are_honoured_in_a_draft(gamma: int) -> None:
    prompt = random_prompts([6])[0]
    processors = (Alternating(), NoRepeatNGramLogitsProcessor(2))
    plain_answer = one(Request(list(prompt), 24, processors=processors), 0, NoDrafter())
    assert one(Request(list(prompt), 24, processors=processors), gamma).token_ids == (
        plain_answer.token_ids
    )
    parities = [token % 2 for token in plain_answer.token_ids]
    assert parities[:-1] == [1 - parity for parity in parities[1:]]


def test_mirrored_penalties_accept_everything_and_unmirrored_ones_do_not() -> None:
    prompt = random_prompts([8])[0]
    twin = CausalLMDrafter(model_of("llama"), target_of("llama"))
    rates = {}
    for draft in ("full", "none"):
        params = SamplingParams(repetition_penalty=1.8, draft=draft)
        answer = one(Request(list(prompt), 40, params), 4, twin)
        rates[draft] = (answer.metrics.accept_rate, answer.token_ids)
    assert rates["full"][0] == 1.0 and rates["none"][0] < 1.0  # type: ignore[operator]
    assert rates["full"][1] == rates["none"][1]
