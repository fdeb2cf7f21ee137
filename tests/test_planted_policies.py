"""Each broken policy is caught by the checks that name its fault."""

from __future__ import annotations

import pytest
from broken_policies import PLANTED
from planted import Planted

from foredraft.framework.testing.kit import checks_of, run_checks
from foredraft.framework.testing.kit.report import FAILED

PAIRS = [
    pytest.param(planted, name, id=f"{planted.name}-{name}")
    for planted in PLANTED
    for name in planted.caught_by
]


@pytest.mark.parametrize(("planted", "name"), PAIRS)
def test_the_named_check_notices(planted: Planted, name: str) -> None:
    (outcome,) = run_checks(planted.subject(), only=[name]).outcomes
    assert outcome.status == FAILED, f"{planted.what}: {name} {outcome.status} {outcome.detail}"
    assert outcome.detail


def test_every_check_of_a_policy_but_the_shared_ones_has_a_fault_that_only_it_has_to_find() -> None:
    first = {planted.caught_by[0] for planted in PLANTED}
    shared = {"config_round_trip", "light_import"}
    assert first == {check.name for check in checks_of("policy")} - shared


def test_names_are_unique() -> None:
    assert len({planted.name for planted in PLANTED}) == len(PLANTED)
