"""The same promises on a CUDA device; skipped where there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from foredraft.framework import Engine, load
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.testing.tiny import tiny_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
PROMPTS = [[1, 2, 3, 1, 2], [7], [5, 9, 5, 9, 5, 9, 5]]


def answers(target: CausalLM, *overrides: str) -> list[list[int]]:
    engine: Engine = load(*overrides, "runtime.batch_size=3", "max_new_tokens=60", target=target)
    return [answer.token_ids for answer in engine.generate_many(PROMPTS)]


@pytest.fixture(scope="module")
def target() -> CausalLM:
    return CausalLM(tiny_model("llama", layers=3).cuda())


@pytest.mark.parametrize(
    "side",
    [
        ["drafter=prompt_lookup"],
        ["drafter=ngram"],
        ["drafter=early_exit", "drafter.layers=2"],
    ],
    ids=lambda side: side[0],
)
@pytest.mark.parametrize("gamma", [1, 4])
def test_greedy_ids_are_those_of_the_plain_loop(
    target: CausalLM, side: list[str], gamma: int
) -> None:
    plain = answers(target, "drafter=none")
    assert answers(target, *side, f"policy.gamma={gamma}") == plain


def test_one_device_read_a_round(target: CausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    for name in ("tolist", "item", "cpu", "__bool__", "__int__", "__float__"):
        original = getattr(torch.Tensor, name)

        def counted(self: torch.Tensor, *rest: Any, original: Any = original) -> Any:
            if self.is_cuda:
                reads.append(original.__name__)
            return original(self, *rest)

        monkeypatch.setattr(torch.Tensor, name, counted)
    engine = load("drafter=early_exit", "drafter.layers=1", "policy.gamma=3", target=target)
    answer = engine.generate(PROMPTS[0], max_new_tokens=30)
    assert len(reads) == answer.metrics.rounds
