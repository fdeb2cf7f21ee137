"""Every metric, defined once. Counters belong to one request; runs add requests up.

| metric | definition |
|---|---|
| rounds | target forwards after prefill |
| drafted | drafted tokens that were verified |
| accepted | drafted tokens that were emitted |
| emitted | tokens of the answer: accepted + rounds, unless a stop cut the last round |
| reached | drafted positions that a verdict was given on: the accepted and the first rejected |
| tau | emitted / rounds |
| accept_rate | accepted / reached |
| alpha | mean of sum(min(target, draft)) over reached positions (Leviathan et al. 2023, 3.5) |
| waste | drafted - accepted |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .records import RowOutcome

PHASES = ("prefill", "draft", "verify", "sampling", "other")


@dataclass
class Metrics:
    """Counters of one request, or the sum over several."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    reached_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    overlap: float = 0.0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    @property
    def reached(self) -> int:
        """Drafted positions that were judged."""
        return sum(self.reached_at)

    @property
    def tau(self) -> float | None:
        """Tokens emitted per round, or None before the first."""
        return self.emitted / self.rounds if self.rounds else None

    @property
    def accept_rate(self) -> float | None:
        """Accepted over reached positions, or None when nothing was drafted."""
        return self.accepted / self.reached if self.reached else None

    @property
    def alpha(self) -> float | None:
        """Mean overlap over reached positions, or None when nothing was drafted."""
        return self.overlap / self.reached if self.reached else None

    def count(self, outcome: RowOutcome, seconds: dict[str, float]) -> None:
        """Adds one round of this request."""
        self.rounds += 1
        self.drafted += len(outcome.drafted)
        self.accepted += outcome.accepted
        self.emitted += len(outcome.emitted)
        self.overlap += sum(outcome.overlaps)
        _add(self.reached_at, [1] * len(outcome.overlaps))
        _add(self.accepted_at, [1] * outcome.accepted)
        self.spend(seconds)

    def spend(self, seconds: dict[str, float]) -> None:
        """Adds wall time by phase; rows of one batch share it."""
        for phase, value in seconds.items():
            self.seconds[phase] += value

    def as_dict(self) -> dict[str, Any]:
        """For JSON: counters, ratios, conditional rates by position, seconds by phase."""
        rates = [
            a / r
            for a, r in zip(_pad(self.accepted_at, self.reached_at), self.reached_at, strict=True)
        ]
        return {
            "rounds": self.rounds,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "emitted": self.emitted,
            "waste": self.drafted - self.accepted,
            "tau": self.tau,
            "accept_rate": self.accept_rate,
            "alpha": self.alpha,
            "accept_rate_at": rates,
            "reached_at": list(self.reached_at),
            "time": dict(self.seconds),
        }


def total(parts: Iterable[Metrics]) -> Metrics:
    """The sum over requests. Seconds add up too: rows of one batch each carry its wall time."""
    whole = Metrics()
    for part in parts:
        whole.rounds += part.rounds
        whole.drafted += part.drafted
        whole.accepted += part.accepted
        whole.emitted += part.emitted
        whole.overlap += part.overlap
        _add(whole.reached_at, part.reached_at)
        _add(whole.accepted_at, part.accepted_at)
        whole.spend(part.seconds)
    return whole


def _add(counts: list[int], more: list[int]) -> None:
    counts.extend([0] * (len(more) - len(counts)))
    for index, value in enumerate(more):
        counts[index] += value


def _pad(counts: list[int], like: list[int]) -> list[int]:
    return counts + [0] * (len(like) - len(counts))
