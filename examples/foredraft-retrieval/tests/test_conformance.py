"""Foredraft's conformance kit: one case per check, for chains and for trees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from foredraft.framework.testing import parametrize_with_checks

# Numbers, so that targets without a tokenizer read them as ids.
CHAINS = {"path": str(Path(__file__).parent / "data"), "min_match": 1}
TREES = {**CHAINS, "branches": 3, "nodes": 6}


@parametrize_with_checks("drafter", "retrieval", CHAINS)
def test_chains(check: Callable[[], None]) -> None:
    check()


@parametrize_with_checks("drafter", "retrieval", TREES)
def test_trees(check: Callable[[], None]) -> None:
    check()
