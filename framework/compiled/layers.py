"""Decoder layers of a lean forward as one compiled call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..linear import Int8Linear, typical
from .jit import threads
from .kernels import stack
from .products import ones

if TYPE_CHECKING:
    from ..lean import Pass

COUNTS = 1, 2, 4, 8, 16, 24
"""Tokens of a forward; with more, a library's products are as fast."""
TIMES = 5


class CompiledLayers:
    """Runs layers of a lean forward, whose weights it reads where they are.

    Args:
        layers: of one model, all of the same sizes.
        norm: the one behind the last of them.

    Raises:
        TypeError: for layers with other weights than float32 or int8 on a CPU, with biases, or that are not
            all alike.
    """

    def __init__(self, layers: Iterable[Any], norm: Any) -> None:
        own = list(layers)
        self._arrays = [_arrays(layer) for layer in own]  # what is read by address stays alive
        self._final = _array(norm.weight)
        eps = {_eps(one) for layer in own for one in (layer.before, layer.between)} | {_eps(norm)}
        kinds = {_kind(layer, arrays) for layer, arrays in zip(own, self._arrays, strict=True)}
        if len(eps) != 1 or len(kinds) != 1:
            raise TypeError("layers of different kinds")
        self._sizes, scale, kind = kinds.pop()
        self._eps, self._scale = np.float32(eps.pop()), np.float32(scale)
        self._like = np.empty(0, kind)
        self._parts = np.array([[one.ctypes.data for one in arrays] for arrays in self._arrays])

    def __call__(self, one: Pass, turns: tuple[Tensor, Tensor]) -> Tensor:
        """What comes in, what each layer gives, and the norm of the last one if that is asked:
        ``[layers + 1 or 2, rows, width, hidden]``.

        Args:
            turns: tables of cosines and sines, each ``[positions, head]``.
        """
        rows, width, size = one.hidden.shape
        states = one.hidden.new_empty(len(one.kept) + 1 + one.normed, rows * width, size)
        states[0] = one.hidden.reshape(rows * width, size)
        heads, head = self._sizes[2], self._sizes[3]
        caches = [one.caches[layer].room(one.hidden, heads, head) for layer in one.kept]
        stack(
            states.numpy(), np.array(one.kept), self._parts, self._like, self._sizes, self._eps,
            self._scale, (turns[0].numpy(), turns[1].numpy()), one.positions.reshape(-1).numpy(),
            one.caches[0].plan.index.contiguous().numpy(), _visible(one),
            np.array([[keys.data_ptr(), values.data_ptr()] for keys, values in caches]),
            (caches[0][0].shape[0], caches[0][0].shape[2]), self._final, threads(),
        )  # fmt: skip
        return states.view(-1, rows, width, size)


def _visible(one: Pass) -> Any:
    """``[rows, width, attended]``."""
    rows, width = one.positions.shape
    if one.mask is None:
        return np.ones((rows, width, one.caches[0].plan.bucket), np.bool_)
    return one.mask[:, 0].expand(rows, -1, -1).contiguous().numpy()


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


def _arrays(layer: Any) -> list[Any]:
    """Both norms, four weights, and their scales."""
    parts = [layer.qkv, layer.out, layer.gate_up, layer.down]
    if any(one.bias is not None for one in parts):
        raise TypeError("biases")
    norms = [_array(one.weight) for one in (layer.before, layer.between)]
    return [*norms, *map(_weights, parts), *map(_scales, parts)]


def _kind(layer: Any, arrays: Sequence[Any]) -> tuple[tuple[int, ...], float, Any]:
    """All sizes, what queries are multiplied by, and what weights are made of."""
    hidden, inner = arrays[0].shape[0], arrays[5].shape[1]
    kinds = {one.dtype for one in arrays[2:6]}
    if len(kinds) != 1:
        raise TypeError("weights of different kinds")
    return (hidden, layer.heads, layer.shared, layer.size, inner), layer.scale, kinds.pop()


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
