"""What the built-in targets offer: names, configs, factories. Imports no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from ..checks import check_choice, check_range, check_whole
from ..errors import ConfigError
from ..plugins import hookimpl
from ..specs import CONTRACT_VERSION, TargetSpec

if TYPE_CHECKING:
    from ..interfaces import Target

INT8 = "int8"
DTYPES = ("auto", "float32", "float64", "bfloat16", "float16", INT8)
KERNELS = ("library", "tuned")
MOST_ENTRIES = 10_000_000


@dataclass
class ModelConfig:
    """How a transformers model is loaded and run.

    Args:
        dtype: ``auto`` takes the one the weights are stored in; ``int8`` rounds the weights of linear layers,
            which makes it another model.
        device: ``auto`` takes CUDA where there is one.
        attention: transformers' attention implementation; ``auto`` lets transformers choose.
        device_map: transformers' ``device_map`` (needs accelerate), for several devices.
        kernels: ``tuned`` makes few-row forwards cheaper on CPU, equal up to rounding (see
            ``framework/kernels.py``); ``library`` leaves the model alone.
    """

    group: ClassVar[str] = "target"

    dtype: str = "auto"
    device: str = "auto"
    attention: str = "auto"
    device_map: str | None = None
    kernels: str = "library"

    def __post_init__(self) -> None:
        check_choice(f"{self.group}.dtype", self.dtype, DTYPES)
        check_choice(f"{self.group}.kernels", self.kernels, KERNELS)
        if not re.fullmatch("[a-z0-9_]+", self.attention):  # a hub id would run code from the hub
            raise ConfigError(
                f"{self.group}.attention={self.attention!r} is not possible; it must be auto or the name of "
                "an implementation in transformers, such as sdpa or eager."
            )
        if self.device_map is not None and self.dtype == INT8:
            raise ConfigError(
                f"{self.group}.dtype={INT8} is not possible beside device_map={self.device_map!r}; set "
                f"{self.group}.device."
            )
        if self.device_map is not None and self.device != "auto":
            raise ConfigError(
                f"{self.group}.device={self.device!r} has no effect beside device_map={self.device_map!r}."
            )


@dataclass
class CausalLMConfig(ModelConfig):
    """Any transformers causal LM.

    Args:
        model: a hub id or a folder; weights are read from safetensors only.
        revision: a hub revision.
        trust_remote_code: run code that comes with the model. Off unless you ask for it.
    """

    model: str = ""
    revision: str | None = None
    trust_remote_code: bool = False


@dataclass
class SmolLM2Config(ModelConfig):
    """SmolLM2-135M-Instruct, the default model; ``foredraft fetch smollm2`` brings it."""

    dtype: str = "float32"


@dataclass
class TableConfig:
    """A target whose law is a table over the last ``order`` tokens; no model involved.

    Args:
        vocab_size: number of tokens, 2 to 4096.
        order: how many tokens the law depends on; contexts shorter than that have rows of their own.
        sharpness: standard deviation of the random logits; 0 is uniform.
        zeros: share of entries set to zero probability, below 1.
        seed: of the random table.
        path: a safetensors file with ``probs [contexts, vocab]`` in place of a random table.
        eos: a token that ends an answer, or null.
        max_context: positions a row can hold.
    """

    vocab_size: int = 8
    order: int = 1
    sharpness: float = 2.0
    zeros: float = 0.0
    seed: int = 0
    path: str | None = None
    eos: int | None = None
    max_context: int = 4096

    def __post_init__(self) -> None:
        check_range("target.vocab_size", self.vocab_size, 2, 4096)
        check_range("target.order", self.order, 0, 8)
        check_range("target.zeros", self.zeros, 0, 0.99)
        check_range("target.sharpness", self.sharpness, 0, 100)
        check_range("target.max_context", self.max_context, 2, 10**6)
        entries = (self.vocab_size + 1) ** self.order * self.vocab_size
        if entries > MOST_ENTRIES:
            raise ConfigError(
                f"target.vocab_size={self.vocab_size} with target.order={self.order} is a table of {entries} "
                f"entries; at most {MOST_ENTRIES} are possible."
            )
        if self.eos is not None:
            check_whole("target.eos", self.eos, 0, self.vocab_size - 1)


def _causal_lm(config: CausalLMConfig) -> Target:
    from .causal_lm import CausalLM

    return CausalLM.from_config(config)


def _smollm2(config: SmolLM2Config) -> Target:
    from .smollm2 import smollm2

    return smollm2(config)


def _table(config: TableConfig) -> Target:
    from .table import TableTarget

    return TableTarget.from_config(config)


@hookimpl
def foredraft_targets() -> list[TargetSpec]:
    """The built-in targets."""
    spec = partial(TargetSpec, contract=CONTRACT_VERSION)
    return [
        spec("causal_lm", _causal_lm, CausalLMConfig, "any transformers causal LM"),
        spec("smollm2", _smollm2, SmolLM2Config, "SmolLM2-135M-Instruct, the default"),
        spec("table", _table, TableConfig, "a table of laws, for exact studies"),
    ]
