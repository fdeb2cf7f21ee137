"""Every broken rule fails the check that is named for it, and says on what input."""

from __future__ import annotations

import pytest
from broken_verifiers import PLANTED
from planted import Planted

from foredraft.framework.testing.kit import checks_of, run_checks


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_each_fault_is_caught_by_name(planted: Planted) -> None:
    name = planted.caught_by[0]
    report = run_checks(planted.subject(), only=[name])
    assert [outcome.check.name for outcome in report.failed] == [name], report.outcomes
    assert report.failed[0].detail


def test_each_of_the_checks_catches_something() -> None:
    caught = {name for planted in PLANTED for name in planted.caught_by[:1]}
    # No rule here is an installed plugin: test_kit_verifiers.py has some that import too much.
    assert caught | {"light_import"} == {check.name for check in checks_of("verifier")}


def test_names_are_different() -> None:
    names = [planted.name for planted in PLANTED]
    assert len(set(names)) == len(names) and len(names) >= 30
