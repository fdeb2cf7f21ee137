"""Drafters made of drafters: what ``first_of``, ``one_of`` and ``cascade`` share.

Each row of a round is drafted for by one member at most, so that the round's noise is used once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from ..framework.bases import empty_draft
from ..framework.config.values import under
from ..framework.context import Context
from ..framework.device import upload
from ..framework.errors import PluginFault
from ..framework.factories import make_part
from ..framework.guard import blame, check_draft
from ..framework.interfaces import Drafter, DraftSession, Target
from ..framework.law import DenseLaw, DraftLaw, PointMass
from ..framework.records import Ahead, Draft, Round, RowOutcome
from ..framework.specs import DETERMINISTIC, INDEPENDENT, DraftKind
from ..verifiers.greedy import GreedyVerifier
from .builtin_nested import learns

if TYPE_CHECKING:
    from ..framework.config import Part

ANY_RULE = GreedyVerifier()  # one that judges every kind: which kinds fit is another question


@dataclass(frozen=True)
class Member:
    """A drafter within a drafter.

    Args:
        name: what the config calls it.
        drafter: of chains.
        learns: as its spec says.
    """

    name: str
    drafter: Drafter
    learns: bool = False

    @property
    def part(self) -> str:
        """What faults call it."""
        return f"drafter {self.name!r}"

    def start(self, context: Context) -> DraftSession:
        """Its session; what it raises is its own."""
        with blame(self.part):
            return self.drafter.start(context)

    def propose(self, session: DraftSession, gammas: list[int], context: Context) -> Draft:
        """Its draft, looked at before it becomes a part of another."""
        with blame(self.part):
            draft = session.propose(list(gammas))
        checked = check_draft(self.part, draft, gammas, context, self.drafter, ANY_RULE)
        if checked.width and checked.kind != self.drafter.kind:
            raise PluginFault(
                f"{self.part} drafted {checked.kind}, where it declared {self.drafter.kind}."
            )
        return checked

    def observe(self, session: DraftSession, outcome: Round, rows: list[RowOutcome]) -> None:
        """Tells it of the round: the whole truth if it learns, else ``rows``."""
        with blame(self.part):
            session.observe(outcome if self.learns else replace(outcome, rows=rows))


def make_members(parts: Sequence[Part], key: str, target: Target) -> list[Member]:
    """Builds drafters that were found under ``key``, in which ``{}`` stands for their place."""
    members = []
    for place, part in enumerate(parts):
        label = f"drafter {part.spec.name!r}"
        with under(key.format(place), part.spec.config):
            drafter = make_part(part.spec, part.config, target, label=label)
        members.append(Member(part.spec.name, drafter, learns(part)))
    return members


class Certain(DraftLaw):
    """Chosen tokens beside drawn ones: each as drawn from the law that allows no other.

    Rules for drawn tokens may be asked about it, and it is written out only if they want it so.
    """

    def __init__(self, tokens: Tensor, vocab_size: int) -> None:
        # What is no id is the loop's to report; it must not reach an index before that.
        self.mass, self.vocab_size = PointMass(tokens.clamp(0, vocab_size - 1)), vocab_size

    def prob(self, tokens: Tensor) -> Tensor:
        return self.mass.prob(tokens)

    def residual(self, target_rows: Tensor, nodes: Tensor | None = None) -> Tensor:
        return self.mass.residual(target_rows, nodes)

    def valid(self, tokens: Tensor) -> Tensor:
        return self.mass.valid(tokens)

    def overlap(self, target_rows: Tensor, nodes: Tensor | None = None) -> Tensor:
        return self.mass.overlap(target_rows, nodes)

    def entropy(self) -> Tensor:
        return torch.zeros_like(self.mass.tokens, dtype=torch.float64)

    def rows(self, nodes: Tensor | None = None) -> Tensor:
        tokens = self.mass.tokens
        return one_hot(
            tokens if nodes is None else tokens.gather(1, nodes), self.vocab_size
        ).double()


class Several(Drafter):
    """A drafter with members; its drafts are chains, drawn if any member draws."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = tuple(members)
        drawn = any(one.drafter.kind.drawn != DETERMINISTIC for one in members)
        self.kind = DraftKind(INDEPENDENT if drawn else DETERMINISTIC)
        self.reads = tuple(sorted({layer for one in members for layer in one.drafter.reads}))

    def session_bytes(self, rows: int, capacity: int) -> int:
        return sum(one.drafter.session_bytes(rows, capacity) for one in self.members)

    def weight_bytes(self) -> int:
        return sum(one.drafter.weight_bytes() for one in self.members)


class SeveralSession(DraftSession):
    """A session of every member, all on the same context; ``servers`` says which member drafted for
    each row this round."""

    def __init__(self, drafter: Several, context: Context) -> None:
        super().__init__(context)
        self.members, self.kind = drafter.members, drafter.kind
        self.sessions = [one.start(context) for one in self.members]
        self.servers: list[int | None] = [None] * context.rows

    def ask(self, place: int, gammas: list[int]) -> Draft:
        """One member's draft; rows that it has something for are served by it."""
        draft = self.members[place].propose(self.sessions[place], gammas, self.context)
        for row, length in enumerate(draft.lengths):
            if length:
                self.servers[row] = place
        return draft

    def observe(self, outcome: Round) -> None:
        for place, (one, session) in enumerate(zip(self.members, self.sessions, strict=True)):
            rows = [
                row if server == place else not_drafted(row)
                for row, server in zip(outcome.rows, self.servers, strict=True)
            ]
            one.observe(session, outcome, rows)
        self.servers = [None] * len(self.servers)

    def select(self, rows: list[int]) -> None:
        self.servers = [self.servers[row] for row in rows]
        for one, session in zip(self.members, self.sessions, strict=True):
            with blame(one.part):
                session.select(list(rows))

    def merged(self, drafts: dict[int, Draft]) -> Draft:
        """One draft of those of some members, each row from its server."""
        drafts = {place: draft for place, draft in drafts.items() if draft.width}
        if not drafts:
            return empty_draft(self.context)
        if len(drafts) == 1:
            (draft,) = drafts.values()
            tokens, lengths = draft.tokens, draft.lengths
        else:
            lengths = [
                0 if server is None else drafts[server].lengths[row]
                for row, server in enumerate(self.servers)
            ]
            tokens = self._chosen({p: draft.tokens for p, draft in drafts.items()}, max(lengths))
        if self.kind.drawn == DETERMINISTIC:
            return Draft(tokens, lengths, PointMass(tokens))
        ahead = self._ahead(drafts, tokens)
        return Draft(tokens, lengths, self._law(drafts, tokens), ahead=ahead)

    def _ahead(self, drafts: dict[int, Draft], tokens: Tensor) -> Ahead | None:
        """What one member's draft has run ahead, of the rows that it serves: into the others' slots
        another member may have written."""
        for place, draft in drafts.items():
            ahead = draft.ahead
            if ahead is not None and ahead.tokens is draft.tokens:
                pairs = zip(ahead.counts, self.servers, strict=True)
                counts = [count if server == place else 0 for count, server in pairs]
                return replace(ahead, tokens=tokens, counts=counts)
        return None

    def _law(self, drafts: dict[int, Draft], tokens: Tensor) -> DraftLaw:
        laws = {place: draft.law for place, draft in drafts.items()}
        if all(isinstance(law, PointMass | Certain) for law in laws.values()):
            return Certain(tokens, self.context.vocab_size)
        if len(laws) == 1:
            return next(iter(laws.values()))
        written = {place: self._written(law) for place, law in laws.items()}
        return DenseLaw(self._chosen(written, tokens.shape[1]))

    def _written(self, law: DraftLaw) -> Tensor:
        if isinstance(law, PointMass):
            law = Certain(law.tokens, self.context.vocab_size)
        return law.rows()

    def _chosen(self, parts: dict[int, Tensor], width: int) -> Tensor:
        """Each row's part, ``[batch, width, ...]``, from its server's ``[batch, up to width, ...]``."""
        whole = None
        for place, part in parts.items():
            padding = (0, 0) * (part.dim() - 2) + (0, width - part.shape[1])
            part = pad(part, padding)
            mine = upload([server == place for server in self.servers], part.device)
            mine = mine.view(-1, *[1] * (part.dim() - 1))
            whole = part if whole is None else torch.where(mine, part, whole)
        assert whole is not None
        return whole


def not_drafted(row: RowOutcome) -> RowOutcome:
    """A row of a round as a drafter hears of it that had no part in its draft."""
    return replace(row, drafted=[], path=[], accepted=0, overlaps=[], rejected=[], detail=None)
