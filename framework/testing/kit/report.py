"""Running the checks of a part, and what came out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from ...errors import ConfigError, near_match
from .checks import Check, CheckFailed, NotApplicable, checks_of
from .process import seldom_collected
from .subject import Subject

PASSED, FAILED, SKIPPED, EXPECTED = "passed", "failed", "skipped", "expected failure"


@dataclass(frozen=True)
class Outcome:
    """How one check ended.

    Args:
        check: which one.
        status: ``passed``, ``failed``, ``skipped`` or ``expected failure``.
        detail: why it failed or was skipped; empty for one that passed.
        seconds: how long it took.
    """

    check: Check
    status: str
    detail: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Report:
    """All outcomes of one part."""

    subject: Subject
    outcomes: list[Outcome]

    @property
    def failed(self) -> list[Outcome]:
        """The checks that failed and were not expected to."""
        return [outcome for outcome in self.outcomes if outcome.status == FAILED]

    def raise_failures(self) -> Report:
        """Raises an AssertionError that names every failed check; gives the report otherwise."""
        if self.failed:
            lines = [f"- {outcome.check.name}: {outcome.detail}" for outcome in self.failed]
            head = f"{self.subject.kind} {self.subject.name!r} failed {len(lines)} of its checks:"
            raise AssertionError("\n".join([head, *lines]))
        return self


def run_check(check: Check, subject: Subject, expected: Mapping[str, str] | None = None) -> Outcome:
    """Runs one check. A check that was expected to fail and passes has failed."""
    reason, started = (expected or {}).get(check.name), time.perf_counter()
    status, detail = PASSED, ""
    try:
        if check.gpu and not torch.cuda.is_available():
            raise NotApplicable("no CUDA device is at hand")
        with seldom_collected():
            check.run(subject)
    except NotApplicable as skip:
        status, detail = SKIPPED, str(skip)
    except CheckFailed as failure:
        status, detail = FAILED, str(failure)
    except (Exception, SystemExit) as error:
        status, detail = FAILED, f"it raised {type(error).__name__}: {error}"
    if reason and status == FAILED:
        status, detail = EXPECTED, f"{reason} ({detail})"
    elif reason:
        status, detail = FAILED, f"it was expected to fail ({reason}) and did not: {status}"
    return Outcome(check, status, detail, time.perf_counter() - started)


def run_checks(
    subject: Subject,
    expected: Mapping[str, str] | None = None,
    only: Iterable[str] | None = None,
) -> Report:
    """Runs the checks of a part's kind, or those named by ``only``."""
    chosen = selected(subject.kind, only)
    check_names(subject.kind, expected or {})
    return Report(subject, [run_check(one, subject, expected) for one in chosen])


def selected(kind: str, only: Iterable[str] | None) -> list[Check]:
    """The checks of a kind, or the named ones."""
    if only is None:
        return checks_of(kind)
    names = set(only)
    check_names(kind, names)
    return [one for one in checks_of(kind) if one.name in names]


def check_names(kind: str, names: Iterable[str]) -> None:
    """Refuses a name that no check of the kind has."""
    known = [one.name for one in checks_of(kind)]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"there is no check {name!r} of a {kind}; {near_match(name, known)}checks: "
                f"{', '.join(known)}."
            )
