"""One pytest case per check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from ...interfaces import Target
from ...specs import PartSpec
from .checks import Check
from .report import EXPECTED, FAILED, SKIPPED, check_names, run_check, selected
from .subject import Subject, subject_of

Test = TypeVar("Test", bound=Callable[..., Any])


def parametrize_with_checks(
    kind: str,
    part: PartSpec | str,
    values: Mapping[str, Any] | None = None,
    *,
    target: Callable[[], Target] | None = None,
    expected_failed_checks: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Callable[[Test], Test]:
    """Makes one case of each check of a part; the test calls its argument::

        @parametrize_with_checks("drafter", "echo", {"distance": 3})
        def test_conformance(check):
            check()

    Args:
        kind: drafter, verifier or policy.
        part: the name of an installed part, or its spec.
        values: of its config.
        target: makes the target that a drafter drafts for, when the first case runs.
        expected_failed_checks: a reason for each check that is known to fail. Such a case is an
            expected failure; it fails if the check passes.
        seed: of everything random.
    """
    import pytest

    expected = dict(expected_failed_checks or {})
    check_names(kind, expected)
    cases = [
        pytest.param(partial(_run, one, kind, part, values, target, expected, seed), id=one.name)
        for one in selected(kind, None)
    ]
    return pytest.mark.parametrize("check", cases)


def _run(
    check: Check,
    kind: str,
    part: PartSpec | str,
    values: Mapping[str, Any] | None,
    target: Callable[[], Target] | None,
    expected: Mapping[str, str],
    seed: int,
) -> None:
    import pytest

    subject: Subject = subject_of(kind, part, values, seed, target() if target else None)
    outcome = run_check(check, subject, expected)
    if outcome.status == SKIPPED:
        pytest.skip(outcome.detail)
    if outcome.status == EXPECTED:
        pytest.xfail(outcome.detail)
    if outcome.status == FAILED:
        pytest.fail(outcome.detail, pytrace=False)
