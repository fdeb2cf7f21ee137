"""The parts: what a plugin author implements.

Every part has the same shape: an immutable object built once from its config (weights, tables,
settings) and a *session* that it starts for each batch and that holds all state. State therefore
cannot leak from one run to the next. The loop in ``decoding.py`` calls, per round and in this
order: ``PolicySession.gammas``, ``DraftSession.propose``, ``TargetSession.forward``,
``Verifier.verify``, ``TargetSession.advance``, then ``observe`` of drafter and policy, then
``select`` on every session when rows have finished.

Letters: ``batch`` live rows, ``width`` drafted positions (the largest gamma of the round),
``vocab`` target ids.

What holds for all of them:

- A call finds the batch as the last one left it: the same rows in the same order until ``select``.
- Arguments are lent, not given: read them, never write to a list, a record or a tensor among them,
  and keep no tensor of a round beyond it. What a method returns belongs to the loop.
- Committed ids (``Context.tokens``) are the one source of truth; state that lags behind catches up.
- Whatever is raised ends the run, is named after the part, and leaves the part fit for the next
  run: state lives in sessions, and a session is never used again.
- The global random generators stay as they are; noise comes from the context.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .context import Context
from .records import Ahead, Draft, DraftStep, Round, Trial, Verdict
from .specs import DETERMINISTIC, INDEPENDENT, DraftKind
from .tree import Tree

if TYPE_CHECKING:
    from .observing import RequestRecord, RoundRecord, RunRecord, RunSummary

# --- target ---------------------------------------------------------------------------------


class TargetSession(ABC):
    """A target's state for one batch: one cache, one length per row.

    Called: ``prefill`` once, then ``forward`` and ``advance`` in turn, one pair a round, and
    ``select`` when rows have left. Between ``forward`` and ``advance`` a drafter that shares the
    cache may have written behind the lengths; nothing there counts.

    Attributes:
        vocab_size: as the target's.
        device: where logits come out.
    """

    vocab_size: int
    device: torch.device

    @abstractmethod
    def prefill(self, tokens: Sequence[Sequence[int]]) -> None:
        """Takes in every row's ids but the newest one, which the first round feeds."""

    @abstractmethod
    def forward(self, tokens: Tensor, counts: list[int], tree: Tree | None = None) -> Tensor:
        """Scores ``tokens [batch, width + 1]``, row r's first ``counts[r]`` of which are real.

        Before: the cache holds every committed id but the newest one. After: the same, until
        ``advance`` says what stays.

        Column 0 is the newest committed token, the others are drafted: a chain, or, with
        ``tree``, the nodes of one (``tree.parents [batch, width]``), each to be scored as if
        only its ancestors stood before it. Returns logits ``[batch, width + 1, vocab]``; logits
        at padding are arbitrary. Does not move the lengths.
        """

    def resume(self, tokens: Tensor, counts: list[int], ahead: Ahead) -> Tensor:
        """``forward`` of a chain that a drafter has run through the target's own first layers; may use
        what it left, and gives the same logits."""
        return self.forward(tokens, counts)

    @abstractmethod
    def advance(self, kept: list[list[int]]) -> None:
        """Keeps these columns of the tokens just scored, ascending: ``[0, 1, 2]`` is the newest
        token and a chain's first two. What is not kept is rolled back."""

    @abstractmethod
    def select(self, rows: list[int]) -> None:
        """Keeps the given rows, in that (ascending) order."""

    def watch(self, layers: Sequence[int]) -> None:
        """Asked once, before ``prefill``, to keep the hidden states behind these layers (from 0, the
        embeddings, to the target's ``depth``, what its LM head reads) for ``hidden``."""
        raise NotImplementedError

    def hidden(self, layer: int) -> Tensor:
        """Hidden states ``[batch, slots, size]`` behind a watched layer: in row r, of its first
        ``len(tokens[r]) - 1`` committed ids, each in its place. The newest has none yet. It is the
        session's own buffer: later rounds write into it."""
        raise NotImplementedError


class Target(ABC):
    """The model whose output law is preserved. Immutable after it is built.

    Attributes:
        vocab_size: number of ids its law ranges over.
        max_context: the most positions it can hold, or None.
        eos_ids: the ids that end an answer.
        tokenizer: anything with ``encode`` / ``decode`` as transformers has them, or None.
        device: where its logits come out.
        trees: whether its sessions can score a tree.
        depth: its layers, if its sessions can show hidden states; else 0.
    """

    vocab_size: int
    max_context: int | None = None
    eos_ids: frozenset[int] = frozenset()
    tokenizer: Any = None
    device: torch.device = torch.device("cpu")
    trees: bool = False
    depth: int = 0

    @abstractmethod
    def start(self, rows: int, capacity: int) -> TargetSession:
        """Opens a session for ``rows`` rows of at most ``capacity`` ids."""

    def session_bytes(self, rows: int, capacity: int) -> int:
        """Bytes that ``start(rows, capacity)`` will allocate, for the check made before it."""
        return 0

    def hidden_bytes(self, rows: int, capacity: int) -> int:
        """Bytes that each watched layer will take in such a session."""
        return 0


# --- drafter --------------------------------------------------------------------------------


class DraftSession(ABC):
    """A drafter's state for one batch.

    Called: ``propose`` in each round in which any row may draft, then ``observe`` in every round,
    then ``select`` if rows have left.

    Args:
        context: the running batch; stays live and shows every commit.
        config: the drafter's config, for sessions that are opened without a ``Drafter``.
    """

    def __init__(self, context: Context, config: Any = None) -> None:
        self.context, self.config = context, config

    @abstractmethod
    def propose(self, gammas: list[int]) -> Draft:
        """Proposes at most ``gammas[r]`` tokens for row r; fewer, or none, is always allowed.

        Before: ``context.tokens`` holds all committed ids; at least one of ``gammas`` is above 0.
        After: what was drafted counts for nothing until ``observe`` says what was kept.

        Whether token i is proposed must not depend on the value drawn for token i, only on what
        was known before it was drawn; and the law in the draft is the one it was drawn from.

        Returns:
            int64 tokens ``[batch, max(lengths)]`` on ``context.device``, with their laws.
        """

    def observe(self, outcome: Round) -> None:  # noqa: B027 - a hook that most drafters leave empty
        """Hears every round, also those with gamma 0, after its ids were committed.

        ``outcome.rows`` are in the order of the batch, rows that end with this round included;
        ``outcome.scored`` is on loan until this method returns.
        """

    def select(self, rows: list[int]) -> None:  # noqa: B027
        """Keeps the given rows, in that (ascending) order: state of old row ``rows[i]`` is that of
        new row i."""


class Drafter(ABC):
    """Proposes tokens. Immutable after it is built; sessions hold the state. One drafter may have
    several sessions at a time.

    Attributes:
        kind: what its drafts look like; the same as its spec says.
        max_nodes: for trees: the most nodes that it drafts in a round. gamma bounds their depth.
        reads: layers of the target whose hidden states its sessions read, by ``context.target.hidden``.
    """

    kind: DraftKind = DraftKind()
    max_nodes: int = 0
    reads: tuple[int, ...] = ()

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

    Args:
        config: the rule's config, for rules without an ``__init__`` of their own.

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

    def __init__(self, config: Any = None) -> None:
        self.config = config

    def judges(self, kind: DraftKind) -> bool:
        """True when the rule is right for such drafts."""
        return kind.drawn in (self.trees if kind.tree else self.chains)

    @abstractmethod
    def verify(self, trial: Trial) -> Verdict:
        """Decides which drafted tokens stand, and by which law they are followed.

        Called once a round, also with an empty draft (``width`` 0), after which the target's law
        follows. A row's verdict depends on that row alone, and on nothing from earlier calls;
        columns at or beyond ``draft.lengths`` are padding. No rule may read from the device to
        the host: the loop reads once per round.
        """


# --- policy ---------------------------------------------------------------------------------


class PolicySession(ABC):
    """A draft-length policy's state for one batch.

    Called: ``gammas`` once a round; ``go_on``, if it is overridden, before each token of a chain;
    then ``observe``, then ``select`` if rows have left.

    Args:
        context: the running batch; its noise is not for policies: whoever knows a draw before
            deciding on it changes the law.
        config: the policy's config, for sessions that are opened without a ``GammaPolicy``.
    """

    def __init__(self, context: Context, config: Any = None) -> None:
        self.context, self.config = context, config

    @abstractmethod
    def gammas(self) -> list[int]:
        """How many tokens each row may draft this round; 0 is a plain step.

        Returns:
            One whole number from 0 per row. The loop cuts it to what the row may still emit.
        """

    @property
    def stops(self) -> bool:
        """Whether ``go_on`` is to be asked: whether a subclass has written it."""
        return type(self).go_on is not PolicySession.go_on

    def go_on(self, step: DraftStep) -> Tensor:
        """Whether each row drafts one more token: ``[batch]`` bool, on the device of the law.

        Asked before each token, the first one included, of drafters that draft chains one by one
        (``StepSession``), and only if this method is overridden. Each answer costs a
        device-to-host read.
        """
        raise NotImplementedError

    def member(self) -> int | None:
        """Which member of a drafter that has several (``drafter=one_of``) drafts this round; None
        leaves it to the drafter. Asked once a round, after ``gammas``."""
        return None

    def observe(self, outcome: Round) -> None:  # noqa: B027
        """Hears every round after its ids were committed."""

    def select(self, rows: list[int]) -> None:  # noqa: B027
        """Keeps the given rows, in that (ascending) order."""


class GammaPolicy(ABC):
    """Chooses gamma.

    Attributes:
        stops: whether its sessions end drafts by their law; as its spec says.
        keeps_apart: whether a session that shares what it learns keeps rows apart that are runs of
            their own (``Context.apart``), so that a replay may put many of them into one session.
    """

    stops: bool = False
    keeps_apart: bool = False

    @abstractmethod
    def start(self, context: Context) -> PolicySession:
        """Opens a session for the batch."""


# --- observers ------------------------------------------------------------------------------


class Observer:
    """Hears what a run does. Every method may be left out; none may change what it is given.

    Per run, in this order: ``run_started``; ``round_done`` after each round and ``request_done``
    when an answer ends; ``run_done``, also when the run was interrupted or failed. One observer
    may hear several runs, one after the other. ``close`` comes last, once.

    It is called between rounds, so its time is the run's. One that raises is named in a warning
    and hears no more of that run; no answer is lost by it.

    Attributes:
        name: what the warning calls it; its spec's name when a config has chosen it.
        detailed: whether rows are to come with their ``RowDetail``, which costs some time.
    """

    name: str = ""
    detailed: bool = False

    def run_started(self, run: RunRecord) -> None:
        """A run begins."""

    def round_done(self, outcome: RoundRecord) -> None:
        """A round of a batch was committed."""

    def request_done(self, request: RequestRecord) -> None:
        """An answer has ended, cancelled ones too."""

    def run_done(self, summary: RunSummary) -> None:
        """The run has ended, one way or another."""

    def close(self) -> None:
        """Nothing more will come; files and connections are given back."""
