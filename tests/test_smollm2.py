"""The embedded default model, in float32: a small part of what ``benchmarks/greedy.py`` runs."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from foredraft.framework import Engine, load
from foredraft.framework.bench.measure import (
    Sample,
    run_engine,
    run_generate,
    verdict,
    worst_difference,
)
from foredraft.framework.fetch import FOLDER, cache_folder, is_whole

# One worker: the model is loaded once per kind of kernels, and transformers answers once.
pytestmark = [pytest.mark.model, pytest.mark.xdist_group("smollm2")]

TOKENS = 16
SIDES = {
    "plain": ["drafter=none", "policy.gamma=0"],
    "prompt_lookup": ["drafter=prompt_lookup", "policy.gamma=5"],
    "ngram": ["drafter=ngram", "policy.gamma=3"],
    "early_exit": ["drafter=early_exit", "drafter.layers=6", "policy.gamma=2"],
    "quantized": ["drafter=quantized", "policy.gamma=4"],
    "lookup tree": [
        "drafter=prompt_lookup", "drafter.branches=4", "policy.gamma=4", "verifier=recursive",
    ],
    "token_recycling": ["drafter=token_recycling", "policy.gamma=4", "verifier=greedy"],
    **{
        f"smollm2_{name}": [f"drafter=smollm2_{name}", "policy.gamma=3"]
        for name in ("medusa", "eagle", "exit", "small")
    },
    "smollm2_eagle tree": [
        "drafter=smollm2_eagle", "drafter.nodes=8", "policy.gamma=3", "verifier=recursive",
    ],
    "first_of": ["drafter=first_of", "policy=goodput", "policy.max_gamma=4"],
}  # fmt: skip
# Every drafter on the kernels that speculation is for; on the library's, what differs in kind.
QUICK = {"library": ("plain", "prompt_lookup", "quantized"), "tuned": tuple(SIDES)}
CASES = [
    pytest.param(kind, side, marks=[] if side in QUICK[kind] else pytest.mark.slow)
    for kind in QUICK
    for side in SIDES
]


@pytest.fixture(params=["library", "tuned"])
def engine(request: pytest.FixtureRequest) -> Engine:
    if not is_whole(cache_folder() / FOLDER):
        pytest.fail("SmolLM2 is not in the cache; run `foredraft fetch smollm2` (make test does)")
    return loaded(request.param)


@cache
def loaded(kernels: str) -> Engine:
    """Loaded once: pytest sets up anew whatever one parametrisation shares with another."""
    return load("drafter=none", "target=smollm2", f"target.kernels={kernels}")


@cache
def reference() -> tuple[Any, list[list[int]], Sample]:
    """transformers' own greedy answers to two prompts, on the model as it loads it."""
    engine = load("drafter=none", "target=smollm2")
    model: Any = engine.parts.target.model  # type: ignore[attr-defined]
    texts = [
        "Repeat this line twice: red green blue, red green blue",
        "Name three planets and say one thing about each.",
    ]
    prompts = [engine.request(text).prompt for text in texts]
    return model, prompts, run_generate(model, prompts, TOKENS)


@pytest.mark.parametrize(("engine", "side"), CASES, indirect=["engine"])
def test_greedy_ids_are_those_of_generate(side: str, engine: Engine) -> None:
    model, prompts, generate = reference()
    ours = run_engine(
        load(*SIDES[side], target=engine.parts.target), prompts, max_new_tokens=TOKENS
    )
    found = verdict(worst_difference(model, prompts, ours, generate))
    assert not found.startswith("DIFFERENT"), found


def test_it_answers_a_question(engine: Engine) -> None:
    answer = engine.generate("What is the capital of France?", max_new_tokens=20)
    assert answer.finish_reason == "eos"
    assert answer.trimmed_text == "The capital of France is Paris."


def test_the_int8_copy_is_close_to_the_target(engine: Engine) -> None:
    side = load("drafter=quantized", "policy.gamma=3", target=engine.parts.target)
    answer = side.generate("Describe a lighthouse in two sentences.", max_new_tokens=24)
    assert (answer.metrics.accept_rate or 0) > 0.8
