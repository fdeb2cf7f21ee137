"""Policies over the same traces, beside every fixed gamma, the oracle, and one that is informed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..interfaces import GammaPolicy
from ..policies.builtin import FixedConfig
from ..policies.fixed import Fixed
from ..policies.oracle import Oracle
from ..times.steps import FLAT, StepTimes
from ..traces import DenseTrace
from ..traces.synthetic import alphas_of
from .choices import Choice
from .engine import replay
from .informed import Informed
from .result import Replay
from .stack import Costs, Stack


@dataclass(eq=False)
class Comparison:
    """Replays over the same traces, with the same times.

    Args:
        fixed: by gamma; 0, plain decoding, is always there.
        oracle: which knows the first rejection.
        policies: what was asked for, in that order.
        informed: which knows the rate of each place; None for real texts.
        batch: rows that decoded together.
    """

    fixed: dict[int, Replay]
    oracle: Replay
    policies: list[Replay] = field(default_factory=list)
    informed: Replay | None = None
    batch: int = 1

    @property
    def plain(self) -> Replay:
        """Decoding without drafts."""
        return self.fixed[0]

    @property
    def best_gamma(self) -> int:
        """The fixed gamma with the most tokens per second in hindsight; of equal ones, the least."""
        return max(sorted(self.fixed), key=lambda gamma: self.fixed[gamma].rate)

    def rows(self) -> list[dict[str, Any]]:
        """One per replay: fixed gammas, the policies, then those that know more than they could."""
        bounds = [self.informed] if self.informed else []
        every = [*self.fixed.values(), *self.policies, *bounds, self.oracle]
        return [self.row(one) for one in every]

    def row(self, one: Replay) -> dict[str, Any]:
        """A replay beside the others.

        ``x_plain`` and ``x_best`` are ratios of tokens per second, to plain decoding and to the best
        fixed gamma; ``x_best_se`` is the second's standard error over traces. ``regret`` is what is
        missing to ``x_best`` 1. ``oracle_share`` and ``informed_share`` are shares of the other's
        gain over plain decoding, ``informed_over_best`` of its gain over the best fixed gamma, where
        that is above half a per cent.
        """
        best = self.fixed[self.best_gamma]
        x_best = one.rate / best.rate
        shares = {
            "oracle_share": share(one, self.oracle, self.plain),
            "informed_share": share(one, self.informed, self.plain),
            "informed_over_best": share(one, self.informed, best, 0.005),
        }
        return {
            **one.as_dict(),
            "x_plain": one.rate / self.plain.rate,
            "x_best": x_best,
            "x_best_se": self._error(one, best),
            "regret": 1 - x_best,
            **shares,
        }

    def _error(self, one: Replay, base: Replay) -> float | None:
        """Standard error of the ratio of two replays' rates over the same texts: of a ratio of
        means, by linearisation."""
        begins = np.arange(0, len(one.seconds), self.batch)
        ours, theirs = (np.add.reduceat(r.seconds, begins) for r in (one, base))
        if len(begins) < 2:
            return None
        rest = theirs - ours * (theirs.sum() / ours.sum())
        return float(np.sqrt(rest.var(ddof=1) * len(rest)) / ours.sum())


def share(one: Replay, bound: Replay | None, base: Replay, least: float = 1e-9) -> float | None:
    """How much of ``bound``'s gain over ``base`` a replay has; None where that is nothing."""
    if bound is None or bound.rate / base.rate - 1 <= least:
        return None
    return (one.rate / base.rate - 1) / (bound.rate / base.rate - 1)


def compare(
    traces: Sequence[DenseTrace],
    policies: Sequence[Choice] = (),
    times: StepTimes = FLAT,
    gammas: Sequence[int] | None = None,
    batch: int = 1,
) -> Comparison:
    """Replays fixed gammas, policies and bounds.

    Args:
        gammas: the fixed ones, 0 apart; None is all that the traces hold.
        batch: rows that decode together.
    """
    for choice in policies:
        choice.check(traces)
    stack = Stack(traces)
    costs, apart = Costs(times, stack), batch == 1

    def run(name: str, policy: GammaPolicy, together: bool = True) -> Replay:
        return replay(policy, stack, costs, name=name, batch=batch, together=together and apart)

    lengths = range(stack.most + 1) if gammas is None else [0, *gammas]
    fixed = {g: run(f"fixed {g}", Fixed(FixedConfig(g))) for g in sorted(set(lengths))}
    found = Comparison(fixed, run("oracle", Oracle()), batch=batch)
    if all(alphas_of(trace) is not None for trace in stack.traces):
        found.informed = run("informed", Informed(stack, costs))
    found.policies += [run(c.name, c.policy, c.together) for c in policies]
    return found
