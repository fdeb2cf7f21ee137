"""No drafts: every round is a plain autoregressive step."""

from __future__ import annotations

from ..framework.bases import empty_draft
from ..framework.context import Context
from ..framework.interfaces import Drafter, DraftSession
from ..framework.records import Draft
from ..framework.specs import DETERMINISTIC, DraftKind


class NoDrafter(Drafter):
    """The baseline, whatever gamma says."""

    kind = DraftKind(DETERMINISTIC)

    def start(self, context: Context) -> NoDrafterSession:
        return NoDrafterSession(context)


class NoDrafterSession(DraftSession):
    """Nothing to remember."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def propose(self, gammas: list[int]) -> Draft:
        return empty_draft(self.context)
