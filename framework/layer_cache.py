"""A ragged cache for a single attention layer, for drafters whose network is not a transformers model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .cache import Branch, RaggedRows, attended
from .device import upload


class LayerCache(RaggedRows):
    """Keys and values of one layer, for rows of different lengths.

    A forward is ``place`` for where its tokens stand, then ``attend`` with what the layer makes of them;
    neither moves the lengths.

    Args:
        rows: rows of the batch.
        capacity: the most entries a row can come to hold.
    """

    mask: Tensor  # of the forward at hand, [rows, 1, width, attended slots]

    def __init__(self, rows: int, capacity: int) -> None:
        super().__init__(rows, capacity)
        self.keys, self.values = self._add(), self._add()

    def place(
        self,
        counts: list[int],
        width: int,
        device: Any,
        ahead: int = 0,
        branch: Branch | None = None,
    ) -> Tensor:
        """Puts ``width`` tokens behind each row's length; returns their positions ``[rows, width]``.

        Args:
            counts: how many of each row's tokens are real; the rest is padding.
            ahead: tokens already run, but not kept, behind each length.
            branch: their shape and that of these, if they are not a chain.
        """
        starts = [length + ahead for length in self.lengths]
        positions, lengths = self._place(starts, counts, width, device), None
        if branch is not None:
            lengths = upload(self.lengths, device).unsqueeze(1)
            positions = (lengths + branch.depths[:, ahead:]).clamp(max=self.capacity - 1)
        self.mask = attended(positions, self._plan.bucket, lengths, branch)[1]
        return positions

    @torch.inference_mode()
    def attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Writes ``keys`` and ``values [rows, heads, width, size]`` where ``place`` has put them, and gives
        what ``queries [rows, heads * n, width, size]`` find in all that they may see."""
        rows, seen = slice(0, self._plan.rows), slice(0, self._plan.bucket)
        return functional.scaled_dot_product_attention(
            queries,
            self.keys.write(keys)[rows, :, seen],
            self.values.write(values)[rows, :, seen],
            attn_mask=self.mask,
            enable_gqa=queries.shape[1] != keys.shape[1],
        )


def layer_cache_bytes(heads: int, size: int, item: int, rows: int, capacity: int) -> int:
    """Bytes of the buffers that ``LayerCache(rows, capacity)`` comes to allocate.

    Args:
        heads, size: of keys and values.
        item: bytes of a number.
    """
    return 2 * rows * (capacity + 1) * heads * size * item
