"""At temperature 0 every drafter and every gamma gives transformers' own ids, exactly: output that
depends on either hides numerics or a fault (trtllm#2208).

Models are float64, where near-ties do not occur. ``-m slow`` adds the full matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from helpers import assert_same, make_engine, model_of, noisy_copy, plain, random_prompts

from foredraft.drafters.builtin import (
    EarlyExitConfig,
    NgramConfig,
    PromptLookupConfig,
    QuantizedConfig,
)
from foredraft.drafters.causal_lm import CausalLMDrafter
from foredraft.drafters.early_exit import EarlyExit
from foredraft.drafters.ngram import Ngram
from foredraft.drafters.none import NoDrafter
from foredraft.drafters.prompt_lookup import PromptLookup
from foredraft.drafters.quantized import Quantized
from foredraft.framework.interfaces import Drafter
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.testing.scripted import OracleDrafter, WrongDrafter
from foredraft.framework.testing.tiny import KINDS

SHORT, LONG = 40, 200
PROMPTS = random_prompts((7, 1, 17, 9, 3))

DRAFTERS: dict[str, Callable[[CausalLM, str], Drafter]] = {
    "none": lambda target, kind: NoDrafter(),
    "prompt_lookup": lambda target, kind: PromptLookup(PromptLookupConfig()),
    "ngram": lambda target, kind: Ngram(NgramConfig(), target),
    "noisy_lm": lambda target, kind: CausalLMDrafter(noisy_copy(target.model), target),
    "other_lm": lambda target, kind: CausalLMDrafter(model_of(kind, layers=1, seed=9), target),
    "itself": lambda target, kind: CausalLMDrafter(target.model, target),
    "early_exit": lambda target, kind: EarlyExit(EarlyExitConfig(layers=1), target),
    "quantized": lambda target, kind: Quantized(QuantizedConfig(), target),
}


@cache
def answers(kind: str) -> tuple[list[list[int]], int]:
    """transformers' answers, and a token that ends the first one early as EOS."""
    model = model_of(kind)
    full = [plain(model, prompt, SHORT) for prompt in PROMPTS]
    others = {token for answer in full[1:] for token in answer}
    own = [at for at, token in enumerate(full[0]) if token not in others and at > 4]
    eos = full[0][own[0] if own else 9]
    return [plain(model, prompt, SHORT, eos) for prompt in PROMPTS], eos


@cache
def long_answer(kind: str) -> list[int]:
    return plain(model_of(kind), PROMPTS[2], LONG)


@cache
def drafter_of(kind: str, name: str) -> tuple[CausalLM, Drafter]:
    """A target and a drafter for it."""
    target = CausalLM(model_of(kind))
    return target, DRAFTERS[name](target, kind)


def check(kind: str, name: str, gamma: int, verifier: str) -> None:
    """Five rows of different lengths, the first of which ends early."""
    target, drafter = drafter_of(kind, name)
    due, eos = answers(kind)
    target.eos_ids = frozenset({eos})
    engine = make_engine(target, drafter, gamma, verifier, max_new_tokens=SHORT)
    given = engine.generate_many(PROMPTS)
    for prompt, expected, got in zip(PROMPTS, due, given, strict=True):
        assert_same(target.model, prompt, expected, got.token_ids)
    drafted = sum(answer.metrics.drafted for answer in given)
    assert bool(drafted) == (name != "none" and gamma > 0)


def check_long(kind: str, name: str, gamma: int, verifier: str) -> None:
    """One row, 200 tokens."""
    target, drafter = drafter_of(kind, name)
    target.eos_ids = frozenset()
    engine = make_engine(target, drafter, gamma, verifier, max_new_tokens=LONG)
    assert_same(target.model, PROMPTS[2], long_answer(kind), engine.generate(PROMPTS[2]).token_ids)


@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_is_worth_comparing_with(kind: str) -> None:
    found, eos = answers(kind)
    assert len({len(answer) for answer in found}) > 1  # the batch really becomes smaller
    assert found[0][-1] == eos and len(found[0]) < SHORT
    assert sum(len(set(answer)) > 5 for answer in found) >= 3


@pytest.mark.parametrize("verifier", ["token", "greedy"])
@pytest.mark.parametrize("kind", KINDS)
def test_gamma_0_is_generate(kind: str, verifier: str) -> None:
    check(kind, "noisy_lm", 0, verifier)


def case(kind: str, name: str, gamma: int) -> tuple[str, str, int, str]:
    """Verifiers take turns, so that both meet every drafter and kind."""
    return kind, name, gamma, ("token", "greedy")[(gamma + list(DRAFTERS).index(name)) % 2]


EVERY_GAMMA = [
    case(kind, name, gamma)
    for kind in ("llama", "gpt2")
    for name in DRAFTERS
    for gamma in range(1, 9)
    if gamma == 4
    or (name not in ("none", "other_lm") and (kind == "llama" or gamma in (1, 2, 4, 8)))
]
OTHER_KINDS = [
    case(kind, name, gamma)
    for kind in ("qwen3", "mistral", "gemma2")
    for name in DRAFTERS
    for gamma in (1, 3, 8)
    if name not in ("none", "other_lm") or gamma == 3
]


@pytest.mark.parametrize(("kind", "name", "gamma", "verifier"), EVERY_GAMMA + OTHER_KINDS)
def test_ragged_batch(kind: str, name: str, gamma: int, verifier: str) -> None:
    check(kind, name, gamma, verifier)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in KINDS for name in ("prompt_lookup", "noisy_lm", "early_exit")]
    + [("llama", "none"), ("gpt2", "ngram"), ("qwen3", "itself"), ("mistral", "quantized")],
)
def test_long_answer(kind: str, name: str) -> None:
    gamma = 2 + len(kind + name) % 5
    check_long(kind, name, gamma, ("token", "greedy")[gamma % 2])


@pytest.mark.slow
@pytest.mark.parametrize("verifier", ["token", "greedy"])
@pytest.mark.parametrize("gamma", range(1, 9))
@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("kind", KINDS)
def test_full_matrix(kind: str, name: str, gamma: int, verifier: str) -> None:
    check(kind, name, gamma, verifier)
    check_long(kind, name, gamma, verifier)


@pytest.mark.parametrize("name", ["noisy_lm", "early_exit", "quantized"])
def test_float32(name: str) -> None:
    """The usual precision, with int8 linear layers where the drafter has them."""
    model = model_of("llama", dtype=torch.float32)
    target = CausalLM(model)
    drafter = DRAFTERS[name](target, "llama")
    engine = make_engine(target, drafter, 4, max_new_tokens=60)
    for prompt, got in zip(PROMPTS, engine.generate_many(PROMPTS), strict=True):
        assert_same(model, prompt, plain(model, prompt, 60), got.token_ids)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
@pytest.mark.parametrize("gamma", [1, 3, 5])
def test_known_answers_right_wrong_and_half(kind: str, gamma: int) -> None:
    """Cache positions of the verify pass slipped when a draft was rejected (HF#30042)."""
    target = drafter_of(kind, "none")[0]
    target.eos_ids = frozenset()
    known = ([PROMPTS[2]], [long_answer(kind)], target.vocab_size)
    for drafter in (WrongDrafter(*known), OracleDrafter(*known, wrong=0.5)):
        engine = make_engine(target, drafter, gamma, max_new_tokens=LONG)
        answer = engine.generate(PROMPTS[2])
        assert_same(target.model, PROMPTS[2], long_answer(kind), answer.token_ids)
        assert (answer.metrics.accepted == 0) == isinstance(drafter, WrongDrafter)
