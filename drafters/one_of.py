"""One of several: the policy says each round which member drafts, for all rows."""

from __future__ import annotations

from collections.abc import Sequence

from ..framework.context import Context
from ..framework.errors import PluginFault
from ..framework.records import Draft
from .members import Member, Several, SeveralSession


class OneOf(Several):
    """Members among which ``PolicySession.member`` chooses.

    Args:
        members: in the order in which policies number them.
        start_with: the one that drafts when the policy does not say.
    """

    def __init__(self, members: Sequence[Member], start_with: int = 0) -> None:
        super().__init__(members)
        self.start_with = start_with

    def start(self, context: Context) -> OneOfSession:
        return OneOfSession(self, context)


class OneOfSession(SeveralSession):
    """Members that do not draft hear the round all the same, and catch up when it is their turn."""

    def __init__(self, drafter: OneOf, context: Context) -> None:
        super().__init__(drafter, context)
        self.start_with = drafter.start_with

    def propose(self, gammas: list[int]) -> Draft:
        place = self._member()
        return self.merged({place: self.ask(place, gammas)})

    def _member(self) -> int:
        place = self.context.member
        if place is None:
            return self.start_with
        if type(place) is not int or not 0 <= place < len(self.members):
            raise PluginFault(
                f"the policy chose member {place!r} of drafter.drafters; they go from 0 to "
                f"{len(self.members) - 1}."
            )
        return place
