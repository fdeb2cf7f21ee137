"""Jacobi drafting: the target's own guesses of one round are the draft of the next.

Santilli et al. 2023 (arXiv:2305.10427) decode by Jacobi's fixed-point iteration; Lookahead, Fu et
al. 2024 (arXiv:2402.02057), keeps the n-grams that its guesses pass through and drafts from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..framework.bases import empty_draft
from ..framework.context import Context
from ..framework.device import upload
from ..framework.feedback import Fed, write
from ..framework.interfaces import Drafter, DraftSession
from ..framework.law import PointMass
from ..framework.records import Draft, Round, Scored
from ..framework.specs import DETERMINISTIC, DraftKind
from ..framework.tree import Branches

if TYPE_CHECKING:
    from .builtin import JacobiConfig

UNKNOWN = -1
# Places of a pool. Fixed, so that what a row drafts does not depend on the length of other rows.
PLACES = 1 << 15


class Jacobi(Drafter):
    """Needs no model and no training; the target's guesses are read where they are, on the device."""

    kind = DraftKind(DETERMINISTIC)

    def __init__(self, config: JacobiConfig) -> None:
        self.order, self.from_prompt = config.pool, config.from_prompt

    def start(self, context: Context) -> JacobiSession:
        return JacobiSession(self, context)

    def session_bytes(self, rows: int, capacity: int) -> int:
        return rows * (self.order - 1) * (PLACES + 1) * 4


class JacobiSession(DraftSession):
    """The last round's guesses, and a pool of n-grams.

    A position's draft is what the pool has behind the longest context that it knows; else the
    target's guess for this very position, made behind a draft that did not stand; else the token
    before it once more. All of the draft is fed, so that even a useless one brings guesses.

    There is a pool ``[rows, PLACES + 1]`` int32 for each length of context. Contexts that happen to
    share a place share the token, which costs a guess at times and nothing else.
    """

    def __init__(self, drafter: Jacobi, context: Context) -> None:
        self.context, self.sizes = context, range(1, drafter.order)
        self.window = max(drafter.order - 1, 1)
        rows, device = context.rows, context.device
        self.pools = [
            torch.full((rows, PLACES + 1), UNKNOWN, dtype=torch.int32, device=device)
            for _ in self.sizes
        ]
        self.slots = torch.arange(rows, device=device)
        self.guesses = torch.zeros(rows, 1, dtype=torch.int64, device=device)
        self.left = [(0, 0)] * rows  # per row: the first guess that is of use, and how many are
        if drafter.from_prompt:
            self._read_prompts()

    def propose(self, gammas: list[int]) -> Draft:
        width = max(gammas)
        if not width:
            return empty_draft(self.context)
        carried = self._carried(width)
        ids = self._newest([0] * self.context.rows)
        for position in range(width):
            token = self._pooled(ids, carried[:, position])
            ids = torch.cat([ids, token.unsqueeze(1)], 1)
        tokens = ids[:, self.window :]
        return Draft(tokens, gammas, PointMass(tokens))

    def observe(self, outcome: Round) -> None:
        scored = outcome.scored
        if scored is None:
            self.left = [(0, 0)] * self.context.rows
            return
        self.guesses = scored.logits.argmax(-1)
        # Guess i is for the position behind node i - 1, the first of use the one behind the
        # token that took the rejected one's place. Guesses in a tree are of no one position.
        chain = scored.draft.tree is None
        self.left = [
            (row.accepted + 1, len(row.drafted) - row.accepted if chain else 0)
            for row in outcome.rows
        ]
        self._keep(outcome, scored)

    def select(self, rows: list[int]) -> None:
        index = upload(rows, self.context.device)
        self.slots, self.guesses = self.slots[index], self.guesses[index]
        self.left = [self.left[row] for row in rows]

    def _carried(self, width: int) -> Tensor:
        """The last round's guesses for the positions to come, ``[batch, width]``."""
        first, count = upload(self.left, self.context.device).unsqueeze(-1).unbind(1)
        steps = torch.arange(width, device=self.context.device)
        places = (first + steps).clamp(max=self.guesses.shape[1] - 1)
        return self.guesses.gather(1, places).where(steps < count, UNKNOWN)

    def _pooled(self, ids: Tensor, carried: Tensor) -> Tensor:
        token = torch.where(carried != UNKNOWN, carried, ids[:, -1])
        for size, pool in zip(self.sizes, self.pools, strict=True):
            found = pool[self.slots, place_of(ids[:, -size:].unbind(1))].long()
            token = torch.where(found != UNKNOWN, found, token)
        return token

    def _keep(self, outcome: Round, scored: Scored) -> None:
        """Enters every guess behind the contexts that it was made behind."""
        draft = scored.draft
        fed = Fed.of(outcome, scored, self.context)
        at = torch.arange(-1, draft.width, device=self.context.device)
        branches = Branches(draft.tokens, draft.shape, at.expand(self.context.rows, -1))
        before = self._newest([len(row.emitted) for row in outcome.rows])
        contexts = branches.last(self.window, before)
        for size, pool in zip(self.sizes, self.pools, strict=True):
            keys = place_of(contexts[..., -size:].unbind(-1))
            write(pool, self.slots, keys, self.guesses, fed.order)

    def _newest(self, without: Sequence[int]) -> Tensor:
        """The newest ids of each row but for the last few, ``[batch, window]``."""
        rows = [
            ids[max(0, len(ids) - drop - self.window) : len(ids) - drop]
            for ids, drop in zip(self.context.tokens, without, strict=True)
        ]
        padded = [[UNKNOWN] * (self.window - len(row)) + row for row in rows]
        return upload(padded, self.context.device)

    def _read_prompts(self) -> None:
        for size, pool in zip(self.sizes, self.pools, strict=True):
            found: dict[tuple[int, int], int] = {}  # of several tokens for one place, the last
            for row, ids in enumerate(self.context.tokens):
                for end in range(size, len(ids)):
                    found[row, place_of(ids[end - size : end])] = ids[end]
            if found:
                slots, keys = upload(list(found), pool.device).unbind(1)
                pool[slots, keys] = upload(list(found.values()), pool.device).int()


def place_of(context: Iterable[Any]) -> Any:
    """Where a context stands in its pool; of ids, or of tensors of ids, oldest first."""
    place: Any = 0
    for token in context:
        place = (place * 40503 + token + 1) % PLACES
    return place
