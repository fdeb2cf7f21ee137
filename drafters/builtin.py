"""What the built-in drafters offer: names, configs, factories. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..framework.checks import check_whole
from ..framework.errors import ConfigError
from ..framework.plugins import hookimpl
from ..framework.specs import DrafterSpec
from ..framework.targets.builtin import CausalLMConfig as TargetModelConfig

if TYPE_CHECKING:
    from ..framework.interfaces import Drafter, Target


@dataclass
class NoneConfig:
    """No drafts; nothing to set."""


@dataclass
class PromptLookupConfig:
    """Copy what followed the last occurrence of the newest tokens.

    Args:
        max_ngram: longest match that is looked for.
        min_ngram: shortest match that is enough for a draft.
    """

    max_ngram: int = 3
    min_ngram: int = 1

    def __post_init__(self) -> None:
        check_whole("drafter.max_ngram", self.max_ngram, 1, 32)
        check_whole("drafter.min_ngram", self.min_ngram, 1, self.max_ngram)


@dataclass
class NgramConfig:
    """An interpolated n-gram law.

    Args:
        order: 1 is the unigram, 2 the bigram, up to 6.
        path: a file from ``foredraft fit``; null learns from the running text of each row.
    """

    order: int = 3
    path: str | None = None

    def __post_init__(self) -> None:
        check_whole("drafter.order", self.order, 1, 6)


@dataclass
class CausalLMConfig(TargetModelConfig):
    """A small transformer with the target's tokens; fields as for ``target=causal_lm``."""

    group: ClassVar[str] = "drafter"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device_map is not None:
            raise ConfigError("drafter.device_map is not possible; set drafter.device.")


@dataclass
class EarlyExitConfig:
    """The target's first layers.

    Args:
        layers: how many of them draft, from 1 to the target's depth less one.
    """

    layers: int = 4


@dataclass
class QuantizedConfig:
    """An int8 copy of the target; nothing to set."""


def _none(config: NoneConfig, target: Target) -> Drafter:
    from .none import NoDrafter

    return NoDrafter()


def _prompt_lookup(config: PromptLookupConfig, target: Target) -> Drafter:
    from .prompt_lookup import PromptLookup

    return PromptLookup(config)


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


@hookimpl
def foredraft_drafters() -> list[DrafterSpec]:
    """The built-in drafters."""
    return [
        DrafterSpec("none", _none, NoneConfig, "no drafts: plain decoding", deterministic=True),
        DrafterSpec(
            "prompt_lookup", _prompt_lookup, PromptLookupConfig,
            "copies what followed the newest tokens before", deterministic=True,
        ),
        DrafterSpec("ngram", _ngram, NgramConfig, "interpolated n-gram law, fitted or running", host_reads=1),
        DrafterSpec("causal_lm", _causal_lm, CausalLMConfig, "a small transformer with the target's tokens"),
        DrafterSpec("early_exit", _early_exit, EarlyExitConfig, "the target's first layers, on its cache"),
        DrafterSpec("quantized", _quantized, QuantizedConfig, "an int8 copy of the target"),
    ]  # fmt: skip
