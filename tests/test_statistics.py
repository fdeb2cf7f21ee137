"""P-values by hand."""

from __future__ import annotations

import math

import pytest
import torch

from foredraft.framework.testing.statistics import count_p_value, uniform_p_value


def test_counts_of_two_cells_are_a_normal_deviation() -> None:
    # 60 heads in 100: 2 standard deviations, both sides.
    found = count_p_value(torch.tensor([60, 40]), torch.tensor([50.0, 50]))
    assert found == pytest.approx(math.erfc(2 / math.sqrt(2)))


def test_small_cells_are_pooled_and_impossible_ones_refused() -> None:
    pooled = count_p_value(torch.tensor([60, 30, 6, 4]), torch.tensor([60.0, 30, 4, 6]))
    # Without a pool of 4 and 6: the cell of 6 is large enough and stays, that of 4 is pooled alone.
    assert pooled == pytest.approx(math.exp(-(1 + 2 / 3) / 2) * _three(1 + 2 / 3))
    assert count_p_value(torch.tensor([3, 1]), torch.tensor([4.0, 0])) == 0


def _three(x: float) -> float:
    """What the chi-square tail of three degrees has beside exp(-x / 2)."""
    return math.exp(x / 2) * math.erfc(math.sqrt(x / 2)) + math.sqrt(2 * x / math.pi)


def test_an_even_grid_is_uniform_and_a_moved_one_is_not() -> None:
    grid = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    assert uniform_p_value(grid) > 0.999
    # The largest distance is .043: Kolmogorov's law gives 2 exp(-2 n D^2).
    moved = (grid + 0.0425).clamp(max=1)
    assert uniform_p_value(moved) == pytest.approx(2 * math.exp(-2 * 1000 * 0.043**2), rel=0.05)
