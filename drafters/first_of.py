"""First of several: a row is drafted for by the first member that has something to say.

Which member that is depends on nothing but what was known before any token of the round was drawn,
so that the law of the answer is the target's, whatever the members are.
"""

from __future__ import annotations

from ..framework.context import Context
from ..framework.records import Draft
from .members import Several, SeveralSession


class FirstOf(Several):
    """Members in their order of preference: usually from the cheapest and surest on."""

    def start(self, context: Context) -> FirstOfSession:
        return FirstOfSession(self, context)


class FirstOfSession(SeveralSession):
    """A member is asked only for the rows that those before it left without a draft."""

    def propose(self, gammas: list[int]) -> Draft:
        left, drafts = list(gammas), {}
        for place in range(len(self.members)):
            if not any(left):
                break
            drafts[place] = self.ask(place, left)
            left = [0 if n else g for n, g in zip(drafts[place].lengths, left, strict=True)]
        return self.merged(drafts)
