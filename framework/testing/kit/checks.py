"""What a check is, and the list of those that each kind of part goes through."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from .subject import Subject


class CheckFailed(AssertionError):
    """A part broke its contract; the text names the smallest input that showed it."""


class NotApplicable(Exception):
    """A check that says nothing about this part, and why."""


@dataclass(frozen=True)
class Check:
    """One promise of the contract, and a function that tries to break it.

    Args:
        kind: drafter, verifier or policy.
        name: what reports and ``expected_failed_checks`` call it.
        meaning: what holds if it passes, in one sentence.
        why: what goes wrong for users if it does not hold.
        run: raises ``CheckFailed`` or ``NotApplicable``.
        gpu: needs a CUDA device.
    """

    kind: str
    name: str
    meaning: str
    why: str
    run: Callable[[Subject], None]
    gpu: bool = False


_checks: list[Check] = []


def check(
    kind: str, meaning: str, why: str, gpu: bool = False
) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    """Makes a function a check of ``kind`` (or of several, ``"drafter verifier"``), by its name.

    Functions run in the order in which they are written, from the cheapest to the dearest.
    """

    def add(run: Callable[[Subject], None]) -> Callable[[Subject], None]:
        assert all(text[0].isupper() and text[-1] == "." for text in (meaning, why)), run.__name__
        _checks.extend(Check(one, run.__name__, meaning, why, run, gpu) for one in kind.split())
        return run

    return add


def checks_of(kind: str) -> list[Check]:
    """The checks of a kind, in their order."""
    for module in ("shared", "drafters", "verifiers", "policies"):  # they declare the checks
        import_module(f".{module}", __package__)
    found = [one for one in _checks if one.kind == kind]
    # Shared ones first, whichever module somebody imported first.
    return sorted(found, key=lambda one: not one.run.__module__.endswith(".shared"))


def fail(what: str, **smallest: object) -> NoReturn:
    """Raises ``CheckFailed``: what was wrong, and the input that showed it."""
    shown = ", ".join(f"{name}={value!r}" for name, value in smallest.items())
    raise CheckFailed(f"{what} [{shown}]" if shown else what)


def ascending(cases: Iterable[dict[str, object]], run: Callable[..., str | None]) -> None:
    """Tries cases from the smallest on; the first one about which ``run`` has a complaint is the
    smallest input that shows the fault. Whatever is raised is a complaint too."""
    for case in cases:
        try:
            complaint = run(**case)
        except NotApplicable:
            raise
        except CheckFailed as failure:
            complaint = str(failure)
        except Exception as error:
            complaint = f"it raised {type(error).__name__}: {error}"
        if complaint:
            fail(complaint, **case)
