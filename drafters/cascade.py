"""Cascade: a drafting model that is drafted for, by a cheaper drafter.

The hierarchical speculation that Leviathan et al. 2023 (arXiv:2211.17192, section 6) leave for later.
The model's own tokens are drawn at all positions of the cheaper draft after one forward, and end
with the first that differs. Each is a draw of the model's law behind those before it, and whether it
was to be drawn was known before: the target's verifier sees a chain like any other.

Both drafters draw with the same noise, which makes them agree more often. A position's noise is that
position's own, so that it says nothing of the tokens before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from ..framework.bases import ParallelSession, empty_draft
from ..framework.cache import pad
from ..framework.context import Context
from ..framework.device import upload
from ..framework.errors import PluginFault
from ..framework.guard import blame
from ..framework.interfaces import Drafter, Target
from ..framework.law import DenseLaw
from ..framework.records import Draft, DraftStep, Round, RowOutcome
from ..framework.verdicts import leading
from .causal_lm import CausalLMDrafter, OwnCache
from .members import Member, make_members, not_drafted

if TYPE_CHECKING:
    from .builtin_nested import CascadeConfig


class Cascade(Drafter):
    """A small model, and what drafts for it.

    Args:
        middle: the model whose law the drafts have; drafting chains.
        inner: the cheaper drafter; its tokens never reach the target but by the model's choice.
    """

    def __init__(self, middle: CausalLMDrafter, inner: Member) -> None:
        self.middle, self.inner = middle, inner

    @classmethod
    def from_config(cls, config: CascadeConfig, target: Target) -> Cascade:
        """Builds the inner drafter, which costs little, and loads the model."""
        (inner,) = make_members([config.inner], "drafter.drafter", target)
        return cls(CausalLMDrafter.from_config(config, target), inner)

    def start(self, context: Context) -> CascadeSession:
        return CascadeSession(self, context)

    def session_bytes(self, rows: int, capacity: int) -> int:
        parts = (self.middle, self.inner.drafter)
        return sum(part.session_bytes(rows, capacity) for part in parts)

    def weight_bytes(self) -> int:
        return self.middle.weight_bytes() + self.inner.drafter.weight_bytes()


class CascadeSession(OwnCache, ParallelSession):
    """One forward of the model per round: the ids that are missing, then the guesses."""

    def __init__(self, drafter: Cascade, context: Context) -> None:
        super().__init__(context)
        self.open_cache(drafter.middle)
        self.inner, self.unasked = drafter.inner, cast(Context, Unasked(context))
        self.cheap = self.inner.start(self.unasked)
        self._guess = empty_draft(context)
        self._guessed: list[list[int]] = [[] for _ in range(context.rows)]

    def limits(self, gammas: list[int]) -> list[int]:
        """One token more than were guessed; of a whole draft the last needs no guess."""
        gammas = super().limits(gammas)
        asked = [max(0, gamma - 1) for gamma in gammas]
        self._guess = empty_draft(self.context)
        if any(asked):
            self._guess = self.inner.propose(self.cheap, asked, self.unasked)
        guesses = self._guess.lengths
        return [min(gamma, guess + 1) for gamma, guess in zip(gammas, guesses, strict=True)]

    def propose(self, gammas: list[int]) -> Draft:
        draft = super().propose(gammas)
        if self._guess.width and draft.width:
            draft = self._cut(draft)
        return draft

    def all_logits(self, width: int) -> Tensor:
        missing, guess = self.missing(), self._guess
        counts = [len(row) for row in missing]
        known, first = pad(missing, self.model.device), upload(counts, self.model.device)
        tokens = behind(known, first, self.ids.fed(guess.tokens.to(known.device)))
        totals = [count + more for count, more in zip(counts, guess.lengths, strict=True)]
        logits = self.ragged.forward(tokens[:, : max(totals)], totals)
        self.ragged.advance(counts)
        columns = (first - 1).clamp(min=0).unsqueeze(1) + torch.arange(width, device=first.device)
        rows = torch.arange(len(counts), device=first.device).unsqueeze(1)
        return self.to_target(logits[rows, columns.clamp(max=logits.shape[1] - 1)])

    def observe(self, outcome: Round) -> None:
        # The last token was never fed: it is the one that differs, or that there was no guess for.
        pairs = zip(outcome.rows, self.lengths, strict=True)
        self.ragged.advance([max(0, min(row.accepted, length - 1)) for row, length in pairs])
        heard = [_heard(row, ids) for row, ids in zip(outcome.rows, self._guessed, strict=True)]
        self.inner.observe(self.cheap, outcome, heard)
        self.lengths = [0] * len(self.lengths)
        self._guessed = [[] for _ in self._guessed]

    def select(self, rows: list[int]) -> None:
        self.lengths = [self.lengths[row] for row in rows]
        self._guessed = [self._guessed[row] for row in rows]
        self.ragged.select(rows)
        with blame(self.inner.part):
            self.cheap.select(list(rows))

    def _cut(self, draft: Draft) -> Draft:
        """Ends each row with its first token that is not the guess. The round's one read."""
        guess, width = self._guess, min(draft.width, self._guess.width)
        same = draft.tokens[:, :width] == guess.tokens[:, :width]
        agreed = leading(same & guess.mask[:, :width]).unsqueeze(1)
        read = torch.cat([agreed, guess.tokens], 1).tolist()
        self._guessed = [row[1 : 1 + n] for row, n in zip(read, guess.lengths, strict=True)]
        self._check_ids()
        self.lengths = [min(n, row[0] + 1) for n, row in zip(draft.lengths, read, strict=True)]
        law, most = draft.law.rows(), max(self.lengths)
        return Draft(draft.tokens[:, :most], self.lengths, DenseLaw(law[:, :most]))

    def _check_ids(self) -> None:
        vocab = self.context.vocab_size
        for row, ids in enumerate(self._guessed):
            wrong = [token for token in ids if not 0 <= token < vocab]
            if wrong:
                raise PluginFault(
                    f"{self.inner.part} drafted id {wrong[0]} in row {row}; ids go from 0 to "
                    f"{vocab - 1}."
                )


class Unasked:
    """The context as the inner drafter sees it: its tokens are not those that a policy is asked
    about."""

    asks_policy, member = False, None

    def __init__(self, context: Context) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def go_on(self, step: DraftStep) -> list[bool]:
        """Always."""
        return [True] * self._context.rows


def behind(known: Tensor, counts: Tensor, more: Tensor) -> Tensor:
    """``more [rows, width]`` behind the first ``counts`` of each row of ``known``."""
    whole = torch.nn.functional.pad(known, (0, more.shape[1]))
    places = counts.unsqueeze(1) + torch.arange(more.shape[1], device=more.device)
    return whole.scatter(1, places, more)


def _heard(row: RowOutcome, guessed: Sequence[int]) -> RowOutcome:
    """What became of the guesses. The newest id counts as not guessed even where it was: it is still
    to be taken in."""
    stood = 0
    for token, emitted in zip(guessed, row.emitted[:-1], strict=False):
        if token != emitted:
            break
        stood += 1
    return replace(
        not_drafted(row),
        drafted=list(guessed),
        accepted=stood,
        path=list(range(stood)),
        rejected=list(guessed[stood : stood + 1]),
    )
