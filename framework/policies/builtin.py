"""What the built-in policies offer: names, configs, factories. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ..checks import check_whole
from ..plugins import hookimpl
from ..specs import CONTRACT_VERSION, PolicySpec

if TYPE_CHECKING:
    from ..interfaces import GammaPolicy

MAX_GAMMA = 64


@dataclass
class FixedConfig:
    """The same gamma in every round.

    Args:
        gamma: drafted tokens per round; 0 is plain autoregressive decoding.
    """

    gamma: int = 4

    def __post_init__(self) -> None:
        check_whole("policy.gamma", self.gamma, 0, MAX_GAMMA)


def _fixed(config: FixedConfig) -> GammaPolicy:
    from .fixed import Fixed

    return Fixed(config)


@hookimpl
def foredraft_policies() -> list[PolicySpec]:
    """The built-in policies."""
    spec = partial(PolicySpec, contract=CONTRACT_VERSION)
    return [spec("fixed", _fixed, FixedConfig, "the same gamma in every round")]
