"""What the built-in drafters offer: names, configs, factories. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from ..framework.checks import check_range, check_whole
from ..framework.errors import ConfigError
from ..framework.growth import TreeConfig, grown
from ..framework.plugins import hookimpl
from ..framework.specs import CONTRACT_VERSION, DETERMINISTIC, DrafterSpec, DraftKind
from ..framework.targets.builtin import CausalLMConfig as TargetModelConfig
from .builtin_nested import nested_drafters
from .builtin_trained import trained_drafters

if TYPE_CHECKING:
    from ..framework.interfaces import Drafter, Target

CHOSEN = DraftKind(DETERMINISTIC)


@dataclass
class NoneConfig:
    """No drafts; nothing to set."""


@dataclass
class PromptLookupConfig:
    """Copy what followed the last occurrence of the newest tokens.

    Args:
        max_ngram: longest match that is looked for.
        min_ngram: shortest match that is enough for a draft.
        branches: how many of the best matches are copied from; above 1, the draft is a tree.
        nodes: the most tokens of such a tree.
    """

    max_ngram: int = 3
    min_ngram: int = 1
    branches: int = 1
    nodes: int = 32

    def __post_init__(self) -> None:
        check_whole("drafter.max_ngram", self.max_ngram, 1, 32)
        check_whole("drafter.min_ngram", self.min_ngram, 1, self.max_ngram)
        check_whole("drafter.branches", self.branches, 1, 16)
        check_whole("drafter.nodes", self.nodes, 1, 1024)


@dataclass
class TokenRecyclingConfig:
    """A tree of the target's own candidates from earlier rounds.

    Args:
        nodes: tokens of the tree; its depth is at most gamma.
        successors: candidates kept for each id; 1 drafts chains.
        from_prompt: begin with what follows what in the prompt; else with nothing.
    """

    nodes: int = 16
    successors: int = 8
    from_prompt: bool = True

    def __post_init__(self) -> None:
        check_whole("drafter.nodes", self.nodes, 1, 256)
        check_whole("drafter.successors", self.successors, 1, 32)


@dataclass
class JacobiConfig:
    """The target's guesses of the last round.

    Args:
        pool: longest n-gram that is kept of earlier guesses, up to 6; 1 keeps none.
        from_prompt: begin with the prompt's n-grams; else with none.
    """

    pool: int = 3
    from_prompt: bool = True

    def __post_init__(self) -> None:
        check_whole("drafter.pool", self.pool, 1, 6)


def _may_branch(config: PromptLookupConfig) -> DraftKind:
    return DraftKind(DETERMINISTIC, config.branches > 1)


def _may_fork(config: TokenRecyclingConfig) -> DraftKind:
    return DraftKind(DETERMINISTIC, config.successors > 1)


@dataclass
class NgramConfig(TreeConfig):
    """An interpolated n-gram law.

    Args:
        order: 1 is the unigram, 2 the bigram, up to 6.
        path: a file from ``foredraft fit``; null learns from the running text of each row.
    """

    order: int = 3
    path: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("drafter.order", self.order, 1, 6)


@dataclass
class CausalLMConfig(TreeConfig, TargetModelConfig):
    """A small transformer with the target's tokens; fields as for ``target=causal_lm``, and those
    of a tree."""

    group: ClassVar[str] = "drafter"

    def __post_init__(self) -> None:
        TreeConfig.__post_init__(self)
        TargetModelConfig.__post_init__(self)
        if self.device_map is not None:
            raise ConfigError("drafter.device_map is not possible; set drafter.device.")


@dataclass
class EarlyExitConfig:
    """The target's first layers.

    Args:
        layers: how many of them draft, from 1 to the target's depth less one; null: 4, or with a path the
            fewest that it has an exit for.
        path: folder that ``foredraft train`` has written; null: the target's final norm and head.
    """

    layers: int | None = None
    path: str | None = None


@dataclass
class QuantizedConfig:
    """An int8 copy of the target; nothing to set."""


@dataclass
class SyntheticConfig:
    """The target's own law with noise in it, for studies.

    Args:
        alpha: mean overlap with the target's law, from 0 to 1.
        cost: of a drafted token, in plain steps of the target; booked, not waited for.
        step_seconds: how long such a step takes; null measures it when the drafter is built.
    """

    alpha: float = 0.8
    cost: float = 0.05
    step_seconds: float | None = None

    def __post_init__(self) -> None:
        check_range("drafter.alpha", self.alpha, 0, 1)
        check_range("drafter.cost", self.cost, 0, 1000)
        if self.step_seconds is not None:
            check_range("drafter.step_seconds", self.step_seconds, 0, 3600)


def _none(config: NoneConfig, target: Target) -> Drafter:
    from .none import NoDrafter

    return NoDrafter()


def _prompt_lookup(config: PromptLookupConfig, target: Target) -> Drafter:
    from .prompt_lookup import PromptLookup

    return PromptLookup(config)


def _token_recycling(config: TokenRecyclingConfig, target: Target) -> Drafter:
    from .token_recycling import TokenRecycling

    return TokenRecycling(config, target)


def _jacobi(config: JacobiConfig, target: Target) -> Drafter:
    from .jacobi import Jacobi

    return Jacobi(config)


def _ngram(config: NgramConfig, target: Target) -> Drafter:
    from .ngram import Ngram

    return Ngram(config, target)


def _causal_lm(config: CausalLMConfig, target: Target) -> Drafter:
    from .causal_lm import CausalLMDrafter

    return CausalLMDrafter.from_config(config, target)


def _early_exit(config: EarlyExitConfig, target: Target) -> Drafter:
    from .early_exit import EarlyExit

    return EarlyExit(config, target)


def _quantized(config: QuantizedConfig, target: Target) -> Drafter:
    from .quantized import Quantized

    return Quantized(config, target)


def _synthetic(config: SyntheticConfig, target: Target) -> Drafter:
    from .synthetic import Synthetic

    return Synthetic(config, target)


@hookimpl
def foredraft_drafters() -> list[DrafterSpec]:
    """The built-in drafters."""
    spec = partial(DrafterSpec, contract=CONTRACT_VERSION)
    return [
        spec("none", _none, NoneConfig, "no drafts: plain decoding", kind=CHOSEN),
        spec(
            "prompt_lookup", _prompt_lookup, PromptLookupConfig,
            "copies what followed the newest tokens before", kind=_may_branch,
        ),
        spec(
            "token_recycling", _token_recycling, TokenRecyclingConfig,
            "the target's candidates of earlier rounds, as a tree", kind=_may_fork, learns=True,
        ),
        spec(
            "jacobi", _jacobi, JacobiConfig, "the target's guesses of the last round", kind=CHOSEN,
            learns=True,
        ),
        spec(
            "ngram", _ngram, NgramConfig,
            "interpolated n-gram law, fitted or running", kind=grown, host_reads=1,
        ),
        spec(
            "causal_lm", _causal_lm, CausalLMConfig,
            "a small transformer with the target's tokens", kind=grown,
            trainee="foredraft.drafters.causal_lm_training:CausalLMTrainee",
        ),
        spec(
            "early_exit", _early_exit, EarlyExitConfig, "the target's first layers, on its cache",
            trainee="foredraft.drafters.early_exit_training:EarlyExitTrainee",
        ),
        spec("quantized", _quantized, QuantizedConfig, "an int8 copy of the target"),
        spec(
            "synthetic", _synthetic, SyntheticConfig,
            "the target's law with noise, to a set alpha and cost", host_reads=1,
        ),
        *trained_drafters(),
        *nested_drafters(),
    ]  # fmt: skip
