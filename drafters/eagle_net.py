"""The network of EAGLE: one decoder layer over the target's features and the token that follows each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries, keys and values ``[rows, heads, width, size]`` to what the queries find, as wide as they are."""


@dataclass(frozen=True)
class EagleForm:
    """The sizes and the kind of a network.

    Args:
        size: of what the layer computes with, and of embeddings.
        heads, kv_heads, head_size: of its attention.
        inner: width of its feed-forward part.
        feature: size of a committed place's feature; if it is not ``size``, it is reduced to that.
        fused: embedding and feature become one vector before the layer (EAGLE); if not, the layer's
            attention reads both (EAGLE-3).
        norms: these norms are there: ``embedding``, ``input`` (what the attention reads; EAGLE-3: the
            feature in it), ``last`` (before the LM head).
        normed_residual: EAGLE-3: what is added to is the feature behind its norm.
        biases: linear layers that have one.
        eps: of the norms.
    """

    size: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    feature: int
    fused: bool = True
    norms: tuple[str, ...] = ()
    normed_residual: bool = False
    biases: tuple[str, ...] = ()
    eps: float = 1e-6


class EagleNet(nn.Module):
    """Li et al. 2024 (arXiv:2401.15077) and 2025 (arXiv:2503.01840, EAGLE-3), by its form.

    The place of token t takes in the feature behind it and the embedding of token t + 1, and puts out a
    state that stands for the feature behind token t + 1: the LM head reads a guess of token t + 2 from it,
    and where that is drafted, it is the next place's feature.

    Args:
        form: what it is like.
        rotations: ``[head_size / 2]`` float32, the angle by which each pair turns per place.
    """

    rotations: Tensor

    def __init__(self, form: EagleForm, rotations: Tensor) -> None:
        super().__init__()
        self.form, size = form, form.size
        self.register_buffer("rotations", rotations, persistent=False)
        if form.feature != size:
            self.reduce = self._linear("reduce", form.feature, size)
        if form.fused:
            self.fuse = self._linear("fuse", 2 * size, size)
        wide = size if form.fused else 2 * size
        self.q = self._linear("q", wide, form.heads * form.head_size)
        self.k = self._linear("k", wide, form.kv_heads * form.head_size)
        self.v = self._linear("v", wide, form.kv_heads * form.head_size)
        self.o = self._linear("o", form.heads * form.head_size, size)
        self.gate = self._linear("gate", size, form.inner)
        self.up = self._linear("up", size, form.inner)
        self.down = self._linear("down", form.inner, size)
        names = {"middle", *form.norms}
        self.norms = nn.ParameterDict({name: torch.ones(size) for name in sorted(names)})

    def begin_as_identity(self) -> None:
        """Puts out the feature that comes in (the last ``size`` of it): a guess of the very next token."""
        with torch.no_grad():
            for layer in (
                (self.reduce, self.fuse) if self.form.feature != self.form.size else (self.fuse,)
            ):
                layer.weight.zero_()
                layer.weight[:, -self.form.size :].fill_diagonal_(1.0)
            self.o.weight.zero_()
            self.down.weight.zero_()

    def put(self, like: Tensor) -> EagleNet:
        """To the device and, but for the angles, the dtype of a tensor."""
        self.to(like.device)
        for parameter in self.parameters():
            parameter.data = parameter.data.to(like.dtype)
        return self

    def committed(self, features: Tensor) -> Tensor:
        """The target's ``[..., feature]`` as the layer takes them in, ``[..., size]``."""
        if self.form.feature == self.form.size:
            return features
        return cast(Tensor, self.reduce(features))

    def forward(
        self, embedded: Tensor, features: Tensor, positions: Tensor, attend: Attend
    ) -> Tensor:
        """States ``[rows, width, size]`` of places with these features and embeddings of the tokens behind.

        Args:
            embedded, features: ``[rows, width, size]``.
            positions: ``[rows, width]``, the places' numbers.
            attend: attention over all that each place may see, itself included.
        """
        inputs, residual = self._inputs(self._norm("embedding", embedded), features)
        turn = self._turns(positions, inputs.dtype)
        queries, keys = (turn(self._split(layer(inputs))) for layer in (self.q, self.k))
        found = attend(queries, keys, self._split(self.v(inputs)))
        states: Tensor = residual + self.o(found.transpose(1, 2).flatten(2))
        inner = self._norm("middle", states)
        return states + cast(Tensor, self.down(functional.silu(self.gate(inner)) * self.up(inner)))

    def last(self, states: Tensor) -> Tensor:
        """What the LM head reads of states."""
        return self._norm("last", states)

    def _inputs(self, embedded: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        """What the attention reads, and what its result is added to."""
        if self.form.fused:
            fused = self.fuse(torch.cat([embedded, features], -1))
            return self._norm("input", fused), fused
        normed = self._norm("input", features)
        return torch.cat([embedded, normed], -1), normed if self.form.normed_residual else features

    def _norm(self, name: str, values: Tensor) -> Tensor:
        if name not in self.norms:
            return values
        return functional.rms_norm(
            values, (self.form.size,), self.norms[name].to(values.dtype), self.form.eps
        )

    def _split(self, values: Tensor) -> Tensor:
        """``[rows, width, heads * size]`` to ``[rows, heads, width, size]``."""
        size = self.form.head_size
        return values.view(*values.shape[:2], values.shape[2] // size, size).transpose(1, 2)

    def _turns(self, positions: Tensor, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
        """Rotary positions (Su et al. 2021, arXiv:2104.09864): each half's pair turns by its angle."""
        angles = positions.unsqueeze(-1).float() * self.rotations
        both = torch.cat([angles, angles], -1).unsqueeze(1)
        cos, sin = both.cos().to(dtype), both.sin().to(dtype)

        def turn(heads: Tensor) -> Tensor:
            first, second = heads.chunk(2, -1)
            return heads * cos + torch.cat([-second, first], -1) * sin

        return turn

    def _linear(self, name: str, inward: int, outward: int) -> nn.Linear:
        return nn.Linear(inward, outward, name in self.form.biases)
