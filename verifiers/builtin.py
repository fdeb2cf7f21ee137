"""What the built-in verifiers offer: names, configs, factories. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..framework.plugins import hookimpl
from ..framework.specs import VerifierSpec

if TYPE_CHECKING:
    from ..framework.interfaces import Verifier


@dataclass
class TokenConfig:
    """Token-wise rejection; nothing to set."""


@dataclass
class GreedyConfig:
    """Exact match; nothing to set."""


def _token(config: TokenConfig) -> Verifier:
    from .token import TokenVerifier

    return TokenVerifier()


def _greedy(config: GreedyConfig) -> Verifier:
    from .greedy import GreedyVerifier

    return GreedyVerifier()


@hookimpl
def foredraft_verifiers() -> list[VerifierSpec]:
    """The built-in verifiers."""
    return [
        VerifierSpec("token", _token, TokenConfig, "token-wise rejection (Leviathan et al. 2023)"),
        VerifierSpec("greedy", _greedy, GreedyConfig, "exact match, greedy only", greedy_only=True),
    ]
