"""The target's LM head, whole or for some ids, for drafters that guess from hidden states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .errors import ConfigError
from .interfaces import Target
from .linear import Int8Linear, SmallWidthLinear, speed_up_linears
from .vocabulary import widen


@dataclass(frozen=True)
class LMHead:
    """A linear head; called, it gives logits over the target's ids.

    Args:
        layer: ``[..., hidden]`` to ``[..., ids]``.
        vocab_size: the target's ids.
        scale: what logits are divided by.
        cap: the bound that they are bent to (Gemma's soft cap); 0: none.
        ids: the target's ids that it has rows for; None: all.
        copied: whether its weights lie beside the target's.
    """

    layer: nn.Linear
    vocab_size: int
    scale: float = 1.0
    cap: float = 0.0
    ids: Tensor | None = None
    copied: bool = False

    @classmethod
    def of(cls, target: Target, drafter: str) -> LMHead:
        """The head of a transformers model, not copied unless it is of int8.

        Raises:
            ConfigError: it has none that is linear.
        """
        model: Any = getattr(target, "model", None)
        layer = None if model is None else model.get_output_embeddings()
        if not isinstance(layer, nn.Linear | Int8Linear):
            raise ConfigError(
                f"drafter={drafter} needs the LM head of a transformers model, which target "
                f"{type(target).__name__} does not have."
            )
        return cls.of_model(model, target.vocab_size)

    @classmethod
    def of_model(cls, model: Any, vocab_size: int) -> LMHead:
        """The linear head of a model, as it is; one of int8 as float32."""
        config = model.config.get_text_config()
        scale = float(getattr(config, "logits_scaling", None) or 1.0)
        cap = float(getattr(config, "final_logit_softcapping", None) or 0.0)
        layer = model.get_output_embeddings()
        copied = isinstance(layer, Int8Linear)
        return cls(layer.widened() if copied else layer, vocab_size, scale, cap, copied=copied)

    @property
    def weight(self) -> Tensor:
        """``[ids, hidden]``."""
        return self.layer.weight.detach()

    @property
    def own_bytes(self) -> int:
        """Bytes beside the target's own head."""
        return self.weight.nbytes if self.copied else 0

    def reduced(self, ids: Tensor | None) -> LMHead:
        """The same for some of its ids, as a copy that lies together."""
        if ids is None:
            return self
        ids = ids.to(self.weight.device)
        size, bias = self.weight.shape[1], self.layer.bias
        layer = nn.Linear(size, len(ids), bias is not None, device="meta")
        layer.weight = nn.Parameter(self.weight[ids], requires_grad=False)
        if bias is not None:
            layer.bias = nn.Parameter(bias.detach()[ids], requires_grad=False)
        if isinstance(self.layer, SmallWidthLinear):
            speed_up_linears(layer)
        return LMHead(layer, self.vocab_size, self.scale, self.cap, ids, copied=True)

    def frozen(self) -> LMHead:
        """The same, not copied, whose weights get no gradients: those of a large vocabulary are dear."""
        bias = self.layer.bias
        ids, size = self.weight.shape
        layer = nn.Linear(size, ids, bias is not None, device="meta")
        layer.weight = nn.Parameter(self.weight, requires_grad=False)
        if bias is not None:
            layer.bias = nn.Parameter(bias.detach(), requires_grad=False)
        return replace(self, layer=layer)

    def narrow(self, hidden: Tensor) -> Tensor:
        """``[..., hidden]`` to logits of its own ids."""
        logits = self.layer(hidden.to(self.layer.weight.dtype)) / self.scale
        return torch.tanh(logits / self.cap) * self.cap if self.cap else logits

    def __call__(self, hidden: Tensor) -> Tensor:
        """``[..., hidden]`` to logits ``[..., vocab_size]``; ids that it lacks have -inf."""
        return widen(self.narrow(hidden), self.ids, self.vocab_size)
