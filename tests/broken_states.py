"""Drafters whose state goes wrong: behind a rejection, or between rounds."""

from __future__ import annotations

from typing import Any

from broken_models import Bigram, Recurrent
from planted import Planted
from planting import planter
from torch import Tensor

from foredraft.framework.context import Context
from foredraft.framework.records import Round

PLANTED: list[Planted] = []
fault = planter(PLANTED)


# --- rollback ---------------------------------------------------------------------------------


@fault("keeps the states of rejected tokens", "rollback")
class NoRollback(Recurrent):
    def observe(self, outcome: Round) -> None:
        for place, row in enumerate(outcome.rows):
            self.pending[place] += row.emitted[min(row.accepted, self.fed[place]) :]
            self.fed[place] = 0


@fault("rolls back one token too many", "rollback")
class OneTooMany(Recurrent):
    def observe(self, outcome: Round) -> None:
        rejected = [row.accepted < fed for row, fed in zip(outcome.rows, self.fed, strict=True)]
        super().observe(outcome)
        self.taken = [n - one for n, one in zip(self.taken, rejected, strict=True)]


@fault("rolls back one token too few", "rollback")
class OneTooFew(Recurrent):
    def observe(self, outcome: Round) -> None:
        rejected = [row.accepted < fed for row, fed in zip(outcome.rows, self.fed, strict=True)]
        super().observe(outcome)
        self.taken = [n + one for n, one in zip(self.taken, rejected, strict=True)]


@fault(
    "takes in the bonus token alone, and not the last drafted one that was never fed", "rollback"
)
class HoleBeforeBonus(Recurrent):
    def observe(self, outcome: Round) -> None:
        super().observe(outcome)
        for place, row in enumerate(outcome.rows):
            if row.drafted and row.accepted == len(row.drafted):
                self.pending[place] = self.pending[place][-1:]


@fault("never takes in the bonus token", "rollback")
class NoBonus(Recurrent):
    def observe(self, outcome: Round) -> None:
        super().observe(outcome)
        for place, row in enumerate(outcome.rows):
            if row.drafted and row.accepted == len(row.drafted):
                self.pending[place] = self.pending[place][:-1]


@fault("starts over after a rejection, from the answer without the prompt", "rollback")
class WrongPrefix(Recurrent):
    def observe(self, outcome: Round) -> None:
        super().observe(outcome)
        for place, row in enumerate(outcome.rows):
            if row.accepted < len(row.drafted):
                begin = self.context.prompt_lengths[place]
                self.taken[place], self.pending[place] = 0, self.context.tokens[place][begin:]


@fault("takes what it drafted for what was emitted", "rollback")
class OwnTokens(Recurrent):
    def observe(self, outcome: Round) -> None:
        super().observe(outcome)
        for place, row in enumerate(outcome.rows):
            if self.pending[place] and len(row.drafted) > row.accepted:
                self.pending[place][-1] = row.drafted[row.accepted]


# --- rounds -----------------------------------------------------------------------------------


@fault("hears only rounds in which it drafted", "every_round_observed")
class HardOfHearing(Recurrent):
    def observe(self, outcome: Round) -> None:
        heard = [list(row) for row in self.pending]
        super().observe(outcome)
        for place, row in enumerate(outcome.rows):
            if not row.drafted:
                self.pending[place] = heard[place]


@fault("divides by the number of tokens it drafted, which may be 0", "every_round_observed")
class DividesByNothing(Bigram):
    rate = 0.0

    def observe(self, outcome: Round) -> None:
        self.rate = min(row.accepted / len(row.drafted) for row in outcome.rows)


@fault("keeps the laws of every round, and looks at none of them", "memory_growth")
class KeepsLaws(Bigram):
    def __init__(self, context: Context, config: Any = None) -> None:
        super().__init__(context, config)
        self.seen: list[Any] = []

    def observe(self, outcome: Round) -> None:
        if outcome.scored is not None:
            self.seen.append(outcome.scored.draft.law)


@fault("keeps one line of the target's logits, and with it the whole round's", "memory_growth")
class KeepsViews(Bigram):
    def __init__(self, context: Context, config: Any = None) -> None:
        super().__init__(context, config)
        self.seen: list[Tensor] = []

    def observe(self, outcome: Round) -> None:
        if outcome.scored is not None:
            self.seen.append(outcome.scored.logits[:, 0])
