"""Linear layers for small widths on a CPU: the same maths faster, and an int8 copy.

A verification step multiplies every weight by 1 to 12 rows, where the library's operand order
is slow on many CPUs: the fastest equal product is measured per shape and row count.
"""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Product = Callable[[Tensor, Tensor, Any], Tensor]
Shape = tuple[int, int, bool, torch.dtype]
DEFAULT_WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32)
MEASURED_WEIGHTS = 6  # distinct weights per shape, so that the timing is not all cache hits
FEW = (
    64  # rows whose int8 product is compiled; with more, float weights made on the way are as fast
)
HOPELESS = 1.5  # times the best one's seconds: products that are not timed again


def plain(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the library's own product: ``(rows, in) -> (rows, out)``."""
    return F.linear(x, weight, bias)


def weight_first(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``(rows, out)``, the large operand on the left; a transposed result slows the next."""
    y = torch.mm(weight, x.t()).t().contiguous()
    return y if bias is None else y.add_(bias)


def paired(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``(rows, out)``, every row multiplied twice: two rows share what is read of the weights better
    than the library's product with a single vector does."""
    y = torch.mm(weight, x.repeat(2, 1).t())[:, : len(x)].t().contiguous()
    return y if bias is None else y.add_(bias)


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``(rows, out)`` from oneDNN, often best for one row and for more than eight."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return y


PRODUCTS: tuple[Product, ...] = (plain, weight_first, paired, onednn)


def products() -> tuple[Product, ...]:
    """Those of the library, and with the extra ``cpu`` a compiled one."""
    try:
        from .compiled.products import streamed
    except ImportError:  # no numba, or none for this numpy
        return PRODUCTS
    return (*PRODUCTS, streamed)


@functools.cache
def compiled_int8() -> Product | None:
    """The same for int8 weights, whose third argument is their scales."""
    try:
        from .compiled.products import streamed_int8
    except ImportError:
        return None
    return streamed_int8


@dataclass(frozen=True)
class WidthPlan:
    """For one weight shape, ``products[r]`` serves ``r`` rows; more rows get the plain one."""

    dtype: torch.dtype
    products: tuple[Product, ...] = (plain,)


@dataclass(frozen=True)
class LinearReport:
    """Layers replaced, seconds spent measuring, product names by (out, in) and width."""

    layers: int
    seconds: float
    choices: dict[tuple[int, int], dict[int, str]]


class SmallWidthLinear(nn.Linear):
    """A linear layer that looks up its product by the number of input rows.

    Results equal the plain layer's within rounding. Under autograd it is the plain layer.
    """

    plan: WidthPlan | None = None

    def forward(self, input: Tensor) -> Tensor:
        """Map ``(..., in)`` to ``(..., out)``."""
        plan, weight = self.plan, self.weight
        rows = input.numel() // self.in_features
        if plan is None or not 0 < rows < len(plan.products) or not input.is_cpu:
            return F.linear(input, weight, self.bias)
        if torch.is_grad_enabled() or not input.dtype == weight.dtype == plan.dtype:
            return F.linear(input, weight, self.bias)
        flat = input.reshape(rows, self.in_features).contiguous()
        y = plan.products[rows](flat, weight, self.bias)
        return y.view(*input.shape[:-1], self.out_features)


def usable(layer: nn.Linear, x: Tensor) -> list[Product]:
    """Return the products that run here and agree with the plain one on ``x`` (rows, in)."""
    expected, kept = plain(x, layer.weight, layer.bias), [PRODUCTS[0]]
    limit = 64 * torch.finfo(x.dtype).eps * max(1.0, float(expected.abs().max()))
    for product in products()[1:]:
        try:
            y = product(x, layer.weight, layer.bias)
        except (RuntimeError, AttributeError, TypeError):  # not for this dtype or machine
            continue
        if float((y - expected).abs().max()) <= limit:
            kept.append(product)
    return kept


def seconds_for(product: Product, layer: nn.Linear, x: Tensor) -> float:
    """Time one product of ``x`` (rows, in) with the weight of ``layer``."""
    start = time.perf_counter()
    product(x, layer.weight, layer.bias)
    return time.perf_counter() - start


def fastest(layers: Sequence[nn.Linear], rows: int, budget: float) -> Product:
    """Return the best product, weights visited cold."""
    own = torch.Generator().manual_seed(rows)  # the caller's generator is not ours to move
    x = torch.randn(rows, layers[0].in_features, generator=own).to(layers[0].weight.dtype)
    times: dict[Product, list[float]] = {product: [] for product in usable(layers[0], x)}
    start = time.perf_counter()
    for _ in range(20):
        for product, seen in times.items():
            seen += [seconds_for(product, layer, x) for layer in layers]
        if time.perf_counter() - start > budget:
            break
        least = min(map(typical, times.values()))
        times = {one: seen for one, seen in times.items() if typical(seen) < HOPELESS * least}
    return min(times, key=lambda product: typical(times[product]))


def typical(seconds: list[float]) -> float:
    """The lower quartile: load only adds time."""
    return sorted(seconds)[len(seconds) // 4]


def measured_plan(layers: Sequence[nn.Linear], widths: Sequence[int], budget: float) -> WidthPlan:
    """Measure one shape; a width between two measured ones takes the larger one's product."""
    products: list[Product] = [plain]
    for width in sorted(set(widths)):
        chosen = fastest(layers, width, budget / len(widths))
        products += [chosen] * (width + 1 - len(products))
    return WidthPlan(layers[0].weight.dtype, tuple(products))


@torch.inference_mode()
def speed_up_linears(
    model: nn.Module, widths: Sequence[int] = DEFAULT_WIDTHS, seconds: float = 2.0
) -> LinearReport:
    """Swap every ``nn.Linear`` on the CPU for its fastest equal, in place and without copies.

    Modules change class rather than identity, so hooks, ties and state dicts survive. Layers
    elsewhere, and subclasses with a forward of their own, are left alone.
    """
    start, groups = time.perf_counter(), dict[Shape, list[nn.Linear]]()
    for m in model.modules():
        if type(m) is nn.Linear and m.weight.is_cpu and m.weight.is_floating_point():
            key = (m.out_features, m.in_features, m.bias is not None, m.weight.dtype)
            groups.setdefault(key, []).append(m)
    choices: dict[tuple[int, int], dict[int, str]] = {}
    for key, layers in groups.items():
        plan = measured_plan(layers[:MEASURED_WEIGHTS], widths, seconds / len(groups))
        for layer in layers:
            object.__setattr__(layer, "__class__", SmallWidthLinear)
            object.__setattr__(layer, "plan", plan)
        choices[key[:2]] = {w: plan.products[w].__name__ for w in sorted(set(widths))}
    return LinearReport(sum(map(len, groups.values())), time.perf_counter() - start, choices)


class Int8Linear(nn.Module):
    """A layer with int8 weights, one scale per output: fewer bytes to read, and another model.

    Float32 rows stay float32 with the extra ``cpu``; without it, and in other dtypes, sums are of bfloat16.
    """

    qweight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear, dtype: torch.dtype = torch.bfloat16) -> None:
        """Quantise ``linear.weight`` (out, in), which is only read."""
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        qweight, scale = quantise_rows(linear.weight.detach())
        self.register_buffer("qweight", qweight)
        self.register_buffer("scale", scale)
        bias = None if linear.bias is None else linear.bias.detach().to(dtype)
        self.register_buffer("bias", bias)

    def widened(self) -> nn.Linear:
        """A float32 layer of the same weights."""
        layer = nn.Linear(self.in_features, self.out_features, self.bias is not None, device="meta")
        weight = self.qweight.float() * self.scale.float()[:, None]
        layer.weight = nn.Parameter(weight, requires_grad=False)
        if self.bias is not None:
            layer.bias = nn.Parameter(self.bias.float(), requires_grad=False)
        return layer

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., in)`` to ``(..., out)`` in the dtype of ``x``; the kernel steps by 32."""
        packed = x.is_cpu and self.in_features % 32 == 0 and x.numel() > 0
        if not packed or not hasattr(torch, "_weight_int8pack_mm"):
            weight = self.qweight.to(x.dtype) * self.scale.to(x.dtype)[:, None]
            return F.linear(x, weight, self.bias)
        flat = x.reshape(-1, self.in_features).contiguous()
        y = self._product(flat).view(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias

    def _product(self, flat: Tensor) -> Tensor:
        """``(rows, in)`` to ``(rows, out)``: in float32 where that is no slower."""
        streamed = compiled_int8()
        if flat.dtype == torch.float32 and streamed and not torch.is_grad_enabled():
            if len(flat) <= FEW:
                return streamed(flat, self.qweight, self.scale)
            return F.linear(flat, self.qweight.float()).mul_(self.scale.float())
        return torch._weight_int8pack_mm(flat.bfloat16(), self.qweight, self.scale).to(flat.dtype)


def rounding(model: nn.Module, dtype: torch.dtype) -> float:
    """The relative step that a model's sums are rounded to."""
    coarse = any(isinstance(part, Int8Linear) for part in model.modules())
    coarse &= dtype != torch.float32 or compiled_int8() is None
    return torch.finfo(torch.bfloat16 if coarse else dtype).eps


def joined_int8(layers: Sequence[Int8Linear]) -> Int8Linear:
    """One layer for several with the same input, whose weights become views of its own."""
    whole = copy.copy(layers[0])
    whole._buffers = dict(whole._buffers)
    whole.out_features = sum(layer.out_features for layer in layers)
    for name in ("qweight", "scale", "bias"):
        if getattr(layers[0], name) is None:
            continue
        joined = torch.cat([getattr(layer, name) for layer in layers])
        parts = torch.split(joined, [layer.out_features for layer in layers])
        for layer, part in zip(layers, parts, strict=True):
            setattr(layer, name, part)
        setattr(whole, name, joined)
    return whole


def quantise_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 ``(out, in)``, bfloat16 scales ``(out,)`` (a zero row: 1), divided as stored."""
    top = weight.abs().amax(dim=1).float() / 127
    scale = torch.where(top > 0, top, torch.ones_like(top)).to(torch.bfloat16)
    rounded = (weight.float() / scale.float()[:, None]).round_().clamp_(-127, 127)
    return rounded.to(torch.int8), scale


def quantize_int8(model: nn.Module, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    """Return a new model with int8 linear layers and every other parameter in ``dtype``.

    The copy's memo is filled first, so no float weight is ever duplicated. Buffers (rotary
    frequencies) keep their dtype, and the original is untouched.
    """
    memo: dict[int, object] = {}
    for m in model.modules():
        if isinstance(m, nn.Linear):
            memo[id(m)] = Int8Linear(m, dtype).train(m.training)
            continue
        for p in m.parameters(recurse=False):
            memo.setdefault(id(p), nn.Parameter(p.detach().to(dtype, copy=True), False))
    return copy.deepcopy(model, memo)
