"""Draws of the whole engine, rule by rule and control by control, against plain decoding's law.

The law comes from transformers' own processors (``testing/reference.py``). Every control has a
planted fault that the same test has to see.
"""

from __future__ import annotations

import pytest
from law_cases import CONTROLS, FAULTS, MIXED, PROMPT, RULES, TOKENS, parts

from foredraft.framework.errors import PluginFault
from foredraft.framework.testing.draws import law_p_values

FLOOR = 1e-6


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_follows_the_joint_law(rule: str) -> None:
    found = law_p_values(parts(rule), MIXED, PROMPT, TOKENS, 8000)
    assert min(found) > FLOOR, found


@pytest.mark.parametrize("rule", ["block", "recursive/without_replacement"])
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


def test_every_control_has_a_planted_fault() -> None:
    assert set(CONTROLS) - {"all together"} == set(FAULTS)
