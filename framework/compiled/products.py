"""A product as ``linear.PRODUCTS`` has them, from a kernel."""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

from .jit import threads
from .kernels import product


@functools.lru_cache(64)
def ones(count: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Scales of weights that have none."""
    return np.ones(count, np.float32)


def streamed(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``(rows, out)``, the weights read once: float32 alone."""
    if not x.dtype == weight.dtype == torch.float32:
        raise TypeError(f"compiled products are of float32, not of {x.dtype} and {weight.dtype}")
    y = x.new_empty(len(x), len(weight))
    product(x.numpy(), weight.detach().numpy(), ones(len(weight)), y.numpy(), threads())
    return y if bias is None else y.add_(bias)


def streamed_int8(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """Return ``(rows, out)`` for int8 weights ``(out, in)``, each output times its scale: float32 rows."""
    y = x.new_empty(len(x), len(weight))
    product(x.numpy(), weight.numpy(), scale.float().numpy(), y.numpy(), threads())
    return y
