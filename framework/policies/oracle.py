"""Hindsight: what a draft-length policy could gain at most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..context import Context
from ..interfaces import GammaPolicy, PolicySession
from .oracle_config import refuse

if TYPE_CHECKING:
    from ..replaying.context import ReplayContext


class Oracle(GammaPolicy):
    """Drafts exactly up to the first rejection (Leviathan et al. 2023, section 3.5: up to 60 % above
    the best fixed gamma). Wastes no token, and no round ends early."""

    def start(self, context: Context) -> OracleSession:
        """Raises ConfigError in a live run."""
        from ..replaying.context import ReplayContext  # which needs policies

        if not isinstance(context, ReplayContext):
            refuse()
        return OracleSession(context)


class OracleSession(PolicySession):
    """Looks it up."""

    context: ReplayContext

    def gammas(self) -> list[int]:
        return [int(run) for run in self.context.runs()]
