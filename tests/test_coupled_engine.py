"""Gumbel coupling in the whole engine: the text depends on the seed and the target alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers import PerRow, model_of, noisy_copy, random_prompts, target_of

from foredraft.drafters.builtin import EarlyExitConfig, NgramConfig, PromptLookupConfig
from foredraft.drafters.causal_lm import CausalLMDrafter
from foredraft.drafters.early_exit import EarlyExit
from foredraft.drafters.ngram import Ngram
from foredraft.drafters.none import NoDrafter
from foredraft.drafters.prompt_lookup import PromptLookup
from foredraft.framework.decoding import Parts, decode
from foredraft.framework.interfaces import Drafter, GammaPolicy
from foredraft.framework.params import SamplingParams
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.requests import Answer, Request
from foredraft.verifiers.coupled import CoupledVerifier

PROMPTS = random_prompts([1, 9, 4, 17, 6])
DRAFTERS: dict[str, Callable[[], Drafter]] = {
    "small model": lambda: CausalLMDrafter(noisy_copy(model_of("llama")), target_of("llama")),
    "prompt_lookup": lambda: PromptLookup(PromptLookupConfig()),
    "ngram": lambda: Ngram(NgramConfig(order=2), target_of("llama")),
    "early_exit": lambda: EarlyExit(EarlyExitConfig(layers=1), target_of("llama")),
}


def texts(drafter: Drafter, policy: GammaPolicy, tokens: int, seed: int = 3) -> list[list[int]]:
    """Five rows of different lengths, temperatures .7 and 1 in turn, one with truncation."""
    settings = [SamplingParams(temperature=t) for t in (0.7, 1.0, 0.7, 1.0)]
    settings.append(SamplingParams(temperature=1.0, top_p=0.9, repetition_penalty=1.2))
    answers = [
        Answer(Request(list(p), tokens - 10 * i, settings[i], seed=seed, index=i))
        for i, p in enumerate(PROMPTS)
    ]
    parts = Parts(target_of("llama"), drafter, CoupledVerifier(), policy, {})
    accepted = 0
    for outcome in decode(parts, answers):
        accepted += sum(row.accepted for row in outcome.rows)
    if not isinstance(drafter, NoDrafter):
        assert accepted > 0
    return [answer.token_ids for answer in answers]


@pytest.mark.parametrize("name", DRAFTERS)
def test_the_text_is_the_same_over_drafters_gammas_and_policies(name: str) -> None:
    plain = texts(NoDrafter(), Fixed(FixedConfig(0)), 120)
    assert len({tuple(text[:50]) for text in plain}) == len(plain)
    policies: list[GammaPolicy] = [Fixed(FixedConfig(g)) for g in (1, 3, 8)]
    policies.append(PerRow(lambda place, turn: (place + turn) % 5))
    for policy in policies:
        assert texts(DRAFTERS[name](), policy, 120) == plain


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("gamma", range(9))
def test_the_same_over_200_tokens_and_every_gamma(name: str, gamma: int) -> None:
    plain = texts(NoDrafter(), Fixed(FixedConfig(0)), 200)
    drafter = DRAFTERS[name]() if gamma else NoDrafter()
    assert texts(drafter, Fixed(FixedConfig(gamma)), 200) == plain


def test_another_seed_is_another_text() -> None:
    policy = Fixed(FixedConfig(2))
    assert texts(NoDrafter(), policy, 60, seed=3) != texts(NoDrafter(), policy, 60, seed=4)


def test_a_plain_sampler_with_the_same_noise_gives_the_same_text() -> None:
    """The definition: the argmax of log law plus noise, position by position."""
    from foredraft.framework.noise import Noise
    from foredraft.framework.sampling import Sampler

    model, prompt = model_of("llama"), PROMPTS[1]
    params = SamplingParams(temperature=0.8)
    text = list(prompt)
    for place in range(30):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([text])).logits[:, -1:]
        law = Sampler([params], "cpu").law(logits)
        noise = Noise([3], [0], "cpu").gumbel(torch.tensor([[place]]), law.shape[-1])
        text.append(int((law.log() + noise).argmax()))
    answer = Answer(Request(list(prompt), 30, params, seed=3, index=0))
    drafter = DRAFTERS["small model"]()
    parts = Parts(target_of("llama"), drafter, CoupledVerifier(), Fixed(FixedConfig(4)), {})
    for _ in decode(parts, [answer]):
        pass
    assert answer.token_ids == text[len(prompt) :]
