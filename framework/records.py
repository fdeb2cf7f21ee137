"""The records that pass between the parts: a draft, the trial it gets, the verdict, the round.

Letters: ``batch`` live rows, ``width`` drafted positions (the largest gamma of the round),
``vocab`` target ids. Whoever gets a record reads it; nobody changes one, nor a tensor in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from .device import upload
from .errors import PluginFault
from .law import DraftLaw, PointMass
from .opinion import Opinion
from .specs import DETERMINISTIC, INDEPENDENT, WITHOUT_REPLACEMENT, DraftKind
from .tree import Tree


@dataclass(frozen=True)
class Ahead:
    """What the target's own first layers have run of a chain while it was drafted, so that they need not
    run it again.

    Args:
        tokens: the very tensor of the draft's tokens. One whose tokens are others is verified in full.
        layers: how many layers.
        hidden: ``[batch, n, size]``, the hidden states behind them: of the newest committed token, then of
            drafted ones. Their entries stand in the target's cache, behind its length.
        counts: how many of these are real, by row.
    """

    tokens: Tensor
    layers: int
    hidden: Tensor
    counts: list[int]


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
        ahead: what the target has run of it already; None: nothing.
    """

    tokens: Tensor
    lengths: list[int]
    law: DraftLaw
    tree: Tree | None = None
    drawn: str = INDEPENDENT
    ahead: Ahead | None = None

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
class RowDetail:
    """What a row's draft looked like to its drafter, and how it was judged: one number per drafted
    token each. Made only for observers that say ``detailed``.

    Args:
        confidence: the token's probability in its step's ``opinion`` (see ``DraftStep``), in a tree
            in the law that it was drawn from; 1 if it was chosen.
        entropy: of the same, in nats; 0 if it was chosen.
        accept_probs: as in ``Verdict``.
    """

    confidence: list[float]
    entropy: list[float]
    accept_probs: list[float]


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
        gamma: how many tokens the row was asked to draft.
        detail: more about each drafted token, if an observer wants it.
    """

    request: int
    drafted: list[int]
    accepted: int
    emitted: list[int]
    overlaps: list[float]
    finish: str | None = None
    path: list[int] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)
    gamma: int = 0
    detail: RowDetail | None = None


@dataclass(frozen=True)
class Round:
    """One round of the batch: what drafter, policy and observers hear.

    Args:
        seconds: wall time by phase, those of ``metrics.PHASES`` but the prefill's.
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


class DraftStep:
    """One more token that may be drafted: what a policy may know when it says whether to.

    The token itself is not here, because it has not been drawn yet: a policy that stops before a
    token, or after one it has seen, keeps the law exact; one that drew a token and dropped it for
    its value would not.

    Args:
        position: how many tokens of the round stand before it.
        tokens: those tokens, each ``[batch]``. Rows that have stopped hold arbitrary ids.
        probs: the probability that each of them had in its step's ``opinion``, each ``[batch]``.
        compute: the drafter's step, behind ``law``.
        think: gives what the drafter thinks of each token, behind ``opinion``; without it, that is the law.
    """

    def __init__(
        self,
        position: int,
        tokens: Sequence[Tensor],
        probs: Sequence[Tensor],
        compute: Callable[[], Tensor],
        think: Callable[[], Opinion] | None = None,
    ) -> None:
        self.position, self.tokens, self.probs = position, tuple(tokens), tuple(probs)
        self._compute, self._think = compute, think

    @cached_property
    def law(self) -> Tensor:
        """The law that it would be drawn from, ``[batch, vocab]``. Asking runs the drafter's
        step: a policy that decides without it saves that step."""
        return self._compute()

    @cached_property
    def opinion(self) -> Tensor:
        """How likely the drafter finds each token, ``[batch, vocab]``: the law; but for greedy rows,
        whose law is certain whatever the drafter thinks, its logits at temperature 1. What stops a
        greedy draft cannot change the law: its tokens are not drawn."""
        return self._thought.probs

    @cached_property
    def entropy(self) -> Tensor:
        """Of that opinion, ``[batch]``, in nats."""
        return self._thought.entropy

    def prob(self, token: Tensor) -> Tensor:
        """How likely the drafter finds the token of each row. ``[batch] -> [batch]``."""
        return self._thought.prob(token)

    @cached_property
    def _thought(self) -> Opinion:
        return Opinion(self.law) if self._think is None else self._think()
