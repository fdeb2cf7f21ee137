"""Compiled kernels against the library's operations; whole layers in every shape of batch: tests/test_cache.py,
layouts ``compiled``."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from helpers import make_engine, random_prompts
from torch import Tensor
from torch.nn import functional

pytest.importorskip("numba")

from foredraft.drafters.builtin import QuantizedConfig  # noqa: E402
from foredraft.drafters.quantized import Quantized  # noqa: E402
from foredraft.framework import linear  # noqa: E402
from foredraft.framework.compiled import jit, kernels, layers  # noqa: E402
from foredraft.framework.compiled.products import ones, streamed, streamed_int8  # noqa: E402
from foredraft.framework.kernels import tune  # noqa: E402
from foredraft.framework.lean import Pass, lean_of  # noqa: E402
from foredraft.framework.linear import quantise_rows  # noqa: E402
from foredraft.framework.requests import Answer  # noqa: E402
from foredraft.framework.targets.causal_lm import CausalLM  # noqa: E402
from foredraft.framework.testing.tiny import tiny_model  # noqa: E402

CLOSE = {"atol": 2e-5, "rtol": 2e-5}
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 17)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """As many as torch has, if there are so many."""
    before, wanted = torch.get_num_threads(), int(request.param)
    torch.set_num_threads(wanted)
    try:
        if jit.threads() != wanted:
            pytest.skip("numba has no threads to share here")
        yield wanted
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("shape", [(1, 1), (7, 13), (33, 64), (130, 96)])
@pytest.mark.parametrize("rows", ROWS)
def test_a_product_of_any_shape(threads: int, shape: tuple[int, int], rows: int) -> None:
    torch.manual_seed(rows)
    x, weight, bias = torch.randn(rows, shape[1]), torch.randn(shape), torch.randn(shape[0])
    torch.testing.assert_close(streamed(x, weight, None), x @ weight.t(), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(
        streamed(x, weight, bias), functional.linear(x, weight, bias), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("rows", ROWS)
def test_a_product_of_int8_weights(threads: int, rows: int) -> None:
    torch.manual_seed(rows)
    x, (weight, scale) = torch.randn(rows, 48), quantise_rows(torch.randn(70, 48))
    due = x @ (weight.float() * scale.float()[:, None]).t()
    torch.testing.assert_close(streamed_int8(x, weight, scale), due, atol=1e-3, rtol=1e-4)


def test_the_threads_of_torch_stay_as_they_are() -> None:
    """numba's first parallel call sets them where both have the same OpenMP: in a process of its own."""
    code = (
        "import torch; torch.set_num_threads(1)\n"
        "from foredraft.framework.compiled.products import streamed\n"
        "streamed(torch.ones(1, 8), torch.ones(4, 8), None)\n"
        "assert torch.get_num_threads() == 1, torch.get_num_threads()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_threads_change_no_bit() -> None:
    x, weight, found = torch.randn(5, 64), torch.randn(99, 64), []
    for count in (1, 2, 3):
        y = torch.empty(5, 99)
        kernels.product(x.numpy(), weight.numpy(), ones(99), y.numpy(), count)
        found.append(y)
    assert all(torch.equal(one, found[0]) for one in found)


@pytest.mark.parametrize("rows", [1, linear.FEW, linear.FEW + 1, 2 * linear.FEW])
def test_an_int8_layer_is_float32_for_any_rows(rows: int) -> None:
    """So that a target of int8 says the same in a batch as alone: bfloat16 sums are off a thousand times more."""
    torch.manual_seed(rows)
    layer, x = linear.Int8Linear(torch.nn.Linear(64, 40), torch.float32), torch.randn(rows, 64)
    with torch.inference_mode():
        torch.testing.assert_close(layer(x), layer.widened()(x), **CLOSE)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_are_refused_so_that_they_are_not_chosen(dtype: torch.dtype) -> None:
    layer = torch.nn.Linear(8, 6).to(dtype).requires_grad_(False)
    with pytest.raises(TypeError, match="float32"):
        streamed(torch.randn(2, 8).to(dtype), layer.weight, None)
    assert streamed not in linear.usable(layer, torch.randn(2, 8).to(dtype))


def test_what_is_infinite_or_no_number_stays_so() -> None:
    """Sums may be reordered; that there is no infinity is not assumed."""
    x = torch.tensor([[1.0, torch.inf, 0.0], [torch.nan, 1.0, 1.0], [1.0, 1.0, 1.0]])
    y = streamed(x, torch.ones(4, 3), None)
    assert y[0].isinf().all() and y[1].isnan().all() and torch.equal(y[2], torch.full((4,), 3.0))


def test_exp_is_exp() -> None:
    x = np.concatenate([np.linspace(-87, 87, 20_001), [-1e9, -np.inf]]).astype(np.float32)
    found = np.array([kernels.exponential(one) for one in x])
    due = np.exp(np.maximum(x, -87).astype(np.float64))
    assert np.abs(found / due - 1).max() < 3e-7


def test_norm_and_gate_and_rotary() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, 32), torch.rand(32) + 0.5
    y = torch.empty(3, 32)
    kernels.norm(x.numpy(), weight.numpy(), np.float32(1e-5), y.numpy())
    torch.testing.assert_close(y, functional.rms_norm(x, (32,), weight, 1e-5), **CLOSE)
    both, inner = torch.randn(3, 20) * 30, torch.empty(3, 10)
    kernels.gated(both.numpy(), inner.numpy())
    torch.testing.assert_close(inner, functional.silu(both[:, :10]) * both[:, 10:], **CLOSE)


def seen(kind: str, rows: int, width: int, attended: int) -> Tensor:
    """``[rows, width, attended]``: a chain behind rows of different lengths, or anything at all."""
    if kind == "chain":
        ends = torch.arange(rows).unsqueeze(1) * 3 + torch.arange(width) + 2
        return torch.arange(attended) < ends.unsqueeze(-1)
    torch.manual_seed(1)
    visible = torch.rand(rows, width, attended) < 0.4
    visible[..., 0] = True
    return visible


@pytest.mark.parametrize("kind", ["chain", "tree"])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("rows, width", [(1, 1), (1, 5), (3, 4)])
def test_attention(threads: int, kind: str, heads: tuple[int, int], rows: int, width: int) -> None:
    torch.manual_seed(2)
    (queries, shared), size, attended = heads, 16, 21
    x = torch.randn(rows * width, (queries + 2 * shared) * size)
    keys, values = torch.randn(2, rows + 1, shared, attended + 4, size)
    visible, y = seen(kind, rows, width, attended), torch.empty(rows * width, queries * size)
    scale = np.float32(0.3)
    kernels.attention(
        x.numpy(), queries, scale, visible.numpy(), keys.numpy(), values.numpy(), y.numpy(), threads
    )
    asked = x[:, : queries * size].view(rows, width, queries, size).transpose(1, 2)
    due = functional.scaled_dot_product_attention(
        asked, keys[:rows, :, :attended], values[:rows, :, :attended],
        attn_mask=visible.unsqueeze(1), scale=0.3, enable_gqa=True,
    )  # fmt: skip
    torch.testing.assert_close(y, due.transpose(1, 2).reshape(rows * width, -1), **CLOSE)


def test_a_token_that_may_see_nothing_is_no_fault() -> None:
    """Padding: what it finds is never used, but must not be NaN, which would spread through the cache."""
    scores = np.array([1.0, 2.0], np.float32)
    kernels.weigh(scores, np.zeros(2, np.bool_))
    assert np.isfinite(scores).all()


def compiled(model: Any) -> Any:
    """Whatever was faster in this moment: for up to 24 tokens."""
    lean = lean_of(model)
    assert lean is not None and lean._compiled is not None
    lean._most = layers.COUNTS[-1]
    return model


def test_decoding_with_it_gives_the_models_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = layers.CompiledLayers.__call__

    def counted(self: layers.CompiledLayers, one: Pass, *args: Any) -> Tensor:
        calls.append(one.hidden.shape[1])
        return real(self, one, *args)

    monkeypatch.setattr(layers.CompiledLayers, "__call__", counted)
    plain = tiny_model("llama", dtype=torch.float32)
    found = []
    for model in (plain, compiled(tune(copy.deepcopy(plain)))):
        calls.clear()
        target = CausalLM(model)
        for drafter in (None, Quantized(QuantizedConfig(), target)):
            engine = make_engine(target, drafter, 3)
            prompts = random_prompts((3, 9, 1))
            rows = [Answer(engine.request(p, i, max_new_tokens=20)) for i, p in enumerate(prompts)]
            for _ in engine.run(rows):
                pass
            found.append([row.token_ids for row in rows])
        assert 4 in calls  # three drafts and the newest token
    assert all(one == found[0] for one in found)


def test_a_layer_with_biases_or_of_another_dtype_is_left_to_the_library() -> None:
    for options in ({"attention_bias": True, "dtype": torch.float32}, {"dtype": torch.float64}):
        lean = lean_of(tune(tiny_model("llama", **options)))
        assert lean is not None and lean._compiled is None


def test_it_is_used_for_so_many_tokens_as_it_is_faster_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]

    class Clock:
        perf_counter = staticmethod(lambda: now[0])

    def run(count: int, way: bool) -> None:
        now[0] += count if way else 6

    monkeypatch.setattr(layers, "time", Clock)
    assert layers.largest_gain(run) == 4
    assert layers.largest_gain(lambda count, way: run(9, way)) == 0
