"""The same gamma in every round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..context import Context
from ..interfaces import GammaPolicy, PolicySession

if TYPE_CHECKING:
    from .builtin import FixedConfig


class Fixed(GammaPolicy):
    """Leviathan et al. 2023, Algorithm 1: gamma is a constant."""

    def __init__(self, config: FixedConfig) -> None:
        self.gamma = config.gamma

    def start(self, context: Context) -> FixedSession:
        return FixedSession(self.gamma, context)


class FixedSession(PolicySession):
    """Nothing to remember but the rows."""

    def __init__(self, gamma: int, context: Context) -> None:
        self.gamma, self.context = gamma, context

    def gammas(self) -> list[int]:
        return [self.gamma] * self.context.rows
