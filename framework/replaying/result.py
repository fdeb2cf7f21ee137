"""What a policy made of some traces."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


@dataclass(eq=False)
class Replay:
    """One policy over all traces; arrays have a line per trace. Definitions: docs/replay.md.

    Args:
        policy: its name.
        rounds, tokens, drafted, accepted, reached: ``[n]``.
        seconds: ``[n]``, by the cost model; rows of a batch share a round's time evenly.
        capped: rounds in which more was asked for than the traces hold.
    """

    policy: str
    rounds: Counts
    tokens: Counts
    drafted: Counts
    accepted: Counts
    reached: Counts
    seconds: NDArray[np.float64]
    capped: int = 0

    @classmethod
    def empty(cls, policy: str, traces: int) -> Replay:
        """Nothing happened yet."""
        names = ("rounds", "tokens", "drafted", "accepted", "reached")
        counts = {name: np.zeros(traces, dtype=np.int64) for name in names}
        return cls(policy=policy, seconds=np.zeros(traces), capped=0, **counts)

    @property
    def rate(self) -> float:
        """Tokens per second over all traces."""
        return float(self.tokens.sum() / self.seconds.sum())

    @property
    def tau(self) -> float:
        """Tokens per round."""
        return float(self.tokens.sum() / self.rounds.sum())

    @property
    def mean_gamma(self) -> float:
        """Drafted tokens per round."""
        return float(self.drafted.sum() / self.rounds.sum())

    @property
    def accept_rate(self) -> float | None:
        """Accepted over reached positions; None where nothing was drafted."""
        reached = int(self.reached.sum())
        return float(self.accepted.sum() / reached) if reached else None

    @property
    def waste(self) -> float:
        """Drafted tokens that were not emitted, per emitted token."""
        return float((self.drafted - self.accepted).sum() / self.tokens.sum())

    def as_dict(self) -> dict[str, Any]:
        """Sums and ratios as plain values."""
        counts = ("rounds", "tokens", "drafted", "accepted", "reached", "seconds")
        sums = {
            f.name: getattr(self, f.name).sum().item() for f in fields(self) if f.name in counts
        }
        ratios = {
            "tokens_per_second": self.rate,
            "tau": self.tau,
            "mean_gamma": self.mean_gamma,
            "accept_rate": self.accept_rate,
            "waste": self.waste,
        }
        return {"policy": self.policy, **sums, **ratios, "capped": self.capped}
