"""The small-width and int8 linear layers against the plain product."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from foredraft.framework.linear import (
    PRODUCTS,
    Int8Linear,
    Product,
    SmallWidthLinear,
    quantise_rows,
    quantize_int8,
    speed_up_linears,
)

TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-4, torch.bfloat16: 0.15}


class Tied(nn.Module):
    """An embedding, two layers, a norm and a head that shares the embedding matrix."""

    def __init__(self, width: int = 64, vocab: int = 96) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.up = nn.Linear(width, 128)
        self.down = nn.Linear(128, width, bias=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("table", torch.arange(4.0))

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.embed(ids)
        hidden = self.norm(hidden + self.down(torch.relu(self.up(hidden))))
        logits: Tensor = self.head(hidden)
        return logits


@pytest.fixture
def model() -> Tied:
    torch.manual_seed(0)
    return Tied().eval()


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(48, 32), (7, 13), (130, 64)])
def test_every_product_equals_the_plain_one(
    product: Product, bias: bool, shape: tuple[int, int]
) -> None:
    torch.manual_seed(1)
    weight, b = torch.randn(shape), torch.randn(shape[0]) if bias else None
    for rows in (1, 2, 3, 5, 8, 17):
        x = torch.randn(rows, shape[1])
        try:
            y = product(x, weight, b)
        except (RuntimeError, AttributeError):
            pytest.skip("not built here")
        torch.testing.assert_close(y, F.linear(x, weight, b), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("bias", [True, False])
def test_swapped_layer_equals_plain_for_any_batch_shape(dtype: torch.dtype, bias: bool) -> None:
    torch.manual_seed(2)
    plain = nn.Linear(40, 24, bias=bias).to(dtype)
    swapped = copy.deepcopy(plain)
    assert speed_up_linears(swapped, widths=(1, 3, 8), seconds=0.0).layers == 1
    assert type(swapped) is SmallWidthLinear
    for lead in ((), (1,), (3,), (2, 3), (2, 2, 2), (40,), (0,), (2, 0)):
        x = torch.randn(*lead, 40).to(dtype)
        with torch.inference_mode():
            y, expected = swapped(x), plain(x)
        assert y.shape == expected.shape and y.dtype == dtype and y.is_contiguous()
        torch.testing.assert_close(y, expected, atol=TOLERANCE[dtype], rtol=1e-4)


def test_swapped_layer_takes_strided_input() -> None:
    plain = nn.Linear(8, 6)
    swapped = copy.deepcopy(plain)
    speed_up_linears(swapped, widths=(4,), seconds=0.0)
    x = torch.randn(8, 4).t()
    with torch.inference_mode():
        torch.testing.assert_close(swapped(x), plain(x))


def test_swap_keeps_parameters_ties_and_state_dict(model: Tied) -> None:
    keys, parameters = list(model.state_dict()), dict(model.named_parameters())
    ids = torch.arange(10).view(2, 5)
    with torch.inference_mode():
        before = model(ids)
        report = speed_up_linears(model, widths=(1, 12), seconds=0.0)
        after = model(ids)
    assert report.layers == 3 and report.choices.keys() == {(128, 64), (64, 128), (96, 64)}
    assert list(model.state_dict()) == keys and model.head.weight is model.embed.weight
    assert all(p is parameters[name] for name, p in model.named_parameters())
    torch.testing.assert_close(before, after, atol=1e-4, rtol=1e-4)


def test_swap_follows_weights_changed_later(model: Tied) -> None:
    speed_up_linears(model, widths=(4,), seconds=0.0)
    with torch.inference_mode():
        model.embed.weight.mul_(2)
        x = torch.randn(3, 64)
        torch.testing.assert_close(model.head(x), F.linear(x, model.embed.weight))


def test_swap_is_idempotent_and_a_copy_of_it_works(model: Tied) -> None:
    speed_up_linears(model, widths=(4,), seconds=0.0)
    assert speed_up_linears(model, widths=(4,), seconds=0.0).layers == 0
    twin, x = copy.deepcopy(model), torch.randn(2, 64)
    with torch.inference_mode():
        torch.testing.assert_close(twin.up(x), model.up(x))
    assert twin.head.weight is twin.embed.weight is not model.embed.weight


def test_swap_without_plain_cpu_linears_does_nothing() -> None:
    for model in (nn.Sequential(nn.ReLU()), nn.Linear(4, 4, device="meta")):
        kind = type(model)
        assert speed_up_linears(model).layers == 0 and type(model) is kind


def test_gradients_pass_through_a_swapped_layer() -> None:
    layer = nn.Linear(8, 4)
    speed_up_linears(layer, widths=(4,), seconds=0.0)
    layer(torch.randn(2, 8)).sum().backward()
    assert layer.weight.grad is not None


def test_dtype_change_after_the_swap_falls_back() -> None:
    layer = nn.Linear(8, 4)
    speed_up_linears(layer, widths=(4,), seconds=0.0)
    with torch.inference_mode():
        assert layer.double()(torch.randn(2, 8).double()).dtype == torch.float64


@pytest.mark.parametrize("shape", [(48, 32), (7, 64), (9, 13), (33, 96), (5, 16)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_int8_equals_its_dequantised_reference(
    shape: tuple[int, int], bias: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(3)
    layer = Int8Linear(nn.Linear(shape[1], shape[0], bias=bias), dtype)
    weight = layer.qweight.double() * layer.scale.double()[:, None]
    for lead in ((1,), (3,), (2, 2), (0,)):
        x = torch.randn(*lead, shape[1]).bfloat16().to(dtype)
        reference = F.linear(
            x.double(), weight, None if layer.bias is None else layer.bias.double()
        )
        y = layer(x)
        assert y.shape == reference.shape and y.dtype == dtype
        torch.testing.assert_close(y.double(), reference, atol=0.03, rtol=0.03)


def test_quantisation_error_is_bounded_and_zero_rows_stay_zero() -> None:
    torch.manual_seed(4)
    weight = torch.randn(16, 32) * torch.logspace(-4, 2, 16)[:, None]
    weight[5] = 0
    qweight, scale = quantise_rows(weight)
    restored = qweight.float() * scale.float()[:, None]
    bound = scale.float()[:, None] / 2 + weight.abs() * 2**-8
    assert bool(((restored - weight).abs() <= bound + 1e-9).all())
    assert qweight.dtype == torch.int8 and int(qweight[5].abs().max()) == 0
    assert bool(scale.isfinite().all()) and float(scale[5]) == 1.0


@pytest.mark.parametrize("sped_up", [True, False])
def test_quantised_model_is_new_and_the_original_untouched(model: Tied, sped_up: bool) -> None:
    if sped_up:
        speed_up_linears(model, widths=(4,), seconds=0.0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    quantised = quantize_int8(model)
    assert isinstance(quantised, Tied) and not any(
        isinstance(m, nn.Linear) for m in quantised.modules()
    )
    for name, value in model.state_dict().items():
        assert value.dtype == torch.float32 and torch.equal(value, before[name])
    assert quantised.embed.weight.dtype == torch.bfloat16 and not quantised.training
    assert quantised.table.dtype == torch.float32 and model.head.weight is model.embed.weight
    ids = torch.arange(10).view(2, 5)
    with torch.inference_mode():
        torch.testing.assert_close(quantised(ids).float(), model(ids), atol=0.6, rtol=0.1)


def test_models_without_linears_are_copied() -> None:
    model = nn.Sequential(nn.LayerNorm(4))
    quantised = quantize_int8(model)
    assert quantised is not model and quantised[0].weight.dtype == torch.bfloat16  # type: ignore
