"""The network of a trained early exit: what stands between a layer's hidden states and the LM head."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

MOST_RANK = 4096


class Exits(nn.Module):
    """One exit for each of some layers: a norm of its own, and a low-rank adapter behind it.

    An adapter adds ``U SiLU(D n)`` to what it is given (Houlsby et al. 2019, arXiv:1902.00751). U begins
    as zero and the norm as the target's final one, so that a new exit is what an untrained one is.

    Args:
        layers: of the target, ascending.
        rank: rows of D.
        norm: the target's final norm, which is copied.
        size: of a hidden state.
    """

    def __init__(self, layers: Sequence[int], rank: int, norm: nn.Module, size: int) -> None:
        super().__init__()
        self.layers = tuple(layers)
        self.norms = nn.ModuleList(copy.deepcopy(norm).requires_grad_() for _ in layers)
        self.down = nn.Parameter(torch.randn(len(layers), rank, size) / size**0.5)
        self.up = nn.Parameter(torch.zeros(len(layers), size, rank))

    def forward(self, hidden: Tensor, layer: int) -> Tensor:
        """Hidden states ``[..., size]`` behind a layer to what the LM head reads."""
        place = self.layers.index(layer)
        normed: Tensor = self.norms[place](hidden)
        inner = functional.silu(functional.linear(normed, self.down[place]))
        return normed + functional.linear(inner, self.up[place])

    def only(self, layer: int) -> Exits:
        """The exit of one layer, without the others."""
        place = self.layers.index(layer)
        rank, size = self.down.shape[1:]
        one = Exits((layer,), rank, self.norms[place], size)
        one.down.data = self.down.data[place : place + 1].clone()
        one.up.data = self.up.data[place : place + 1].clone()
        return one
