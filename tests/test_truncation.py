"""Truncation against transformers' warpers, bit by bit: ties, zeros and masses that meet p."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from transformers import (
    MinPLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from foredraft.framework import truncation
from foredraft.framework.truncation import min_p, top_k, top_p, typical_p

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
# Always sorted; one selection, then a sort; two selections, then a sort.
VOCABS = pytest.mark.parametrize("vocab", [50, 5_000, 17_000])
SHARES = [1e-9, 1e-3, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.999, 1 - 1e-6, 1 - 1e-9, 1.0]
COUNTS = [1, 2, 7, 40, 300, 10**6, 0]
_sort = torch.sort


def warped(warper: Any, scores: Tensor) -> Tensor:
    """transformers' rule, with the stable sort that it leaves open."""

    def stable(values: Tensor, descending: bool = False) -> Any:
        return _sort(values, dim=-1, descending=descending, stable=True)

    with mock.patch.object(torch, "sort", stable):
        return warper(None, scores)  # type: ignore[no-any-return]


def tables(vocab: int, dtype: torch.dtype) -> Tensor:
    """Laws of every kind, ``[kinds, vocab]``: see the names."""
    rank = torch.randperm(vocab, dtype=dtype) + 1
    noise = torch.randn(vocab, dtype=dtype)
    peaked, half = -1.6 * rank.log() + noise, torch.arange(vocab) % 2 == 0
    kinds = {
        "peaked": peaked,
        "very peaked": peaked * 5,
        "of a small model": -1.1 * rank.log() + noise,
        "flat": noise * 0.1,
        "normal": noise * 2,
        "constant": torch.zeros(vocab, dtype=dtype),
        "peaked, many ties": (peaked * 2).round() / 2,
        "flat, many ties": (noise * 2).round() / 2,
        "as from bfloat16": peaked.bfloat16().to(dtype),
        "halves": -(rank.clamp(max=60) - 1) * math.log(2),
        "ties at the top": peaked.clamp(max=float(peaked.topk(5).values[-1])),
        "zeros": peaked.masked_fill(half, -math.inf),
        "eight alike, the rest zero": torch.where(rank > 8, -math.inf, 0.0).to(dtype),
        "one only": peaked.masked_fill(rank > 1, -math.inf),
        "underflow": peaked.masked_fill(half & (rank > 2), -800.0),
    }
    return torch.stack(list(kinds.values()))


def rows_of(vocab: int, dtype: torch.dtype, values: list[Any]) -> tuple[Tensor, list[Any], Tensor]:
    """Every table with every value: scores, the value of each row, the values as a column."""
    laws = tables(vocab, dtype)
    each = [value for value in values for _ in laws]
    kind = torch.int64 if type(values[0]) is int else torch.float64
    return laws.repeat(len(values), 1), each, torch.tensor(each, dtype=kind)[:, None]


def check(
    ours: Tensor, scores: Tensor, values: list[Any], warper: Callable[[Any], Any], off: float
) -> None:
    """Every row as transformers has it alone; rows that are off untouched."""
    for row, value in enumerate(values):
        one = scores[row : row + 1]
        due = one if value == off else warped(warper(value), one)
        assert torch.equal(ours[row : row + 1], due), (row, value)


@VOCABS
@DTYPES
def test_top_k(dtype: torch.dtype, vocab: int) -> None:
    scores, values, k = rows_of(vocab, dtype, COUNTS)
    check(top_k(scores, k, 10**6), scores, values, TopKLogitsWarper, 0)


@VOCABS
@DTYPES
def test_top_p(dtype: torch.dtype, vocab: int) -> None:
    scores, values, p = rows_of(vocab, dtype, SHARES)
    check(top_p(scores, p), scores, values, TopPLogitsWarper, 1)


@VOCABS
@DTYPES
def test_min_p(dtype: torch.dtype, vocab: int) -> None:
    scores, values, p = rows_of(vocab, dtype, [0.0, *SHARES])
    check(min_p(scores, p), scores, values, MinPLogitsWarper, 0)


@VOCABS
@DTYPES
def test_typical_p(dtype: torch.dtype, vocab: int) -> None:
    scores, values, mass = rows_of(vocab, dtype, SHARES)
    check(typical_p(scores, mass), scores, values, TypicalLogitsWarper, 1)


@DTYPES
def test_many_random_laws(dtype: torch.dtype) -> None:
    """Boundaries fall anywhere; the nearest ones must be noticed and sorted."""
    spread = torch.rand(400, 1, dtype=dtype) * 4
    scores = torch.randn(400, 3_000, dtype=dtype) * spread
    values = torch.rand(400).double().tolist()
    ours = top_p(scores, torch.tensor(values, dtype=torch.float64)[:, None])
    check(ours, scores, values, TopPLogitsWarper, 1)


@DTYPES
def test_a_mass_that_meets_p_exactly(dtype: torch.dtype) -> None:
    """Of 128 alike p = 1/2 keeps the 64 with the highest ids, though a selection would do."""
    scores = torch.full((1, 6_000), -math.inf, dtype=dtype)
    scores[0, 100:1380:10] = 0.0
    for share, kept in ((0.5, 64), (0.5 + 1e-6, 65), (0.5 - 1e-6, 64), (1 / 128, 1), (1e-9, 1)):
        ours = top_p(scores, torch.tensor([[share]], dtype=torch.float64))
        assert torch.equal(ours, warped(TopPLogitsWarper(share), scores))
        assert (ours[0] == 0).nonzero()[:, 0].tolist() == list(range(100, 1380, 10))[-kept:]


# --- the four together --------------------------------------------------------------------------

MIXED: list[tuple[int, float, float, float]] = [
    (0, 1.0, 0.0, 1.0), (20, 0.9, 0.0, 1.0), (300, 0.95, 0.01, 0.9), (0, 0.8, 0.05, 1.0),
    (0, 1.0, 0.1, 0.5), (1, 0.5, 1.0, 0.2), (50, 1.0, 0.0, 0.95), (7, 0.999, 0.0, 1.0),
]  # fmt: skip


def chain(scores: Tensor, k: int, p: float, least: float, mass: float) -> Tensor:
    """transformers' order."""
    warpers: list[Any] = [TopKLogitsWarper(k)] if k else []
    warpers += [TopPLogitsWarper(p)] if p < 1 else []
    warpers += [MinPLogitsWarper(least)] if least else []
    warpers += [TypicalLogitsWarper(mass)] if mass < 1 else []
    for warper in warpers:
        scores = warped(warper, scores)
    return scores


def ours_of(scores: Tensor, settings: list[tuple[int, float, float, float]]) -> Tensor:
    k, p, least, mass = (list(column) for column in zip(*settings, strict=True))
    shape = (len(settings),) + (1,) * (scores.dim() - 1)
    nucleus = [one[0] for one in settings if one[1] < 1]

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64).view(shape)

    scores = top_k(scores, torch.tensor(k).view(shape), max(k)) if max(k) else scores
    scores = top_p(scores, column(p), max(nucleus) if nucleus and all(nucleus) else 0)
    return typical_p(min_p(scores, column(least)), column(mass))


@VOCABS
@DTYPES
def test_rows_of_mixed_settings(dtype: torch.dtype, vocab: int) -> None:
    laws = tables(vocab, dtype)
    scores = laws.expand(len(MIXED), *laws.shape)  # [batch, width, vocab]
    for settings in (MIXED, [one for one in MIXED if one[0]]):
        ours = ours_of(scores[: len(settings)], settings)
        for row, one in enumerate(settings):
            due = chain(laws, *one)
            assert torch.equal(ours[row], due), one
            assert torch.equal(ours[row].softmax(-1) > 0, due.softmax(-1) > 0)


def test_nothing_is_written_into_the_scores() -> None:
    scores = tables(5_000, torch.float32)[None]
    before = scores.clone()
    ours_of(scores, [(20, 0.9, 0.1, 0.9)])
    ours_of(scores, [(0, 0.9, 0.1, 0.9)])
    assert torch.equal(scores, before)


def test_rows_without_a_law_stay_without_one() -> None:
    scores = torch.randn(3, 5_000).expand(3, 3, -1).clone()
    scores[0, 1, 7], scores[1], scores[2, 0] = math.nan, -math.inf, math.inf
    law = ours_of(scores, [(0, 0.9, 0.1, 0.9), (20, 0.9, 0.1, 1.0), (0, 1.0, 0.1, 0.9)]).softmax(-1)
    bad = torch.tensor([[0, 1, 0], [1, 1, 1], [1, 0, 0]]).bool()
    assert torch.equal(law.isnan().any(-1), bad)
    assert torch.equal(law.isnan().all(-1), bad)


# --- the way taken ------------------------------------------------------------------------------


@pytest.fixture
def sorted_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each full sort had."""
    seen: list[int] = []
    real = truncation._sorted_nucleus

    def counted(scores: Tensor, left: Tensor) -> Tensor:
        seen.append(len(scores))
        return real(scores, left)

    monkeypatch.setattr(truncation, "_sorted_nucleus", counted)
    return seen


def peaked(rows: int, vocab: int) -> Tensor:
    rank = torch.stack([torch.randperm(vocab) for _ in range(rows)]) + 1.0
    return -1.6 * rank.log() + torch.randn(rows, vocab) * 0.1


def test_only_rows_that_no_selection_settles_are_sorted(sorted_rows: list[int]) -> None:
    scores = peaked(12, 17_000)
    scores[3] *= 0.01
    p = torch.full((12, 1), 0.9, dtype=torch.float64)
    top_p(scores, p)
    assert sorted_rows == [1]
    p[3], p[4] = 1.0, 1e-12
    top_p(scores, p)
    assert sorted_rows == [1]


def test_after_top_k_no_row_is_sorted(sorted_rows: list[int]) -> None:
    k, p = torch.full((6, 1), 600), torch.full((6, 1), 0.999, dtype=torch.float64)
    scores = top_k(peaked(6, 5_000) * 0.1, k, 600)
    top_p(scores, p, 600)
    assert sorted_rows == []
    top_p(scores, p)  # without the promise: a selection of 256 is too short
    assert sorted_rows == [6]


def test_ties_with_the_kth_that_a_selection_misses(sorted_rows: list[int]) -> None:
    scores = torch.zeros(1, 5_000)
    scores[0, :3] = torch.tensor([3.0, 2.0, 1.0])
    top = top_k(scores, torch.tensor([[4]]), 4)
    assert torch.equal(top, scores)
    ours = top_p(top, torch.tensor([[0.5]], dtype=torch.float64), 4)
    assert torch.equal(ours, warped(TopPLogitsWarper(0.5), scores))
    assert sorted_rows == [1]


@pytest.mark.parametrize("vocab", [50, 5_000])
def test_a_device_reads_nothing_and_keeps_the_same(
    vocab: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    laws = tables(vocab, torch.float64)
    scores = laws.expand(len(MIXED), *laws.shape)
    due = ours_of(scores, MIXED)
    if vocab >= truncation.SMALL:  # there the CPU reads
        monkeypatch.setattr(truncation, "_reads_pay", lambda scores: False)
    for name in ("nonzero", "__bool__", "item", "tolist"):
        monkeypatch.setattr(Tensor, name, mock.Mock(side_effect=AssertionError(name)))
    ours = ours_of(scores, MIXED)
    monkeypatch.undo()
    assert torch.equal(ours, due)


def test_each_row_is_kept_as_it_is_alone() -> None:
    scores, p = peaked(8, 17_000), torch.linspace(0.3, 1, 8, dtype=torch.float64)[:, None]
    together = top_p(scores, p)
    for row in range(8):
        assert torch.equal(together[row], top_p(scores[row : row + 1], p[row : row + 1])[0])
