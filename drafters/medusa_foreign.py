"""Medusa heads that others trained: residual layers and an LM head of their own for each.

Tensors are named ``HEAD.LAYER.linear.weight`` and ``.bias``, and ``HEAD.LAYERS.weight`` for the LM head. How
many there are is read from these names: the counts in ``config.json`` are not always those of the weights.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

from ..framework.errors import ConfigError
from ..framework.foreign import Foreign
from ..framework.heads import LMHead
from ..framework.interfaces import Target
from .medusa_net import MOST_HEADS, DeepHeads, OwnLMHeads

PREFIX = re.compile(r"^(model\.)?medusa_heads?\.")
LAYER = re.compile(r"(\d+)\.(\d+)\.linear\.(weight|bias)")
LM_HEAD = re.compile(r"(\d+)\.(\d+)\.weight")
Parts = dict[tuple[int, int, str], Tensor]


def read_medusa(found: Foreign, target: Target, head: LMHead) -> tuple[DeepHeads, OwnLMHeads]:
    """The heads, where the target's LM head is and in its dtype.

    Raises:
        ConfigError: they are for another target, or not as described above.
    """
    parts = _parts(found)
    heads = 1 + max((number for number, _, _ in parts), default=-1)
    layers = 1 + max((layer for _, layer, kind in parts if kind == "bias"), default=-1)
    if not 1 <= heads <= MOST_HEADS or not layers:
        raise ConfigError(
            f"{found.where} has {heads} heads of {layers} layers; 1 to {MOST_HEADS} of at least one are possible."
        )
    _check_sizes(found, parts, target.vocab_size, head.weight.shape[1])
    weight, bias = (
        [[_part(found, parts, n, layer, kind) for layer in range(layers)] for n in range(heads)]
        for kind in ("weight", "bias")
    )
    lm = [_part(found, parts, n, layers, "head") for n in range(heads)]
    if sum(kind == "head" for _, _, kind in parts) > heads:
        raise ConfigError(f"{found.where} has more than one LM head for a head.")
    return DeepHeads(
        torch.stack([torch.stack(row) for row in weight]).to(head.weight),
        torch.stack([torch.stack(row) for row in bias]).to(head.weight),
    ), OwnLMHeads(torch.stack(lm).to(head.weight))


def _parts(found: Foreign) -> Parts:
    """By head, layer and kind."""
    parts: Parts = {}
    for name, tensor in found.tensors.items():
        short = PREFIX.sub("", name)
        layer, lm = LAYER.fullmatch(short), LM_HEAD.fullmatch(short)
        if layer:
            parts[int(layer[1]), int(layer[2]), layer[3]] = tensor
        elif lm:
            parts[int(lm[1]), int(lm[2]), "head"] = tensor
        else:
            raise ConfigError(
                f"{found.where} has a tensor {name}, for which there is no place among Medusa heads."
            )
    return parts


def _part(found: Foreign, parts: Parts, number: int, layer: int, kind: str) -> Tensor:
    tensor = parts.get((number, layer, kind))
    if tensor is None:
        name = f"{number}.{layer}." + ("weight" if kind == "head" else f"linear.{kind}")
        raise ConfigError(f"{found.where} has no {name}; heads must be all alike.")
    return tensor


def _check_sizes(found: Foreign, parts: Parts, vocab_size: int, hidden: int) -> None:
    """Refuses heads for another target, with both numbers."""
    due = {"weight": (hidden, hidden), "bias": (hidden,), "head": (vocab_size, hidden)}
    for (number, layer, kind), tensor in parts.items():
        if not tensor.is_floating_point() or tensor.shape != due[kind]:
            raise ConfigError(
                f"{found.where} has, in head {number} at {layer}, a {kind} of shape {list(tensor.shape)}; for "
                f"this target it must be {list(due[kind])}."
            )
