"""Foredraft's conformance kit: one case per check, with and without the early stop."""

from __future__ import annotations

from collections.abc import Callable

from foredraft.framework.testing import parametrize_with_checks


@parametrize_with_checks("policy", "steady")
def test_steady(check: Callable[[], None]) -> None:
    check()


@parametrize_with_checks("policy", "steady", {"sure": 0.0, "smoothing": 0.5})
def test_steady_without_stops(check: Callable[[], None]) -> None:
    check()
