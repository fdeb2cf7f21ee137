"""A policy that follows each row's accept rate. What it offers; imports no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foredraft.framework import PolicySpec, hookimpl


@dataclass
class SteadyConfig:
    """Draft as long as tokens are likely to stand.

    Args:
        longest: the most drafted tokens of a round.
        worth: a token is worth drafting while it stands with at least this probability.
        prior: accept rate of a row of which nothing is known yet.
        smoothing: how much one verdict moves the rate; 0 keeps the prior.
        sure: stop before a token whose likeliest value has less than this probability in the
            draft law; 0 never stops, and saves the question.
    """

    longest: int = 12
    worth: float = 0.4
    prior: float = 0.7
    smoothing: float = 0.1
    sure: float = 0.3

    def __post_init__(self) -> None:
        if not 1 <= self.longest <= 64:
            raise ValueError(f"longest={self.longest} must be from 1 to 64")
        for name in ("worth", "prior"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be between 0 and 1")
        for name in ("smoothing", "sure"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} must be from 0 to 1")


@hookimpl
def foredraft_policies() -> Iterable[PolicySpec]:
    """The policy ``steady``; its class is imported when it is chosen."""
    yield PolicySpec(
        "steady",
        "foredraft_steady.policy:SteadySession",
        SteadyConfig,
        "as far as the row's accept rate carries, no further than the drafter is sure",
        contract=1,
    )
