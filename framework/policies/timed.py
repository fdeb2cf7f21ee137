"""The base of policies that aim at tokens per second: expected tokens over expected seconds.

With ``given_i`` the chance that a drafter asked for position i drafts it, ``stands_i`` the chance
that it then stands with all before it, ``T(w)`` the seconds of a target step of width w and ``D(g)``
those of drafting g tokens:

    tokens(g)  = 1 + sum(i <= g) given_i stands_i
    seconds(g) = T(1) + sum(i <= g) given_i (T(i + 1) - T(i)) + D(g)

which is Leviathan et al. 2023, Theorem 3.8, with measured times in place of the constant ``c``, rates
by position in place of one alpha, and drafts that may be short or missing. A gamma is judged by the
first over the second.

A share ``probe`` of the time may be lost on gammas that look worse, so that what they would bring is
not forgotten: such a round is taken once its expected loss has been saved up.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from ..context import Context
from ..records import Round
from .acceptance import Acceptance
from .prices import BUCKET, Corrections, Prices
from .rows import Counts, Floats, Outcomes, RowPolicySession
from .single import NONE, Single


class TimedPolicySession(RowPolicySession):
    """Keeps estimates and prices; a subclass says how gammas follow from them."""

    def __init__(self, context: Context, config: Any = None) -> None:
        self.most = config.max_gamma
        self.upto = np.tri(self.most + 1, self.most, -1)  # in row n: 1 at the first n places
        self.prices = Prices(context.times(), self.most)
        self.verifying, self.drafting = Corrections(self.most + 1), Corrections(self.most + 1)
        self.wanted = [0] * context.rows
        super().__init__(context, config)

    def open(self, lines: int) -> None:
        config = self.config
        self.single = Single(config) if lines == 1 else None
        self.acceptance = Acceptance(lines, self.most, config.memory, config.prior, config.alpha)
        self.saved = np.zeros(lines)

    @abstractmethod
    def choose(self) -> list[int]:
        """A gamma for each row."""

    def gammas(self) -> list[int]:
        self.wanted = self.choose()
        return list(self.wanted)

    def costs(self, batch: int, bucket: int) -> tuple[Floats, Floats]:
        """Seconds ``[most + 1]`` of verifying and of drafting, as far as is known by now."""
        verify, draft = self.prices.of(batch, bucket)
        if self.config.frozen:
            return verify, draft
        return verify * np.array(self.verifying.factors), draft * np.array(self.drafting.factors)

    def plain_costs(self, batch: int, bucket: int) -> tuple[list[float], list[float]]:
        """The same in plain numbers."""
        verify, draft = self.prices.plain(batch, bucket)
        if self.config.frozen:
            return verify, draft
        both = zip(verify, self.verifying.factors, draft, self.drafting.factors, strict=True)
        corrected = [(v * a, d * b) for v, a, d, b in both]
        return [pair[0] for pair in corrected], [pair[1] for pair in corrected]

    def longest(self) -> int:
        """The bucket of the longest row."""
        return (max(map(len, self.context.tokens)) - 1) // BUCKET

    def values(self, lines: Counts, verify: Floats, draft: Floats) -> Values:
        """What each gamma is worth. ``verify`` and ``draft`` broadcast to ``[n, most + 1]``."""
        given = self.acceptance.chances(lines)
        tokens = _from(1.0, given * self.acceptance.stands(lines))
        return Values(
            tokens, _from(verify[:, :1], given * (verify[:, 1:] - verify[:, :-1])) + draft
        )

    def probing(self, lines: Counts, values: Values, trial: Counts) -> Counts:
        """The best gammas, or those on ``trial`` where that has been saved up for.

        Args:
            trial: ``[n]``, a gamma that is worth a trial, or ``NONE``.
        """
        best, at = values.best, np.arange(len(lines))
        seconds = values.seconds[at, best]
        loss = np.where(trial == NONE, 0.0, values.loss(trial))
        budget = self.saved[lines] + self.config.probe * seconds
        go = (trial != NONE) & (loss <= budget) & (self.config.probe > 0)
        # Saving for ever would end in a long row of probes.
        saved = np.minimum(budget, np.maximum(2 * seconds, loss))
        self.saved[lines] = np.where(go, budget - loss, saved)
        return np.where(go, trial, best)

    def unknown(self, lines: Counts, best: Counts) -> Counts:
        """``[n]``, the next gamma above the best where little is known of it, else ``NONE``."""
        deeper = np.minimum(best, self.most - 1)
        scarce = self.acceptance.reached[lines, deeper] < self.config.prior
        return np.where((best < self.most) & (scarce | (best == 0)), best + 1, NONE)

    def learn(self, outcomes: Outcomes) -> None:
        self.acceptance.learn(outcomes)

    def observe(self, outcome: Round) -> None:
        self._hear_lengths(outcome)
        if not self.config.frozen and outcome.rows:
            self._hear_seconds(outcome)
        if self.single:
            self.single.hear(outcome.rows)
        else:
            super().observe(outcome)

    def select(self, rows: list[int]) -> None:
        super().select(rows)
        self.wanted = [self.wanted[row] for row in rows]

    def _hear_lengths(self, outcome: Round) -> None:
        """How many tokens were drafted of those asked for, after the loop's own cut."""
        asked = [min(row.gamma, self.most) for row in outcome.rows]
        if not any(asked):
            return
        # A tree drafts more at times.
        drafted = [min(len(row.drafted), n) for row, n in zip(outcome.rows, asked, strict=True)]
        if self.single:
            self.single.hear_lengths(asked, drafted)
        else:
            self.acceptance.learn_lengths(self.lines, self.upto[asked], self.upto[drafted])

    def _hear_seconds(self, outcome: Round) -> None:
        """What the round took beside what the table says of it. A round that was cut short, or that
        other policies had a share in, is not what was asked for."""
        asked = max(self.wanted)
        if [row.gamma for row in outcome.rows] != self.wanted:
            return
        # A tree has more nodes than gamma; their number follows from it.
        width = min(max(len(row.drafted) for row in outcome.rows), asked)
        drafting, whole = outcome.seconds.get("draft", 0.0), sum(outcome.seconds.values())
        if whole <= drafting:
            return
        verify, draft = self.prices.plain(len(outcome.rows), self._bucket(outcome))
        self.verifying.learn(width, whole - drafting, verify[width])
        if asked:
            self.drafting.learn(asked, drafting, draft[asked])

    def _bucket(self, outcome: Round) -> int:
        lengths = zip(self.context.tokens, outcome.rows, strict=True)
        return max(len(row) - len(one.emitted) - 1 for row, one in lengths) // BUCKET


class Values:
    """Expected tokens and seconds of each gamma, both ``[n, most + 1]``."""

    def __init__(self, tokens: Floats, seconds: Floats) -> None:
        self.tokens, self.seconds = tokens, seconds
        self.rates = tokens / seconds
        self.best = self.rates.argmax(1)

    def loss(self, gammas: Counts) -> Floats:
        """``[n]``, seconds that these gammas take longer than the best for the tokens they bring."""
        at = np.arange(len(gammas))
        least = self.tokens[at, gammas] / self.rates[at, self.best]
        loss: Floats = self.seconds[at, gammas] - least
        return loss


def _from(first: Floats | float, steps: Floats) -> Floats:
    """``first`` and its running sums with ``steps [n, most]``: ``[n, most + 1]``."""
    sums = np.empty((len(steps), steps.shape[1] + 1))
    sums[:, :1] = first
    np.cumsum(steps, 1, out=sums[:, 1:])
    sums[:, 1:] += first
    return sums
