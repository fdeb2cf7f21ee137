"""The same promises on a CUDA device; skipped where there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from law_cases import RULES, VERIFIERS

from foredraft.framework import Draft, Engine, Tree, Trial, load
from foredraft.framework.law import DenseLaw, DraftLaw, PointMass
from foredraft.framework.noise import Noise, Stream
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


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_waits_for_the_device(rule: str) -> None:
    """CUDA's own guard raises at any synchronising call."""
    name, _, children = rule.partition("/")
    parents = [-1, -1, 0, 0, 1, 1] if children else [-1, 0, 1, 2]
    width, vocab = len(parents), 50
    laws = torch.rand(2, width + 1, vocab, device="cuda").softmax(-1)
    shape = torch.tensor([parents, parents], device="cuda")
    tree = Tree(shape, 2, 2) if children else None
    tokens = torch.randint(vocab, (2, width), device="cuda")
    law: DraftLaw = PointMass(tokens)
    if children != "deterministic":
        law = DenseLaw(laws.roll(1, -1), shape + 1)
    draft = Draft(tokens, [width, width], law, tree, children or "independent")
    noise = Noise([1, 2], [0, 1], "cuda")
    uniforms = noise.uniform(Stream.ACCEPT, 0, 0, width)
    greedy = torch.zeros(2, dtype=torch.bool, device="cuda")
    places = torch.arange(width + 1, device="cuda").expand(2, -1)
    trial = Trial(draft, laws, uniforms, laws.log(), greedy, lambda: noise.gumbel(places, vocab))
    verifier = VERIFIERS[name]()
    verifier.verify(trial)  # what is made once, is made here
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        verifier.verify(trial)
    finally:
        torch.cuda.set_sync_debug_mode("default")
