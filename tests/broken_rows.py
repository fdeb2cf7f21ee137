"""Drafters that mix up rows or runs, write into what they were given, or fail at the ends of a text."""

from __future__ import annotations

from typing import Any

import torch
from broken_models import Bigram, Copier, Drawn, Recurrent, followers
from planted import Planted
from planting import planter
from torch import Tensor

from foredraft.framework.context import Context
from foredraft.framework.device import upload
from foredraft.framework.interfaces import Drafter, DraftSession
from foredraft.framework.law import DenseLaw
from foredraft.framework.records import Round

PLANTED: list[Planted] = []
fault = planter(PLANTED)


# --- rows -------------------------------------------------------------------------------------


@fault("goes on with the first rows' states when others are left", "row_fates")
class SelectIgnored(Recurrent):
    def select(self, rows: list[int]) -> None:
        count = len(rows)
        self.states, self.taken = self.states[:count], self.taken[:count]
        self.fed, self.pending = self.fed[:count], self.pending[:count]


@fault("keeps the right rows in the wrong order", "row_fates")
class SelectReversed(Recurrent):
    def select(self, rows: list[int]) -> None:
        super().select(rows[::-1])


@fault("takes a request's number for its row's", "row_fates")
class ByRequest(Recurrent):
    def observe(self, outcome: Round) -> None:
        rows = {row.request % len(outcome.rows): row for row in outcome.rows}
        ordered = [rows.get(place, outcome.rows[place]) for place in range(len(outcome.rows))]
        super().observe(Round(outcome.index, ordered))


@fault("raises once a row has left: it keeps one entry per row that there was", "row_fates")
class FailsAfterSelect(Copier):
    def __init__(self, context: Context, config: Any = None) -> None:
        super().__init__(context, config)
        self.seen = [0] * context.rows

    def observe(self, outcome: Round) -> None:
        pairs = zip(self.seen, outcome.rows, strict=True)
        self.seen = [n + row.accepted for n, row in pairs]


@fault("centres its logits over the rows of the batch", "rows_independent")
class BatchMean(Bigram):
    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        logits = super().next_logits(drafted)
        return 2 * logits - logits.mean(0)


@fault(
    "shares the batch's tokens among its rows: the more there are, the shorter the drafts",
    "rows_independent",
)
class SharedBudget(Bigram):
    def limits(self, gammas: list[int]) -> list[int]:
        return [min(gamma, max(1, 4 // self.context.rows)) for gamma in gammas]


# --- runs -------------------------------------------------------------------------------------


class Counting(Bigram):
    """Adds counts of the drafter's own to those of the row's text."""

    counts: Tensor

    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        newest = drafted[-1] if drafted else self.committed()
        found = followers(self.context, newest.unsqueeze(1)).squeeze(1)
        return (found + self.counts[newest]).log()

    def observe(self, outcome: Round) -> None:
        for ids in self.context.tokens:
            self.counts[ids[-2:-1], ids[-1:]] += 1


@fault("counts on the drafter, so that a run learns from the run before", "no_state_across_runs")
class SharedCounts(Drafter):
    def __init__(self, config: object, target: Any) -> None:
        vocab = target.vocab_size
        self.counts = torch.zeros(vocab, vocab, dtype=torch.float64, device=target.device)

    def start(self, context: Context) -> DraftSession:
        session = Counting(context)
        session.counts = self.counts
        return session


@fault(
    "keeps the prompt's states for the next run with prompts of that length", "no_state_across_runs"
)
class PromptRemembered(Drafter):
    def __init__(self, config: object, target: Any) -> None:
        self.known: dict[tuple[int, ...], tuple[Tensor, list[int]]] = {}

    def start(self, context: Context) -> DraftSession:
        session = Recurrent(context)
        session.catch_up()
        key = (context.vocab_size, context.capacity, *map(len, context.tokens))
        states, taken = self.known.setdefault(key, (session.states.clone(), session.taken))
        session.states, session.taken = states.clone(), list(taken)
        return session


class Closing(Bigram):
    """Says so when its last row has ended."""

    drafter: OneAtATime

    def observe(self, outcome: Round) -> None:
        self.drafter.busy = any(row.finish is None for row in outcome.rows)


@fault("takes one run at a time, and a run that was broken off is never over", "interrupted_runs")
class OneAtATime(Drafter):
    def __init__(self, config: object, target: Any) -> None:
        self.busy = False

    def start(self, context: Context) -> DraftSession:
        if self.busy:
            raise RuntimeError("this drafter is still busy with another batch")
        session = Closing(context)
        session.drafter, self.busy = self, True
        return session


# --- what it was given ------------------------------------------------------------------------


@fault("uses the committed ids as scratch paper and leaves its tokens there", "inputs_unchanged")
class Scratch(Copier):
    def continuation(self, row: int, gamma: int) -> list[int]:
        tokens, drafted = self.context.tokens[row], []
        for _ in range(gamma):
            drafted += list(super().continuation(row, 1))[:1]
            tokens += drafted[-1:]
        return drafted


@fault("pads the committed ids of all rows to one length", "inputs_unchanged")
class PadsRows(Bigram):
    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        longest = max(map(len, self.context.tokens))
        for row in self.context.tokens:
            row[:0] = [0] * (longest - len(row))
        return super().next_logits(drafted)


@fault("writes its own limits into the list of gammas", "inputs_unchanged")
class WritesGammas(Bigram):
    def limits(self, gammas: list[int]) -> list[int]:
        for row, gamma in enumerate(gammas):
            gammas[row] = min(gamma, 2)
        return gammas


@fault("turns the target's logits into laws in place", "inputs_unchanged")
class WritesLogits(Bigram):
    def observe(self, outcome: Round) -> None:
        if outcome.scored is not None:
            outcome.scored.logits.sub_(outcome.scored.logits.logsumexp(-1, keepdim=True)).exp_()


@fault("multiplies into the law of its draft when the round is over", "inputs_unchanged")
class WritesLaw(Drawn):
    def observe(self, outcome: Round) -> None:
        if outcome.scored is not None and isinstance(outcome.scored.draft.law, DenseLaw):
            outcome.scored.draft.law.probs.mul_(0.5)


# --- short and long texts ---------------------------------------------------------------------


@fault("looks at the last two tokens of a prompt that has one", "tiny_prompts")
class TwoTokens(Copier):
    def continuation(self, row: int, gamma: int) -> list[int]:
        tokens = self.context.tokens[row]
        older, newest = tokens[-2], tokens[-1]
        for at in range(len(tokens) - 3, -1, -1):
            if tokens[at : at + 2] == [older, newest]:
                return tokens[at + 2 : at + 2 + gamma]
        return []


@fault("has twelve positions and does not stop at the last of them", "end_of_context")
class TwelvePositions(Bigram):
    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        positions = torch.linspace(0, 1, 12, dtype=torch.float64)
        at = [len(row) - 1 + len(drafted) for row in self.context.tokens]
        scale = upload(positions, self.context.device)[at].unsqueeze(1)
        return super().next_logits(drafted) * (1 + scale)
