"""The network of Medusa: heads that each guess one token further ahead, all from one hidden state."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

MOST_HEADS = 16


class MedusaHeads(nn.Module):
    """K residual heads before one LM head (Cai et al. 2024, arXiv:2401.10774, equation 1; one layer each).

    Head k turns the hidden state behind token t into one for token t + k, from which the target's own LM
    head guesses token t + k + 1. They start as the identity: guesses of the very next token.

    Args:
        heads: how many.
        size: of a hidden state.
    """

    def __init__(self, heads: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(heads, size, size))
        self.bias = nn.Parameter(torch.zeros(heads, size))

    def forward(self, hidden: Tensor, heads: int) -> Tensor:
        """``[..., size]`` to the first heads' states ``[..., heads, size]``."""
        weight, bias = self.weight[:heads], self.bias[:heads]
        moved = functional.linear(hidden, weight.flatten(0, 1), bias.flatten())
        return hidden.unsqueeze(-2) + functional.silu(moved.view(*moved.shape[:-1], *bias.shape))
