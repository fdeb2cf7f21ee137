"""Sound policies pass every check: the built-in ones, two that stop early, and one per declaration."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from broken_policies import Adaptive, BatchMean, DrawsGlobally, ReadsClock
from broken_policies import Config as Gamma
from torch import Tensor

from foredraft.framework import DraftStep, PolicySession, PolicySpec
from foredraft.framework.config import part
from foredraft.framework.plugins import registry
from foredraft.framework.testing.kit import check_policy, run_checks, subject_of
from foredraft.framework.testing.kit.policies.laws import uniform
from foredraft.framework.testing.kit.policies.stage import Stage
from foredraft.framework.testing.kit.report import FAILED, PASSED, SKIPPED

SECONDS = 60


@dataclass
class Config:
    """Where to stop.

    Args:
        value: a probability.
    """

    value: float = 0.5


class Sure(PolicySession):
    """Drafts on while the drafter is sure of its next token, whatever that will be."""

    def gammas(self) -> list[int]:
        return [3] * self.context.rows

    def go_on(self, step: DraftStep) -> Tensor:
        return step.law.amax(-1) > float(self.config.value)


class Confident(Sure):
    """Stops after a token that was unlikely."""

    def go_on(self, step: DraftStep) -> Tensor:
        if not step.probs:
            return torch.ones(self.context.rows, dtype=torch.bool)
        return step.probs[-1] > float(self.config.value)


SOUND: list[PolicySpec | str] = [
    *(name for name in registry().names("policy") if name != "oracle"),  # which no live run has
    PolicySpec("sure", Sure, Config, contract=1),
    PolicySpec("confident", Confident, Config, contract=1),
    PolicySpec("adaptive", Adaptive, Gamma, contract=1),
]


# By batch, which is the default, large batches draft nothing and rows depend on each other.
VALUES: dict[str, dict[str, Any]] = {"schedule": {"by": "position", "gammas": {0: 3, 4: 1, 8: 5}}}
NEEDS = {
    "row_local": {"rows_independent", "row_fates"},
    "repeatable": {"repeatable", "no_state_across_runs", "rows_independent", "row_fates"},
}


OWN = [pytest.param(p, marks=[] if isinstance(p, str) else pytest.mark.slow) for p in SOUND]


@pytest.mark.parametrize("policy", OWN, ids=lambda p: p if isinstance(p, str) else p.name)
def test_a_sound_policy_passes_every_check(policy: PolicySpec | str) -> None:
    begin = time.process_time()
    values = VALUES.get(policy, {}) if isinstance(policy, str) else {}
    report = check_policy(policy, values)
    assert {outcome.status for outcome in report.outcomes} <= {PASSED, SKIPPED}
    skipped = {outcome.check.name for outcome in report.outcomes if outcome.status == SKIPPED}
    spec = registry().get("policy", policy) if isinstance(policy, str) else policy
    assert isinstance(spec, PolicySpec)
    config = part("policy", {"name": policy, **values}).config if values else spec.config()
    declared = [needs for name, needs in NEEDS.items() if not spec.ability(name, config)]
    # A spec that no plugin brings has nothing to import.
    assert skipped <= {"light_import"}.union(*declared)
    assert time.process_time() - begin < SECONDS


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_other_seeds_make_no_false_alarm(seed: int) -> None:
    names = ["every_round_observed", "rows_independent", "greedy_equality", "causal_stopping"]
    for policy in SOUND[-3:]:
        check_policy(policy, only=names, seed=seed)


def test_plain_decoding_is_a_policy_too() -> None:
    report = check_policy("fixed", {"gamma": 0}, only=["every_round_observed", "causal_stopping"])
    assert [outcome.status for outcome in report.outcomes] == [PASSED, SKIPPED]
    assert "never drafted" in report.outcomes[1].detail


def test_rows_that_share_by_declaration_are_not_compared_with_themselves_alone() -> None:
    spec = PolicySpec("mean", BatchMean, Gamma, contract=1, row_local=False)
    report = run_checks(subject_of("policy", spec), only=["rows_independent", "row_fates"])
    assert [outcome.status for outcome in report.outcomes] == [SKIPPED, SKIPPED]


def test_a_policy_that_declares_a_clock_may_read_it() -> None:
    spec = PolicySpec("clock", ReadsClock, Gamma, contract=1, repeatable=False)
    names = ["repeatable", "no_state_across_runs", "interrupted_runs"]
    report = run_checks(subject_of("policy", spec), only=names)
    assert [outcome.status for outcome in report.outcomes] == [SKIPPED, SKIPPED, PASSED]


def test_nobody_may_draw_from_a_global_generator() -> None:
    spec = PolicySpec("dice", DrawsGlobally, Gamma, contract=1, repeatable=False)
    (outcome,) = run_checks(subject_of("policy", spec), only=["repeatable"]).outcomes
    assert outcome.status == FAILED
    assert "global random generator" in outcome.detail


def test_a_failure_names_the_smallest_case() -> None:
    class Wrong(Sure):
        def gammas(self) -> list[int]:
            return [-1] * self.context.rows if self.context.rows == 2 else super().gammas()

    spec = PolicySpec("wrong", Wrong, Config, contract=1)
    (outcome,) = run_checks(subject_of("policy", spec), only=["well_formed_gammas"]).outcomes
    assert "gammas [-1, -1]" in outcome.detail
    assert "rows=2, tokens=12" in outcome.detail


def test_the_test_of_uniformity_knows_the_two_apart() -> None:
    numbers = torch.rand(2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert uniform(numbers) > 1e-3
    assert uniform(numbers**1.3) < 1e-7


@pytest.mark.parametrize("drafter", ["close", "same", "wrong", "none"])
def test_the_stages_laws_are_laws(drafter: str) -> None:
    stage = Stage(drafter=drafter)
    target, draft = stage.target_table(), stage.draft_table()
    assert torch.allclose(target.sum(-1), torch.ones(36, dtype=torch.float64))
    assert torch.allclose(draft.sum(-1), torch.ones(36, dtype=torch.float64))
    assert bool((target[:, -1] == 0).all())
    if drafter == "wrong":
        assert float(torch.minimum(target, draft).sum()) == 0
