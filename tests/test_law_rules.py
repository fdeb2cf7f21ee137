"""Draws of the whole engine, rule by rule and control by control, against plain decoding's law.

The law comes from transformers' own processors (``testing/reference.py``). Every control has a
planted fault that the same test has to see.
"""

from __future__ import annotations

import pytest
import torch
from law_cases import CONTROLS, FAULTS, MIXED, PROMPT, RULES, TOKENS, parts, table
from torch import Tensor

from foredraft.framework import SamplingParams, load
from foredraft.framework.errors import PluginFault
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.testing.draws import law_p_values
from foredraft.framework.testing.tiny import tiny_model

FLOOR = 1e-6


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_follows_the_joint_law(rule: str) -> None:
    found = law_p_values(parts(rule), MIXED, PROMPT, TOKENS, 8000)
    assert min(found) > FLOOR, found


@pytest.mark.parametrize(
    "rule", [pytest.param("block", marks=pytest.mark.slow), "recursive/without_replacement"]
)
def test_every_control_follows_the_joint_law(rule: str) -> None:
    settings = list(CONTROLS.values())
    found = law_p_values(
        parts(rule, 0.0), settings, PROMPT, TOKENS, 1500 * len(settings), batch=3000
    )
    assert min(found) > FLOOR, dict(zip(CONTROLS, found, strict=True))


@pytest.mark.parametrize("control", FAULTS)
def test_a_planted_fault_is_seen(control: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, broken in FAULTS[control]:
        monkeypatch.setattr(owner, name, broken)
    try:
        found = law_p_values(parts("token", 0.0), [CONTROLS[control]], PROMPT, TOKENS, 4000)
    except PluginFault:  # a constraint notices by itself what it did not allow
        return
    assert found[0] < FLOOR


class OnlyOne:
    """Allows one token behind a text that it allows, and nothing behind any other."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        text = input_ids[0].tolist()[len(PROMPT) :]
        allowed = torch.zeros(scores.shape[1], dtype=torch.bool)
        if text == FORCED[: len(text)]:
            allowed[FORCED[len(text)]] = True
        return scores.masked_fill(~allowed, -torch.inf)


FORCED = [2, 1, 2, 0, 0, 1, 1, 2, 2, 0, 1, 2, 1, 0, 2, 1, 2]
COPYING = [["drafter=prompt_lookup"], ["drafter=jacobi"]]
GROWING = [
    ["drafter=prompt_lookup", "drafter.branches=3"],
    ["drafter=token_recycling", "drafter.nodes=6", "drafter.successors=2"],
    ["drafter=ngram", "drafter.widths=[3,2,2]"],
    ["drafter=ngram", "drafter.nodes=12"],
    ["drafter=ngram", "drafter.widths=[2,2]", "drafter.children=deterministic"],
]
PAIRS = [
    *((["drafter=ngram"], rule) for rule in ("token", "block", "coupled", "lenient", "typical")),
    *(
        (drafter, rule)
        for drafter in COPYING
        for rule in ("token", "block", "coupled", "traversal")
    ),
    *((drafter, rule) for drafter in GROWING for rule in ("recursive", "traversal", "typical")),
    (["drafter=ngram", "drafter.widths=[2,2]", "drafter.children=independent"], "kseq"),
]


@pytest.mark.parametrize(("drafter", "rule"), PAIRS, ids=str)
def test_where_one_token_is_possible_it_comes(drafter: list[str], rule: str) -> None:
    """Behind every other token there is no law at all; none may leak out of there."""
    texts = [*drafter, f"verifier={rule}", "policy.gamma=3", "sampling.temperature=0.8"]
    engine = load(*texts, target=table(1, 0.0))
    answer = engine.generate(list(PROMPT), max_new_tokens=15, processors=[OnlyOne()])
    assert answer.token_ids == FORCED[:15]


def test_narrow_targets_and_wide_draft_laws_go_together() -> None:
    """The n-gram's laws are float64, a model's float32."""
    target = CausalLM(tiny_model("llama", dtype=torch.float32))
    for rule in ("recursive", "traversal", "typical"):
        texts = ["drafter=ngram", "drafter.widths=[3,2,1]", f"verifier={rule}"]
        engine = load(*texts, "sampling.temperature=0.8", target=target)
        assert len(engine.generate([1, 2, 1, 2], max_new_tokens=12).token_ids) == 12


def test_bans_hold_under_any_lenience() -> None:
    params = SamplingParams(temperature=1.0, draft="none", logit_bias={1: float("-inf")})
    engine = load("drafter=ngram", "verifier=lenient", "verifier.lenience=0", target=table(1, 0.0))
    answer = engine.generate(list(PROMPT), max_new_tokens=60, sampling=params)
    assert 1 not in answer.token_ids and (answer.metrics.accept_rate or 0) > 0


def test_every_control_has_a_planted_fault() -> None:
    assert set(CONTROLS) - {"all together"} == set(FAULTS)
