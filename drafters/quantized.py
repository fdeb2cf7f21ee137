"""A weight-only int8 copy of the target as its own drafter: nearly the target's law, for less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..framework.errors import ConfigError
from ..framework.interfaces import Target
from ..framework.kernels import tune
from ..framework.linear import quantize_int8
from ..framework.targets.causal_lm import CausalLM
from .causal_lm import CausalLMDrafter

if TYPE_CHECKING:
    from .builtin import QuantizedConfig


class Quantized(CausalLMDrafter):
    """Copies the target's weights to int8, one scale per output channel. The target is untouched."""

    def __init__(self, config: QuantizedConfig, target: Target) -> None:
        if not isinstance(target, CausalLM):
            raise ConfigError(
                f"drafter=quantized is not possible with target {type(target).__name__}; it copies the "
                "weights of a transformers model (target=causal_lm or target=smollm2)."
            )
        copied = quantize_int8(target.model, _dtype(target.model))
        super().__init__(tune(copied), target, target.tokenizer)


def _dtype(model: Any) -> torch.dtype:
    """Of what is not int8: on a CPU, attention and norms are slow in bfloat16."""
    on_cpu = model.device.type == "cpu"
    return torch.float32 if on_cpu and model.dtype == torch.float32 else torch.bfloat16
