"""The parts and the records that pass between them.

Every part has the same shape: an immutable object built once from its config (weights, tables,
settings) and a *session* that it starts for each batch and that holds all state. State therefore
cannot leak from one run to the next. The loop in ``decoding.py`` calls, per round and in this
order: ``PolicySession.gammas``, ``DraftSession.propose``, ``TargetSession.forward``,
``Verifier.verify``, ``TargetSession.advance``, then ``observe`` of drafter and policy, then
``select`` on every session when rows have finished.

Letters: ``batch`` live rows, ``width`` drafted positions (the largest gamma of the round),
``vocab`` target ids.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .device import upload
from .law import DraftLaw
from .noise import Noise, Stream, draw
from .sampling import Sampler


@dataclass(frozen=True)
class Draft:
    """A chain of drafted tokens per row, with the law each was drawn from.

    Args:
        tokens: ``[batch, width]`` int64; columns at or beyond a row's length are ignored.
        lengths: drafted tokens per row, on the host.
        law: the laws the tokens were drawn from; never a law that the tokens only resemble.
    """

    tokens: Tensor
    lengths: list[int]
    law: DraftLaw

    @property
    def width(self) -> int:
        """The longest row's draft length."""
        return self.tokens.shape[1]

    @cached_property
    def mask(self) -> Tensor:
        """True at real positions: ``[batch, width]``."""
        lengths = upload(self.lengths, self.tokens.device)
        return torch.arange(self.width, device=self.tokens.device) < lengths.unsqueeze(1)


@dataclass(frozen=True)
class Verdict:
    """What a verification rule decided.

    Args:
        accepted: ``[batch]`` int64, how many drafted tokens stand (a prefix of the draft).
        next_law: ``[batch, vocab]``, the normalised law of the token that follows them: the
            residual after a rejection, the target's law if all stood. The loop draws from it.
        accept_probs: ``[batch, width]``, the probability that a position stands given that all
            before it do; what enumeration and audits read.
    """

    accepted: Tensor
    next_law: Tensor
    accept_probs: Tensor


@dataclass(frozen=True)
class RowOutcome:
    """One row's part of a round, on the host, after stops and length limits.

    Args:
        request: the request's index in its run.
        drafted: the drafted tokens.
        accepted: how many of them were emitted; ``drafted[accepted]`` is the rejected one, if any.
        emitted: the tokens that were committed this round.
        overlaps: ``sum(min(target, draft))`` at each reached position.
        finish: why the row ended, or None.
    """

    request: int
    drafted: list[int]
    accepted: int
    emitted: list[int]
    overlaps: list[float]
    finish: str | None = None


@dataclass(frozen=True)
class Round:
    """One round of the batch: what drafter, policy and observers hear."""

    index: int
    rows: list[RowOutcome]
    seconds: dict[str, float] = field(default_factory=dict)


class Context:
    """What parts may see of the running batch. Committed ids are the one source of truth.

    Attributes (all read-only for parts):
        tokens: per row, the committed ids (prompt and output) on the host, as a list that the
            loop alone appends to.
        prompt_lengths: per row, how many of them are the prompt.
        vocab_size: number of target ids.
        capacity: the most ids any row can come to hold.
        device: where drafts have to lie.
        target: the target's session, for drafters that share its model or cache.
    """

    def __init__(
        self,
        tokens: list[list[int]],
        capacity: int,
        target: TargetSession,
        sampler: Sampler,
        noise: Noise,
    ) -> None:
        self.tokens = tokens
        self.prompt_lengths = [len(row) for row in tokens]
        self.capacity = capacity
        self.target = target
        self.vocab_size = target.vocab_size
        self.device = target.device
        self.round_index = 0
        self.sampler = sampler
        self.noise = noise

    @property
    def rows(self) -> int:
        """Number of live rows."""
        return len(self.tokens)

    def law(self, logits: Tensor) -> Tensor:
        """A drafter's logits ``[batch, ..., vocab]`` through the requests' own sampling."""
        return self.sampler.law(logits)

    def draw(self, probs: Tensor, position: int) -> Tensor:
        """Draws drafted token number ``position`` of this round. ``[batch, vocab] -> [batch]``."""
        return draw(probs, self.noise.uniform(Stream.DRAFT, self.round_index, position, 1)[:, 0])

    def select(self, rows: list[int]) -> None:
        """Keeps the given rows, in that order (the loop calls this)."""
        self.tokens = [self.tokens[row] for row in rows]
        self.prompt_lengths = [self.prompt_lengths[row] for row in rows]
        self.sampler.select(rows)
        self.noise.select(rows)


# --- target ---------------------------------------------------------------------------------


class TargetSession(ABC):
    """A target's state for one batch: one cache, one length per row."""

    vocab_size: int
    device: torch.device

    @abstractmethod
    def prefill(self, tokens: Sequence[Sequence[int]]) -> None:
        """Takes in every row's ids but the newest one, which the first round feeds."""

    @abstractmethod
    def forward(self, tokens: Tensor, counts: list[int]) -> Tensor:
        """Scores ``tokens [batch, width + 1]``, row r's first ``counts[r]`` of which are real.

        Column 0 is the newest committed token. Returns logits ``[batch, width + 1, vocab]``;
        logits at padding are arbitrary. Does not move the lengths.
        """

    @abstractmethod
    def advance(self, counts: list[int]) -> None:
        """Keeps ``counts[r]`` of the tokens just scored. What is not kept is rolled back."""

    @abstractmethod
    def select(self, rows: list[int]) -> None:
        """Keeps the given rows, in that (ascending) order."""


class Target(ABC):
    """The model whose output law is preserved. Immutable after it is built.

    Attributes:
        vocab_size: number of ids its law ranges over.
        max_context: the most positions it can hold, or None.
        eos_ids: the ids that end an answer.
        tokenizer: anything with ``encode`` / ``decode`` as transformers has them, or None.
        device: where its logits come out.
    """

    vocab_size: int
    max_context: int | None = None
    eos_ids: frozenset[int] = frozenset()
    tokenizer: Any = None
    device: torch.device = torch.device("cpu")

    @abstractmethod
    def start(self, rows: int, capacity: int) -> TargetSession:
        """Opens a session for ``rows`` rows of at most ``capacity`` ids."""

    def session_bytes(self, rows: int, capacity: int) -> int:
        """Bytes that ``start(rows, capacity)`` will allocate, for the check made before it."""
        return 0


# --- drafter --------------------------------------------------------------------------------


class DraftSession(ABC):
    """A drafter's state for one batch."""

    @abstractmethod
    def propose(self, gammas: list[int]) -> Draft:
        """Proposes at most ``gammas[r]`` tokens for row r; fewer, or none, is always allowed.

        Whether token i is proposed must not depend on the value drawn for token i,
        only on what was known before it was drawn.
        """

    def observe(self, outcome: Round) -> None:  # noqa: B027 - a hook that most drafters leave empty
        """Hears every round, also those with gamma 0, after its ids were committed."""

    def select(self, rows: list[int]) -> None:  # noqa: B027
        """Keeps the given rows, in that (ascending) order."""


class Drafter(ABC):
    """Proposes tokens. Immutable after it is built; sessions hold the state."""

    @abstractmethod
    def start(self, context: Context) -> DraftSession:
        """Opens a session for the batch; ``context`` stays live and shows every commit."""

    def session_bytes(self, rows: int, capacity: int) -> int:
        """Bytes that a session's cache will allocate."""
        return 0

    def weight_bytes(self) -> int:
        """Bytes of weights and tables beyond the target's own."""
        return 0


# --- verifier -------------------------------------------------------------------------------


class Verifier(ABC):
    """The acceptance rule. Stateless.

    Attributes:
        greedy_only: whether requests with a temperature above 0 are to be refused.
    """

    greedy_only: bool = False

    @abstractmethod
    def verify(self, draft: Draft, target_probs: Tensor, uniforms: Tensor) -> Verdict:
        """Decides how many drafted tokens stand.

        Args:
            draft: tokens ``[batch, width]`` and their law.
            target_probs: ``[batch, width + 1, vocab]``; row i is the law that token i had to follow.
            uniforms: ``[batch, width]`` float64 in [0, 1), fresh for this round.
        """


# --- policy ---------------------------------------------------------------------------------


class PolicySession(ABC):
    """A draft-length policy's state for one batch."""

    @abstractmethod
    def gammas(self) -> list[int]:
        """How many tokens each row may draft this round; 0 is a plain step."""

    def observe(self, outcome: Round) -> None:  # noqa: B027
        """Hears every round after its ids were committed."""

    def select(self, rows: list[int]) -> None:  # noqa: B027
        """Keeps the given rows, in that (ascending) order."""


class GammaPolicy(ABC):
    """Chooses gamma."""

    @abstractmethod
    def start(self, context: Context) -> PolicySession:
        """Opens a session for the batch."""
