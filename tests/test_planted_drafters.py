"""Every planted drafter fails the check that is named for it, and healthy ones fail none."""

from __future__ import annotations

import pytest
from broken_drafters import HEALTHY, PLANTED
from planted import Planted

from foredraft.framework.specs import DrafterSpec
from foredraft.framework.testing.kit import checks_of, run_checks, subject_of

LEAST = 32
DEAR = ("greedy_equality", "joint_law", "memory_growth")  # seconds each


def test_there_are_enough_of_them_and_each_is_of_its_own() -> None:
    names = [planted.name for planted in PLANTED]
    assert len(names) == len(set(names)) >= LEAST
    assert len({planted.what for planted in PLANTED}) == len(names)


def test_every_check_of_a_drafter_catches_something() -> None:
    """A check that nothing ever failed proves nothing."""
    blind = {one.name for one in checks_of("drafter")} - {p.caught_by[0] for p in PLANTED}
    assert blind <= {"light_import", "greedy_equality", "joint_law", "no_host_sync"}


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_drafter_is_caught(planted: Planted) -> None:
    """By the check that is named first, which says what it saw."""
    report = run_checks(planted.subject(), only=planted.caught_by[:1])
    (outcome,) = report.outcomes
    assert outcome.status == "failed", f"{planted.what}: {outcome.status} {outcome.detail}"
    assert outcome.detail


@pytest.mark.parametrize("name", ["ending", "recurrent", "branching"])
def test_a_healthy_drafter_fails_none_of_the_quick_checks(name: str) -> None:
    (spec,) = [spec for spec in HEALTHY if spec.name == name]
    quick = [one.name for one in checks_of("drafter") if one.name not in DEAR]
    run_checks(subject_of("drafter", spec), only=quick).raise_failures()


@pytest.mark.slow
@pytest.mark.parametrize("spec", HEALTHY, ids=lambda spec: spec.name)
def test_a_healthy_drafter_fails_no_check(spec: DrafterSpec) -> None:
    run_checks(subject_of("drafter", spec)).raise_failures()
