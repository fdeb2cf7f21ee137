"""The bases that plugin authors derive from: session classes as parts, all positions at once, and a
policy that ends a draft early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from law_cases import table
from torch import Tensor

from foredraft.framework import (
    DrafterSpec,
    DraftKind,
    DraftStep,
    ParallelSession,
    PluginFault,
    PolicySession,
    PolicySpec,
    SamplingParams,
    StepSession,
    TokenSession,
)
from foredraft.framework.decoding import Parts, decode
from foredraft.framework.factories import make_part
from foredraft.framework.interfaces import Drafter, GammaPolicy
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.requests import Answer, Request
from foredraft.framework.testing.draws import law_p_values
from foredraft.framework.testing.tables import TableDrafter
from foredraft.verifiers.token import TokenVerifier


@dataclass
class Config:
    """One value.

    Args:
        value: a number.
    """

    value: float = 0.5


class Newest(TokenSession):
    def continuation(self, row: int, gamma: int) -> list[int]:
        return self.context.tokens[row][-1:] * gamma


class Tilted(ParallelSession):
    """Position i prefers token i."""

    calls = 0

    def all_logits(self, width: int) -> Tensor:
        type(self).calls += 1
        eye = torch.eye(width, self.context.vocab_size, dtype=torch.float64)
        return (eye * self.config.value).expand(self.context.rows, -1, -1)


class Sure(PolicySession):
    """Drafts on while the drafter is sure of its next token, whatever that will be."""

    def gammas(self) -> list[int]:
        return [3] * self.context.rows

    def go_on(self, step: DraftStep) -> Tensor:
        return step.law.amax(-1) > self.config.value


class Confident(Sure):
    """Stops after a token that was unlikely: before the next one, whose law is never asked for."""

    def go_on(self, step: DraftStep) -> Tensor:
        if not step.probs:
            return torch.ones(self.context.rows, dtype=torch.bool)
        return step.probs[-1] > self.config.value


def drafter(session: type, **options: object) -> Drafter:
    spec = DrafterSpec("mine", session, Config, contract=1, **options)  # type: ignore[arg-type]
    made = make_part(spec, Config(), table(1, 0.0))
    assert isinstance(made, Drafter)
    return made


def policy(session: type) -> GammaPolicy:
    made = make_part(PolicySpec("mine", session, Config, contract=1), Config())
    assert isinstance(made, GammaPolicy)
    return made


def run(parts: Parts, rows: int = 4, tokens: int = 12, temperature: float = 1.0) -> list[Answer]:
    params = SamplingParams(temperature=temperature)
    answers = [Answer(Request([1, 0], tokens, params, seed=3, index=i)) for i in range(rows)]
    for _ in decode(parts, answers):
        pass
    return answers


def test_a_session_class_is_a_drafter_of_the_kind_its_spec_declares() -> None:
    kind = DraftKind("deterministic")
    made = drafter(Newest, kind=kind)
    assert made.kind == kind
    answers = run(Parts(table(1, 0.0), made, TokenVerifier(), Fixed(FixedConfig(3)), {}))
    assert sum(answer.metrics.drafted for answer in answers) > 0


def test_a_factory_can_be_text() -> None:
    spec = DrafterSpec("none", "foredraft.drafters.none:NoDrafter", Config, contract=1)
    from foredraft.framework.factories import resolved

    assert resolved(spec).__name__ == "NoDrafter"


def test_all_positions_at_once_are_asked_for_once_a_round_and_keep_the_law() -> None:
    parts = Parts(table(1, 0.2), drafter(Tilted), TokenVerifier(), Fixed(FixedConfig(3)), {})
    Tilted.calls = 0
    (answer,) = run(parts, rows=1)
    assert 0 < Tilted.calls <= answer.metrics.rounds
    settings = [{"sampling": SamplingParams(temperature=t)} for t in (1.0, 0.6)]
    assert min(law_p_values(parts, settings, [1, 0, 1], 3, 8000)) > 1e-4


@pytest.mark.parametrize("session", [Sure, Confident])
def test_a_policy_that_ends_drafts_early_keeps_the_law(session: type) -> None:
    parts = Parts(table(1, 0.2), TableDrafter(table(2, 0.2)), TokenVerifier(), policy(session), {})
    lengths = {len(o.drafted) for o in outcomes(parts)}
    assert {1, 3} & lengths and len(lengths) > 1, "it never stopped early, or always"
    settings = [{"sampling": SamplingParams(temperature=t)} for t in (1.0, 0.6)]
    assert min(law_p_values(parts, settings, [1, 0, 1], 4, 8000)) > 1e-4


def outcomes(parts: Parts) -> list:  # type: ignore[type-arg]
    answers = [Answer(Request([1, 0], 20, SamplingParams(), seed=3, index=i)) for i in range(8)]
    return [row for outcome in decode(parts, answers) for row in outcome.rows]


def test_a_policy_that_does_not_ask_for_the_law_saves_the_step() -> None:
    class Counting(StepSession):
        steps = 0

        def next_logits(self, drafted: list[Tensor]) -> Tensor:
            Counting.steps += 1
            return torch.zeros(self.context.rows, 3, dtype=torch.float64)

    class First(Sure):
        def go_on(self, step: DraftStep) -> Tensor:
            return torch.full((self.context.rows,), step.position < 1)

    (answer,) = run(Parts(table(1, 0.0), drafter(Counting), TokenVerifier(), policy(First), {}), 1)
    assert Counting.steps == answer.metrics.drafted > 0


@pytest.mark.parametrize(
    "answer", [lambda n: [True] * n, lambda n: torch.ones(n), lambda n: torch.ones(n + 1) > 0]
)
def test_a_wrong_answer_is_the_policys_fault(answer: Callable[[int], object]) -> None:
    class Wrong(Sure):
        def go_on(self, step: DraftStep) -> Tensor:
            return answer(self.context.rows)  # type: ignore[return-value]

    parts = Parts(
        table(1, 0.0),
        TableDrafter(table(2, 0.0)),
        TokenVerifier(),
        policy(Wrong),
        {"policy": "bad"},
    )
    with pytest.raises(PluginFault, match=r"policy 'bad' answered go_on with .*; a bool tensor"):
        run(parts, 2)
