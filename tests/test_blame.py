"""A part that breaks its contract is the one that is named, in words that its author understands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from law_cases import table
from torch import Tensor

from foredraft.framework import DrafterSpec, PluginFault, SamplingParams, StepSession, plugins
from foredraft.framework.decoding import Parts, decode
from foredraft.framework.factories import make_part
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.records import Trial, Verdict
from foredraft.framework.requests import Answer, Request
from foredraft.framework.testing.tables import TableDrafter
from foredraft.verifiers.token import TokenVerifier


@dataclass
class Nothing:
    """Nothing to set."""


def run(drafter: Any, verifier: Any) -> None:
    names = {"target": "t", "drafter": "d", "verifier": "v"}
    parts = Parts(table(1, 0.0), drafter, verifier, Fixed(FixedConfig(2)), names)
    for _ in decode(parts, [Answer(Request([1, 0], 4, SamplingParams(), seed=1, index=0))]):
        pass


class Wrong(TokenVerifier):
    def __init__(self, change: Callable[[Verdict], Verdict]) -> None:
        self.change = change

    def verify(self, trial: Trial) -> Verdict:
        return self.change(super().verify(trial))


VERDICTS: dict[str, tuple[Callable[[Verdict], Verdict], str]] = {
    "NaN": (lambda v: replace(v, next_law=v.next_law * float("nan")), "gave a law .* none"),
    "twice a law": (lambda v: replace(v, next_law=v.next_law * 2), "gave a law .* none"),
    "nothing left": (lambda v: replace(v, next_law=v.next_law * 0), "gave a law .* none"),
    "wide token": (lambda v: replace(v, token=v.accepted.unsqueeze(1)), "token of shape"),
    "float token": (lambda v: replace(v, token=v.accepted.double()), "token of dtype"),
    "list": (lambda v: replace(v, accepted=[0]), "a list as accepted"),  # type: ignore[arg-type]
    "float count": (lambda v: replace(v, accepted=v.accepted + 0.7), "accepted of dtype"),
}


@pytest.mark.parametrize("change", VERDICTS)
def test_a_verdicts_fault_is_the_verifiers(change: str) -> None:
    how, said = VERDICTS[change]
    with pytest.raises(PluginFault, match=f"^verifier 'v' .*{said}"):
        run(TableDrafter(table(2, 0.0)), Wrong(how))


LOGITS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "one row only": (lambda x: x[0], r"shape \(3,\); \(1, 3\) is due"),
    "a place too many": (lambda x: x.unsqueeze(1), r"shape \(1, 1, 3\); \(1, 3\) is due"),
    "nothing": (lambda x: None, r"a NoneType; a tensor \(1, 3\) is due"),
}


@pytest.mark.parametrize("change", LOGITS)
def test_wrong_logits_are_told_in_a_sentence(change: str) -> None:
    how, said = LOGITS[change]

    class Session(StepSession):
        def next_logits(self, drafted: list[Tensor]) -> Tensor:
            logits: Tensor = how(torch.zeros(self.context.rows, self.context.vocab_size))
            return logits

    drafter = make_part(DrafterSpec("d", Session, Nothing, contract=1), Nothing(), None)
    with pytest.raises(
        PluginFault, match=f"drafter 'd' raised ValueError: next_logits gave .*{said}"
    ):
        run(drafter, TokenVerifier())


@pytest.mark.parametrize(
    "factory", ["no_such_module:X", "json:loads", lambda config, target: object()]
)
def test_a_factory_that_makes_no_part_is_told_in_a_sentence(factory: Any) -> None:
    spec = DrafterSpec("odd", factory, Nothing, contract=1)
    with pytest.raises(PluginFault, match="'odd' (could not be built|gave a)"):
        make_part(spec, Nothing(), None)


def spec(name: str) -> DrafterSpec:
    return DrafterSpec(name, "foredraft.drafters.none:NoDrafter", Nothing, contract=1)


def test_what_was_registered_can_be_taken_back() -> None:
    plugins.reset()
    plugins.register(spec("mine"))
    plugins.register(spec("mine"))  # again: in place of the first
    assert "mine" in plugins.registry().names("drafter")
    plugins.unregister("mine")
    assert "mine" not in plugins.registry().names("drafter")
    with pytest.raises(PluginFault, match="nothing is registered under 'mine'"):
        plugins.unregister("mine")


def test_a_name_that_is_taken_is_refused_and_nothing_is_lost() -> None:
    plugins.reset()
    plugins.register(spec("mine"))
    with pytest.raises(PluginFault, match="'ngram' is taken by foredraft"):
        plugins.register(spec("ngram"))
    assert {"mine", "ngram"} <= set(plugins.registry().names("drafter"))
    plugins.reset()
