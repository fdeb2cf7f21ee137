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

    @property
    def heads(self) -> int:
        """How many there are."""
        return self.weight.shape[0]

    def forward(self, hidden: Tensor, heads: int) -> Tensor:
        """``[..., size]`` to the first heads' states ``[..., heads, size]``."""
        weight, bias = self.weight[:heads], self.bias[:heads]
        moved = functional.linear(hidden, weight.flatten(0, 1), bias.flatten())
        return hidden.unsqueeze(-2) + functional.silu(moved.view(*moved.shape[:-1], *bias.shape))


class DeepHeads(nn.Module):
    """Heads of several residual layers each, as others train them (equation 1 for each layer in turn).

    Args:
        weight: ``[heads, layers, size, size]``.
        bias: ``[heads, layers, size]``.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = nn.Parameter(bias, requires_grad=False)

    @property
    def heads(self) -> int:
        """How many there are."""
        return self.weight.shape[0]

    def forward(self, hidden: Tensor, heads: int) -> Tensor:
        """``[..., size]`` to the first heads' states ``[..., heads, size]``."""
        states = hidden.unsqueeze(-2).expand(*hidden.shape[:-1], heads, hidden.shape[-1])
        for layer in range(self.weight.shape[1]):
            weight, bias = self.weight[:heads, layer], self.bias[:heads, layer]
            states = states + functional.silu(
                torch.einsum("...hi,hoi->...ho", states, weight) + bias
            )
        return states


class OwnLMHeads:
    """An LM head for each of Medusa's heads, in the place of the target's.

    Args:
        weight: ``[heads, ids, size]``.
    """

    def __init__(self, weight: Tensor) -> None:
        self.weight, self.own_bytes = weight, weight.nbytes

    def __call__(self, states: Tensor) -> Tensor:
        """``[..., heads, size]`` of the first heads to logits ``[..., heads, ids]``."""
        weight = self.weight[: states.shape[-2]]
        return torch.einsum("...hi,hvi->...hv", states, weight)
