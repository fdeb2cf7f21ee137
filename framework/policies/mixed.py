"""Several policies in one batch: requests that chose their own, beside those that did not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..context import Context
from ..device import upload
from ..guard import blame, check_gammas
from ..interfaces import GammaPolicy, PolicySession
from ..records import DraftStep, Round, RowOutcome
from .builtin import FixedConfig
from .fixed import Fixed

if TYPE_CHECKING:
    from ..requests import Request


@dataclass
class Share:
    """One of the policies, with the rows that it decides for.

    Args:
        part: what faults call it.
        session: over the whole batch, so that rows keep their places.
        rows: in ascending order.
    """

    part: str
    session: PolicySession
    rows: list[int]


def start_policies(
    policy: GammaPolicy, requests: Sequence[Request], context: Context
) -> PolicySession:
    """The session of a batch: the policy's own, unless a request has another or a gamma."""
    if all(request.policy is None and request.gamma is None for request in requests):
        return policy.start(context)
    made: dict[int, GammaPolicy] = {}
    chosen = [_policy_of(request, policy, made) for request in requests]
    every = {id(one): one for one in chosen}
    shares = []
    for key, one in every.items():
        part = "the run's policy" if one is policy else f"policy {_name(one)!r} of a request"
        with blame(part):
            session = one.start(context)
        rows = [row for row, other in enumerate(chosen) if id(other) == key]
        shares.append(Share(part, session, rows))
    # The run's own policy has the first say where one answer is for all rows.
    return MixedSession(context, sorted(shares, key=lambda share: share.part != "the run's policy"))


def _policy_of(request: Request, policy: GammaPolicy, made: dict[int, GammaPolicy]) -> GammaPolicy:
    if request.gamma is not None:
        return made.setdefault(request.gamma, Fixed(FixedConfig(request.gamma)))
    return policy if request.policy is None else request.policy


def _name(policy: GammaPolicy) -> str:
    maker: type = getattr(policy, "session", type(policy))
    return maker.__name__


class MixedSession(PolicySession):
    """Each row's answers come from the policy of its request.

    A policy hears every round, with the rows of others as rows that drafted nothing: it learns from
    its own choices alone. A batch has one drafter per round, so which member of several drafts
    (``member``) is for all rows: the run's own policy says, or the first one that has a say.
    """

    def __init__(self, context: Context, shares: Sequence[Share]) -> None:
        super().__init__(context)
        self.shares = list(shares)
        self._place()

    @property
    def stops(self) -> bool:
        return any(share.session.stops for share in self.shares)

    def gammas(self) -> list[int]:
        gammas = [0] * self.context.rows
        for share in self.shares:
            with blame(share.part):
                found = check_gammas(share.part, share.session.gammas(), len(gammas))
            for row in share.rows:
                gammas[row] = found[row]
        return gammas

    def go_on(self, step: DraftStep) -> Tensor:
        answer = torch.ones(self.context.rows, dtype=torch.bool, device=self.context.device)
        for share, mine in zip(self.shares, self._masks, strict=True):
            if share.session.stops:
                with blame(share.part):
                    answer = torch.where(mine, share.session.go_on(step), answer)
        return answer

    def member(self) -> int | None:
        said = [share.session.member() for share in self.shares]
        return next((member for member in said if member is not None), None)

    def observe(self, outcome: Round) -> None:
        others = [_undrafted(row) for row in outcome.rows]
        for share in self.shares:
            rows = list(others)
            for row in share.rows:
                rows[row] = outcome.rows[row]
            with blame(share.part):
                seconds = outcome.seconds if len(self.shares) == 1 else {}
                share.session.observe(replace(outcome, rows=rows, seconds=seconds))

    def select(self, rows: list[int]) -> None:
        for share in self.shares:
            share.rows = [new for new, old in enumerate(rows) if old in share.rows]
        self.shares = [share for share in self.shares if share.rows]
        for share in self.shares:
            with blame(share.part):
                share.session.select(list(rows))
        self._place(len(rows))

    def _place(self, count: int | None = None) -> None:
        """Masks of each policy's rows; ``Context.rows`` may lag behind while rows leave."""
        count = self.context.rows if count is None else count
        flags = [[row in share.rows for row in range(count)] for share in self.shares]
        self._masks = [upload(mine, self.context.device) for mine in flags]


def _undrafted(row: RowOutcome) -> RowOutcome:
    return replace(
        row, drafted=[], accepted=0, overlaps=[], path=[], rejected=[], gamma=0, detail=None
    )
