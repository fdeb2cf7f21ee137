"""Decoder layers of a lean forward as one compiled call each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..linear import Int8Linear, typical
from .jit import threads
from .kernels import layer as kernel
from .kernels import norm as norm_kernel
from .products import ones

if TYPE_CHECKING:
    from ..lean import LeanLayer

COUNTS = 1, 2, 4, 8, 16, 24
"""Tokens of a forward; with more, a library's products are as fast."""
TIMES = 5


@dataclass(frozen=True)
class Shared:
    """What all layers of a forward need: cosines and sines ``[tokens, head]``, what each token may attend
    ``[rows, width, attended]``, and where its keys and values go ``[rows, width]``."""

    turns: tuple[Any, Any]
    visible: Any
    slots: Any
    threads: int

    @classmethod
    def of(cls, turns: tuple[Tensor, Tensor], mask: Tensor | None, plan: Any) -> Shared:
        """From ``turns [rows, 1, width, head]``, a mask of the same rows, and where a cache writes."""
        rows, _, width, size = turns[0].shape
        if mask is None:
            visible = np.ones((rows, width, plan.bucket), np.bool_)
        else:
            visible = mask[:, 0].expand(rows, -1, -1).contiguous().numpy()
        cos, sin = (one.reshape(rows * width, size).numpy() for one in turns)
        return cls((cos, sin), visible, plan.index.contiguous().numpy(), threads())


class CompiledLayer:
    """Runs a lean layer, whose weights it reads.

    Raises:
        TypeError: for a layer with other weights than float32 or int8 on a CPU, or with biases.
    """

    def __init__(self, layer: LeanLayer) -> None:
        parts = [layer.qkv, layer.out, layer.gate_up, layer.down]
        norms = [layer.before, layer.between]
        eps = {_eps(one) for one in norms}
        if len(eps) != 1 or any(one.bias is not None for one in parts):
            raise TypeError("norms of different kinds, or biases")
        both = [_array(one.weight) for one in norms]
        self.norms = both[0], both[1]
        self.weights, self.scales = tuple(map(_weights, parts)), tuple(map(_scales, parts))
        self.heads = layer.shared
        self.eps, self.scale = np.float32(eps.pop()), np.float32(layer.scale)

    def __call__(self, hidden: Tensor, shared: Shared, cache: Any) -> Tensor:
        """``[rows, width, hidden]`` to the same."""
        keys, values = cache.room(hidden, self.heads, shared.turns[0].shape[1])
        flat = hidden.reshape(-1, hidden.shape[-1]).contiguous()
        found = kernel(
            flat.numpy(), self.norms, self.weights, self.scales, self.eps, self.scale,
            shared.turns, shared.slots, shared.visible, (keys.numpy(), values.numpy()),
            shared.threads,
        )  # fmt: skip
        return torch.from_numpy(found).view(hidden.shape)


class CompiledNorm:
    """Runs an RMS norm of float32."""

    def __init__(self, norm: Any) -> None:
        self.weight = _array(norm.weight)
        self.eps = np.float32(_eps(norm))

    def __call__(self, hidden: Tensor) -> Tensor:
        """``[rows, width, hidden]`` to the same."""
        flat = hidden.reshape(-1, hidden.shape[-1]).contiguous().numpy()
        normed = np.empty_like(flat)
        norm_kernel(flat, self.weight, self.eps, normed)
        return torch.from_numpy(normed).view(hidden.shape)


class CompiledParts:
    """All layers of a model, and the norm behind them.

    Raises:
        TypeError: one of them cannot be compiled.
    """

    def __init__(self, layers: Iterable[Any], norm: Any) -> None:
        self.layers = [CompiledLayer(layer) for layer in layers]
        self.norm = CompiledNorm(norm)

    def runner(
        self, turns: tuple[Tensor, Tensor], mask: Tensor | None, plan: Any
    ) -> Callable[[int, Tensor, Any], Tensor]:
        """What runs a layer by its number in one forward; arguments as of ``Shared.of``."""
        shared = Shared.of(turns, mask, plan)
        return lambda depth, hidden, cache: self.layers[depth](hidden, shared, cache)


def largest_gain(run: Callable[[int, bool], None]) -> int:
    """Up to how many tokens compiled layers are faster: 0 where they never are.

    Args:
        run: runs so many tokens, compiled or not.
    """
    most = 0
    for count in COUNTS:
        seconds: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(TIMES):
            for way, seen in seconds.items():
                begun = time.perf_counter()
                run(count, way)
                seen.append(time.perf_counter() - begun)
        if typical(seconds[True]) >= typical(seconds[False]):
            break
        most = count
    return most


def _eps(norm: Any) -> float:
    found = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    if found is None:
        raise TypeError(f"{type(norm).__name__} says no eps")
    return float(found)


def _array(weight: Tensor) -> Any:
    if weight.dtype not in (torch.float32, torch.int8) or not weight.is_cpu:
        raise TypeError(f"{weight.dtype} weights on {weight.device}")
    return weight.detach().contiguous().numpy()


def _weights(part: Any) -> Any:
    return _array(part.qweight if isinstance(part, Int8Linear) else part.weight)


def _scales(part: Any) -> Any:
    if isinstance(part, Int8Linear):
        return part.scale.float().numpy()
    return ones(part.out_features)
