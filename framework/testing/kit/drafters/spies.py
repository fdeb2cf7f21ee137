"""A drafter under observation: every draft that it makes in the real loop, as it was made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ....context import Context
from ....interfaces import Drafter, DraftSession
from ....law import PointMass
from ....records import Draft, Round


@dataclass(frozen=True)
class Sheet:
    """One row of one draft.

    Args:
        tokens, parents: of its nodes.
        laws: ``[nodes, vocab]``, what they were drawn from; None for chosen tokens.
    """

    tokens: list[int]
    parents: list[int]
    laws: Tensor | None

    def differs(self, other: Sheet, rounding: float = 0.0) -> str:
        """How another sheet differs, in words; empty if it does not by more than rounding.

        Args:
            rounding: how far laws may lie apart. Where it is not 0, tokens may differ, too, as they
                were drawn from laws that do; what is behind them cannot be compared.
        """
        if len(self.tokens) != len(other.tokens):
            return f"{len(self.tokens)} tokens {self.tokens} against {other.tokens}"
        for node, pair in enumerate(zip(self.tokens, other.tokens, strict=True)):
            gap = self.gap(other, node)
            if gap > max(self._tolerance(), rounding):
                return f"laws of node {node} that differ by {gap:.2g}"
            if pair[0] != pair[1] or self.parents[node] != other.parents[node]:
                text = f"tokens {self.tokens} against {other.tokens} (from node {node} on)"
                return "" if rounding and self.laws is not None else text
        return ""

    def gap(self, other: Sheet, node: int) -> float:
        """The largest difference between the laws of a node."""
        if self.laws is None or other.laws is None:
            return 0.0 if self.laws is other.laws else 1.0
        gap = float((self.laws[node].double() - other.laws[node].double()).abs().max())
        return gap if gap == gap else 1.0

    def _tolerance(self) -> float:
        # Batches of other sizes round differently; in float32 that can reach a law's fifth digit.
        exact = self.laws is None or self.laws.dtype == torch.float64
        return 1e-6 if exact else 2e-4


@dataclass(frozen=True)
class Proposal:
    """One draft of the batch, and what was known when it was asked for.

    Args:
        round: index of the round.
        places: which row of the first batch each row is.
        texts: committed ids per row.
        prompt_lengths: how many of them are the prompt.
        asked: the gammas.
        draft: what was returned. The other tensors are copies from the moment it came.
    """

    round: int
    places: list[int]
    texts: list[list[int]]
    prompt_lengths: list[int]
    asked: list[int]
    draft: Draft
    lengths: list[int]
    tokens: Tensor
    parents: Tensor
    laws: Tensor | None

    @classmethod
    def of(cls, session: SpySession, gammas: list[int], draft: Draft) -> Proposal:
        """Copies what a later step might overwrite."""
        context, law = session.context, draft.law
        laws = None if isinstance(law, PointMass) or not draft.width else law.rows().clone()
        return cls(
            round=context.round_index,
            places=list(session.journal.places),
            texts=[list(row) for row in context.tokens],
            prompt_lengths=list(context.prompt_lengths),
            asked=list(gammas),
            draft=draft,
            lengths=list(draft.lengths),
            tokens=draft.tokens.clone(),
            parents=draft.shape.parents.clone(),
            laws=laws,
        )

    def sheet(self, row: int) -> Sheet:
        """A row's own nodes."""
        count = self.lengths[row]
        laws = None if self.laws is None or not count else self.laws[row, :count]
        tokens, parents = self.tokens[row, :count].tolist(), self.parents[row, :count].tolist()
        return Sheet(tokens, parents, laws)

    def sheets(self) -> dict[int, Sheet]:
        """The rows that were asked to draft, by their places."""
        return {
            place: self.sheet(row) for row, place in enumerate(self.places) if self.asked[row] > 0
        }


Watch = Callable[..., Callable[[], None]]  # of the journal, the call, the context, its argument
Judge = Callable[[Proposal], str]


@dataclass
class Journal:
    """What the spy wrote down, and what it is told before a session starts.

    Args:
        places: the rows of the batch, as they are numbered in the whole of a check.
        keep: whether drafts are kept.
        opening: what to do with the context before the drafter sees it.
        watch: called before ``propose`` and ``observe``; what it returns is called behind them.
        judge: finds fault with a draft, in words; empty: with none.
        unread: why a draft could not be copied.
    """

    places: list[int]
    keep: bool = True
    opening: Callable[[Context], None] | None = None
    watch: Watch | None = None
    judge: Judge | None = None
    proposals: list[Proposal] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    unread: Exception | None = None


class SpyDrafter(Drafter):
    """Passes every call on and writes down what came back."""

    def __init__(self, drafter: Drafter, journal: Journal) -> None:
        self.drafter, self.journal = drafter, journal
        self.kind, self.max_nodes = drafter.kind, drafter.max_nodes
        self.reads = drafter.reads

    def start(self, context: Context) -> SpySession:
        if self.journal.opening is not None:
            self.journal.opening(context)
        return SpySession(self.drafter.start(context), context, self.journal)


class SpySession(DraftSession):
    """The drafter's own session, watched."""

    def __init__(self, session: DraftSession, context: Context, journal: Journal) -> None:
        super().__init__(context)
        self.session, self.journal = session, journal

    def propose(self, gammas: list[int]) -> Draft:
        asked, behind = list(gammas), self._watched("propose", gammas)
        draft = self.session.propose(gammas)
        behind()
        if self.journal.keep and isinstance(draft, Draft):
            self._keep(asked, draft)
        return draft

    def observe(self, outcome: Round) -> None:
        behind = self._watched("observe", outcome)
        self.session.observe(outcome)
        behind()

    def select(self, rows: list[int]) -> None:
        self.session.select(list(rows))
        self.journal.places = [self.journal.places[row] for row in rows]

    def _watched(self, call: str, argument: object) -> Callable[[], None]:
        if self.journal.watch is None:
            return lambda: None
        return self.journal.watch(self.journal, call, self.context, argument)

    def _keep(self, asked: list[int], draft: Draft) -> None:
        try:
            made = Proposal.of(self, asked, draft)
            self.journal.proposals.append(made)
            complaint = self.journal.judge(made) if self.journal.judge else ""
        except Exception as error:  # the loop has a better name for it, in most cases
            self.journal.unread = self.journal.unread or error
            return
        if complaint:
            self.journal.complaints.append(complaint)
