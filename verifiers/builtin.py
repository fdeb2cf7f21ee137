"""What the built-in verifiers offer: names, configs, factories. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ..framework.checks import check_range
from ..framework.plugins import hookimpl
from ..framework.specs import CONTRACT_VERSION, DRAWN, INDEPENDENT, VerifierSpec

if TYPE_CHECKING:
    from ..framework.interfaces import Verifier


@dataclass
class TokenConfig:
    """Token-wise rejection; nothing to set."""


@dataclass
class GreedyConfig:
    """Exact match; nothing to set."""


@dataclass
class BlockConfig:
    """Block verification; nothing to set."""


@dataclass
class RecursiveConfig:
    """Recursive rejection; nothing to set."""


@dataclass
class KSeqConfig:
    """K-SEQ; nothing to set."""


@dataclass
class TraversalConfig:
    """Traversal verification; nothing to set."""


@dataclass
class CoupledConfig:
    """Gumbel coupling; nothing to set."""


@dataclass
class LenientConfig:
    """Lenience.

    Args:
        lenience: accept as if the draft law were this many times smaller, in [0, 1]; 1 is
            token-wise rejection, 0 accepts everything.
    """

    lenience: float = 0.5

    def __post_init__(self) -> None:
        check_range("verifier.lenience", self.lenience, 0, 1)


@dataclass
class TypicalConfig:
    """Typical acceptance.

    Args:
        epsilon: a token at least this likely always stands.
        delta: a token stands if it is likelier than delta times exp(-entropy of the target's law).
    """

    epsilon: float = 0.09
    delta: float = 0.3

    def __post_init__(self) -> None:
        check_range("verifier.epsilon", self.epsilon, 0, 1)
        check_range("verifier.delta", self.delta, 0, 1)


def _token(config: TokenConfig) -> Verifier:
    from .token import TokenVerifier

    return TokenVerifier()


def _greedy(config: GreedyConfig) -> Verifier:
    from .greedy import GreedyVerifier

    return GreedyVerifier()


def _block(config: BlockConfig) -> Verifier:
    from .block import BlockVerifier

    return BlockVerifier()


def _recursive(config: RecursiveConfig) -> Verifier:
    from .recursive import RecursiveVerifier

    return RecursiveVerifier()


def _kseq(config: KSeqConfig) -> Verifier:
    from .kseq import KSeqVerifier

    return KSeqVerifier()


def _traversal(config: TraversalConfig) -> Verifier:
    from .traversal import TraversalVerifier

    return TraversalVerifier()


def _coupled(config: CoupledConfig) -> Verifier:
    from .coupled import CoupledVerifier

    return CoupledVerifier()


def _lenient(config: LenientConfig) -> Verifier:
    from .lenient import LenientVerifier

    return LenientVerifier(config.lenience)


def _typical(config: TypicalConfig) -> Verifier:
    from .typical import TypicalVerifier

    return TypicalVerifier(config.epsilon, config.delta)


@hookimpl
def foredraft_verifiers() -> list[VerifierSpec]:
    """The built-in verifiers."""
    spec = partial(VerifierSpec, contract=CONTRACT_VERSION)
    return [
        spec("token", _token, TokenConfig, "token-wise rejection (Leviathan et al. 2023)"),
        spec(
            "greedy", _greedy, GreedyConfig, "exact match, greedy only",
            greedy_only=True, chains=DRAWN, trees=DRAWN,
        ),
        spec("block", _block, BlockConfig, "block verification (Sun et al. 2024)"),
        spec(
            "recursive", _recursive, RecursiveConfig,
            "recursive rejection, child by child (Miao et al. 2023)", chains=DRAWN, trees=DRAWN,
        ),
        spec(
            "kseq", _kseq, KSeqConfig, "K-SEQ, independent children (Sun et al. 2023)",
            trees=(INDEPENDENT,),
        ),
        spec(
            "traversal", _traversal, TraversalConfig, "leaf to root (Weng et al. 2025)",
            chains=DRAWN, trees=DRAWN,
        ),
        spec(
            "coupled", _coupled, CoupledConfig,
            "Gumbel coupling: text by the seed alone (Daliri et al. 2024)", shared_noise=True,
        ),
        spec(
            "lenient", _lenient, LenientConfig, "lenience (Leviathan et al. 2023, A.5)", lossless=False,
        ),
        spec(
            "typical", _typical, TypicalConfig, "typical acceptance (Cai et al. 2024)",
            lossless=False, chains=DRAWN, trees=DRAWN,
        ),
    ]  # fmt: skip
