"""The conformance kit: tries to break the contract of a drafter, a verifier or a policy.

``check_drafter``, ``check_verifier`` and ``check_policy`` run all checks of one part and raise what
failed; ``parametrize_with_checks`` makes one pytest case of each; ``foredraft check`` prints a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...interfaces import Target
from ...specs import DrafterSpec, PartSpec, PolicySpec, VerifierSpec
from .cases import parametrize_with_checks
from .checks import Check, CheckFailed, NotApplicable, checks_of
from .report import Outcome, Report, run_check, run_checks
from .subject import Subject, subject_of

__all__ = [
    "Check",
    "CheckFailed",
    "NotApplicable",
    "Outcome",
    "Report",
    "Subject",
    "check_drafter",
    "check_policy",
    "check_verifier",
    "checks_of",
    "parametrize_with_checks",
    "run_check",
    "run_checks",
    "subject_of",
]


def check_drafter(
    drafter: DrafterSpec | str,
    values: Mapping[str, Any] | None = None,
    *,
    target: Target | None = None,
    expected_failed_checks: Mapping[str, str] | None = None,
    only: Iterable[str] | None = None,
    seed: int = 0,
) -> Report:
    """Checks a drafter on the CPU, without a download, in less than a minute.

    Args:
        drafter: the name of an installed one, or its spec.
        values: of its config, ``{"distance": 3}``; the defaults otherwise.
        target: what it drafts for, in place of the kit's tiny targets.
        expected_failed_checks: a reason for each check that is known to fail; one that passes
            all the same is a failure.
        only: names of the checks to run; all of them otherwise.
        seed: of everything random.

    Raises:
        AssertionError: names each failed check with the smallest input that showed it.
        ConfigError: for a name, a key or a value that does not exist.
    """
    return _run("drafter", drafter, values, seed, target, expected_failed_checks, only)


def check_verifier(
    verifier: VerifierSpec | str,
    values: Mapping[str, Any] | None = None,
    *,
    expected_failed_checks: Mapping[str, str] | None = None,
    only: Iterable[str] | None = None,
    seed: int = 0,
) -> Report:
    """Checks an acceptance rule; arguments as in ``check_drafter``."""
    return _run("verifier", verifier, values, seed, None, expected_failed_checks, only)


def check_policy(
    policy: PolicySpec | str,
    values: Mapping[str, Any] | None = None,
    *,
    expected_failed_checks: Mapping[str, str] | None = None,
    only: Iterable[str] | None = None,
    seed: int = 0,
) -> Report:
    """Checks a draft-length policy; arguments as in ``check_drafter``."""
    return _run("policy", policy, values, seed, None, expected_failed_checks, only)


def _run(
    kind: str,
    part: PartSpec | str,
    values: Mapping[str, Any] | None,
    seed: int,
    target: Target | None,
    expected: Mapping[str, str] | None,
    only: Iterable[str] | None,
) -> Report:
    subject = subject_of(kind, part, values, seed, target)
    return run_checks(subject, expected, only).raise_failures()
