"""The audit: it passes on every rule, and it sees what is tampered with."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import model_of, noisy_copy, random_prompts, target_of
from law_cases import MIXED, RULES, parts

from foredraft.drafters.causal_lm import CausalLMDrafter
from foredraft.framework import audit as audit_module
from foredraft.framework.audit import audit
from foredraft.framework.decoding import Parts
from foredraft.framework.interfaces import Verifier
from foredraft.framework.params import SamplingParams
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.records import Trial, Verdict
from foredraft.framework.requests import Answer, Request
from foredraft.verifiers.token import TokenVerifier

TIGHT = 1e-9


def answers(tokens: int = 20, vocab: int = 3) -> list[Answer]:
    prompts = random_prompts([3, 7, 1, 5], vocab)
    return [
        Answer(Request(prompt, tokens, seed=5, index=i, **MIXED[i % len(MIXED)]))
        for i, prompt in enumerate(prompts)
    ]


@pytest.mark.parametrize("rule", RULES)
def test_every_decision_comes_out_again(rule: str) -> None:
    found = audit(parts(rule), answers())
    assert len(found.findings) >= 4 * 5
    assert found.faults(TIGHT) == []
    assert all(finding.same for finding in found.findings)


def test_fewer_rounds_can_be_derived_from_all_over_the_run() -> None:
    every = audit(parts("token"), answers()).findings
    few = audit(parts("token"), answers(), most=5).findings
    assert len(few) == 5 and few[0] == every[0]
    assert few[-1].round_index > every[-1].round_index / 2
    assert len(audit(parts("token"), answers(), most=10**6).findings) == len(every)
    assert audit(parts("token"), answers(), most=0).findings == []


def model_parts(verifier: Verifier) -> Parts:
    target = target_of("llama")
    drafter = CausalLMDrafter(noisy_copy(model_of("llama")), target)
    return Parts(target, drafter, verifier, Fixed(FixedConfig(3)), {})


def test_a_models_run_comes_out_again() -> None:
    found = audit(model_parts(TokenVerifier()), answers(24, 64))
    assert found.faults(TIGHT) == []
    drawn = [finding.redrawn for finding in found.findings if finding.redrawn is not None]
    assert len(drawn) > 20 and all(drawn)


class Generous(TokenVerifier):
    """Accepts one token more than it may, while a run is recorded."""

    recording = True

    def verify(self, trial: Trial) -> Verdict:
        right = super().verify(trial)
        if not self.recording:
            return right
        more = (right.accepted + 1).minimum(trial.draft.mask.sum(1))
        return Verdict(more, right.next_law, right.accept_probs)


def test_a_decision_that_was_not_due_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    rule, derive = Generous(), audit_module._derive

    def after(parts: Parts, record: Any) -> Any:
        monkeypatch.setattr(Generous, "recording", False)
        return derive(parts, record)

    monkeypatch.setattr(audit_module, "_derive", after)
    assert audit(model_parts(rule), answers(24, 64)).faults(TIGHT) != []


def test_a_cache_that_keeps_a_wrong_entry_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from foredraft.framework.targets.causal_lm import CausalLMSession

    keep = CausalLMSession.advance

    def wrong_entry(self: CausalLMSession, kept: list[list[int]]) -> None:
        """The newest accepted token's entry is the next column's."""
        keep(self, [[*row[:-1], row[-1] + 1] if 0 < row[-1] < 3 else row for row in kept])

    monkeypatch.setattr(CausalLMSession, "advance", wrong_entry)
    faults = audit(model_parts(TokenVerifier()), answers(12, 64)).faults(TIGHT)
    assert any(fault.law_error > 1e-3 for fault in faults)


def test_greedy_requests_can_be_audited() -> None:
    requests = [Answer(Request([1, 2, 3], 12, SamplingParams(), index=0))]
    found = audit(model_parts(TokenVerifier()), requests)
    assert found.faults(TIGHT) == [] and torch.tensor(requests[0].token_ids).numel() == 12
