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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from .device import upload
from .errors import PluginFault
from .law import DraftLaw, PointMass
from .noise import Noise, Stream, draw
from .sampling import Sampler
from .specs import DETERMINISTIC, INDEPENDENT, WITHOUT_REPLACEMENT, DraftKind
from .tree import Branches, Tree


@dataclass(frozen=True)
class Draft:
    """Drafted tokens per row, a chain or a tree, with the law each was drawn from.

    Args:
        tokens: ``[batch, width]`` int64; columns at or beyond a row's length are ignored.
        lengths: drafted tokens per row, on the host.
        law: the laws the tokens were drawn from; never a law that the tokens only resemble.
        tree: who follows whom; None is a chain, in which each follows the one before.
        drawn: how the children of a node were drawn (``specs.DRAWN``). Tokens that were chosen,
            not drawn, have the law ``PointMass``, and only they have it.
    """

    tokens: Tensor
    lengths: list[int]
    law: DraftLaw
    tree: Tree | None = None
    drawn: str = INDEPENDENT

    def __post_init__(self) -> None:
        if isinstance(self.law, PointMass):
            object.__setattr__(self, "drawn", DETERMINISTIC)
        elif self.drawn not in (INDEPENDENT, WITHOUT_REPLACEMENT):
            raise PluginFault(
                f"drawn={self.drawn!r} is not possible with a {type(self.law).__name__} as draft law; "
                f"a law goes with {INDEPENDENT} or {WITHOUT_REPLACEMENT}, a PointMass with "
                f"{DETERMINISTIC}."
            )

    @property
    def kind(self) -> DraftKind:
        """What a verifier has to be able to judge."""
        return DraftKind(self.drawn, self.tree is not None)

    @property
    def width(self) -> int:
        """The most nodes of any row."""
        return self.tokens.shape[1]

    @property
    def depth(self) -> int:
        """No path is longer than this."""
        return self.width if self.tree is None else self.tree.depth

    @cached_property
    def shape(self) -> Tree:
        """The tree, also of a chain."""
        return self.tree or Tree.chain(self.tokens)

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
        accept_probs: ``[batch, width]``, what each node's uniform was compared with: the node's
            own decision was yes with this probability, whatever the other uniforms; 0 where no
            decision was taken. Enumeration and audits read it.
        path: ``[batch, depth]``, the accepted nodes from the root on; only the first
            ``accepted`` count. None for chains: nodes 0, 1, 2, ...
        token: ``[batch]``, the next token, from rules that draw it themselves with shared noise;
            None lets the loop draw it from ``next_law``.
    """

    accepted: Tensor
    next_law: Tensor
    accept_probs: Tensor
    path: Tensor | None = None
    token: Tensor | None = None


@dataclass(frozen=True)
class Trial:
    """A draft before its verifier.

    Args:
        draft: what is judged.
        target_probs: ``[batch, width + 1, vocab]``, the target's laws: row 0 is the one that
            follows the newest committed token, row i + 1 the one that follows node i. In a chain,
            row i is therefore the law that node i had to follow; in a tree, row
            ``draft.shape.contexts[i]``. A row where no token is possible is all zeros.
        uniforms: ``[batch, width]`` float64 in [0, 1), one per node, fresh for this round.
        logits: ``[batch, width + 1, vocab]``, the same rows before temperature and truncation.
        greedy: ``[batch]`` bool, the rows whose temperature is 0.
        gumbel: gives the noise ``[batch, width + 1, vocab]`` that drafter and target share
            (float64, standard Gumbel, keyed by request and position); for rules that declare
            ``shared_noise``.
    """

    draft: Draft
    target_probs: Tensor
    uniforms: Tensor
    logits: Tensor
    greedy: Tensor
    gumbel: Callable[[], Tensor]


@dataclass(frozen=True)
class RowOutcome:
    """One row's part of a round, on the host, after stops and length limits.

    Args:
        request: the request's index in its run.
        drafted: the drafted tokens, in the order of their nodes.
        accepted: how many of them were emitted.
        emitted: the tokens that were committed this round.
        overlaps: ``sum(min(target, draft))`` at each reached position (depth, in a tree).
        finish: why the row ended, or None.
        path: the accepted nodes; for chains 0, 1, 2, ...
        rejected: drafted tokens that were tried behind the accepted ones and did not stand: one
            at most in a chain.
    """

    request: int
    drafted: list[int]
    accepted: int
    emitted: list[int]
    overlaps: list[float]
    finish: str | None = None
    path: list[int] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Round:
    """One round of the batch: what drafter, policy and observers hear.

    Args:
        scored: the round's draft and the target's logits behind each of its nodes, on the
            device. Only for drafters, and only while they observe: keep what you derive from it,
            not the tensors themselves.
    """

    index: int
    rows: list[RowOutcome]
    seconds: dict[str, float] = field(default_factory=dict)
    scored: Scored | None = None


@dataclass(frozen=True)
class Scored:
    """A draft and the target's raw logits ``[batch, width + 1, vocab]``, rows as in ``Trial``."""

    draft: Draft
    logits: Tensor


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
        shared_noise: bool = False,
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
        self.shared_noise = shared_noise

    @property
    def rows(self) -> int:
        """Number of live rows."""
        return len(self.tokens)

    def law(self, logits: Tensor, drafted: Sequence[Tensor] = ()) -> Tensor:
        """A drafter's logits ``[batch, vocab]`` through the requests' own sampling.

        ``drafted`` are this round's tokens so far, each ``[batch]``: penalties and the like
        have to see them.
        """
        branches = self._behind(drafted) if self.sampler.reads_prefix else None
        return self.sampler.draft_law(logits.unsqueeze(1), self.tokens, branches).squeeze(1)

    def branch_law(self, logits: Tensor, branches: Branches, full: Tensor | None = None) -> Tensor:
        """The same behind several nodes of a tree: ``[batch, places, vocab]``; ``full`` are the
        controlled logits, if they were asked for already."""
        return self.sampler.draft_law(logits, self.tokens, branches, full)

    def draw(self, probs: Tensor, position: int) -> Tensor:
        """Draws drafted token number ``position`` of this round. ``[batch, vocab] -> [batch]``."""
        if self.shared_noise:
            places = torch.full((self.rows, 1), position, device=self.device)
            return (probs.double().log() + self.gumbel(places)[:, 0]).argmax(-1)
        return draw(probs, self.uniforms(position, 1)[:, 0])

    def uniforms(self, start: int, count: int) -> Tensor:
        """This round's drafting noise for nodes ``start .. start + count - 1``, float64
        ``[batch, count]``."""
        return self.noise.uniform(Stream.DRAFT, self.round_index, start, count)

    def gumbel(self, ahead: Tensor) -> Tensor:
        """The noise that drafter and target share, ``ahead [batch, places]`` tokens behind the
        committed ones: ``[batch, places, vocab]``."""
        return self.noise.gumbel(self.answered().unsqueeze(1) + ahead, self.vocab_size)

    def answered(self) -> Tensor:
        """Committed answer tokens of each row, ``[batch]``."""
        pairs = zip(self.tokens, self.prompt_lengths, strict=True)
        return upload([len(row) - prompt for row, prompt in pairs], self.device)

    def _behind(self, drafted: Sequence[Tensor]) -> Branches:
        none = torch.zeros(self.rows, 0, dtype=torch.int64, device=self.device)
        tokens = torch.stack(list(drafted), 1) if drafted else none
        at = torch.full((self.rows, 1), len(drafted) - 1, device=self.device)
        return Branches.chain(tokens, at)

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
    def forward(self, tokens: Tensor, counts: list[int], tree: Tree | None = None) -> Tensor:
        """Scores ``tokens [batch, width + 1]``, row r's first ``counts[r]`` of which are real.

        Column 0 is the newest committed token, the others are drafted: a chain, or, with
        ``tree``, the nodes of one (``tree.parents [batch, width]``), each to be scored as if
        only its ancestors stood before it. Returns logits ``[batch, width + 1, vocab]``; logits
        at padding are arbitrary. Does not move the lengths.
        """

    @abstractmethod
    def advance(self, kept: list[list[int]]) -> None:
        """Keeps these columns of the tokens just scored, ascending: ``[0, 1, 2]`` is the newest
        token and a chain's first two. What is not kept is rolled back."""

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
        trees: whether its sessions can score a tree.
    """

    vocab_size: int
    max_context: int | None = None
    eos_ids: frozenset[int] = frozenset()
    tokenizer: Any = None
    device: torch.device = torch.device("cpu")
    trees: bool = False

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
    """Proposes tokens. Immutable after it is built; sessions hold the state.

    Attributes:
        kind: what its drafts look like; the same as its spec says.
        max_nodes: for trees: the most nodes that it drafts in a round. gamma bounds their depth.
    """

    kind: DraftKind = DraftKind()
    max_nodes: int = 0

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
    """The acceptance rule. Stateless. Its attributes say what it can judge; its spec says the same.

    Attributes:
        lossless: whether the output law is exactly the target's.
        greedy_only: whether requests with a temperature above 0 are to be refused.
        chains: ways of drawing (``specs.DRAWN``) that it judges rightly in a chain.
        trees: the same for the children of a tree's node; empty: no trees.
        shared_noise: drafter and target draw with the same noise, keyed by position.
    """

    lossless: bool = True
    greedy_only: bool = False
    chains: tuple[str, ...] = (INDEPENDENT, DETERMINISTIC)
    trees: tuple[str, ...] = ()
    shared_noise: bool = False

    def judges(self, kind: DraftKind) -> bool:
        """True when the rule is right for such drafts."""
        return kind.drawn in (self.trees if kind.tree else self.chains)

    @abstractmethod
    def verify(self, trial: Trial) -> Verdict:
        """Decides which drafted tokens stand, and by which law they are followed.

        No rule may read from the device to the host: the loop reads once per round.
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
