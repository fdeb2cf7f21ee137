"""Intervals hold what they claim, by simulation and by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import binom, t

from foredraft.framework.bench.choosing import halves
from foredraft.framework.bench.interval import Interval
from foredraft.framework.bench.stats import Ratios, geometric, geometric_family, welch

TRUTH = 0.4  # log speed-up of the simulated cells
CHANCE = 1e-3  # of a false alarm of each test below


def noisy(units: int, series: int, seed: int = 0, truth: float = TRUTH) -> np.ndarray:
    """Log-ratios of units: a normal part, and a skewed one of half its size, as few prompts on which
    drafts go very well bring it about."""
    rng = np.random.default_rng(seed)
    skewed = rng.exponential(0.05, (units, series)) - 0.05
    return np.asarray(truth + rng.normal(0, 0.1, (units, series)) + skewed)


def covered(intervals: Sequence[Interval], truth: float) -> int:
    return sum(i.bounds is not None and i.bounds[0] <= truth <= i.bounds[1] for i in intervals)


def fits(hits: int, tries: int, level: float = 0.95) -> bool:
    """Whether so many hits are likely, on either side, when each has the chance ``level``."""
    low, high = binom.cdf(hits, tries, level), binom.sf(hits - 1, tries, level)
    return bool(low > CHANCE and high > CHANCE)


@pytest.mark.parametrize(("units", "tries"), [(8, 2000), (24, 2000), (48, 400), (96, 400)])
def test_the_interval_of_a_speedup_covers_it(units: int, tries: int) -> None:
    found = Ratios(noisy(units, tries), draws=2000).intervals()
    assert {i.how for i in found} == {"bootstrap-t" if units >= 48 else "t"}
    assert fits(covered(found, TRUTH), tries)


@pytest.mark.parametrize(("units", "tries"), [(8, 2000), (24, 2000), (48, 400)])
def test_the_interval_of_a_ratio_of_totals_covers_it(units: int, tries: int) -> None:
    rng = np.random.default_rng(1)
    cell = np.exp(rng.normal(0, 0.3, (units, tries)))
    factor = np.exp(TRUTH + rng.normal(0, 0.1, cell.shape))
    truth = math.exp(
        TRUTH + 0.1**2 / 2
    )  # the mean factor, for it does not depend on the cell's time
    found = Ratios(factor * cell, cell, log=True, draws=2000).intervals()
    hits = covered(found, truth)
    assert fits(hits, tries, 0.945)  # linearised: a little narrow for few units


def test_a_percentile_bootstrap_would_claim_too_much_of_eight_units() -> None:
    logs, rng = noisy(8, 400), np.random.default_rng(2)
    means = np.stack([logs[rng.integers(0, 8, 8)].mean(0) for _ in range(1000)])
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    hits = int(((low <= TRUTH) & (high >= TRUTH)).sum())
    assert not fits(hits, 400) and hits < 0.92 * 400


@pytest.mark.parametrize(("units", "tries"), [(8, 400), (24, 400), (48, 100)])
def test_any_of_24_cells_without_a_difference_is_called_one_in_5_of_100_grids(
    units: int, tries: int
) -> None:
    alarms = 0
    for seed in range(tries):
        shared = np.random.default_rng([seed]).normal(0, 0.05, (units, 1))
        logs = shared + noisy(units, 24, seed, truth=0)
        alarms += any(i.differs(0) for i in Ratios(logs, draws=2000).simultaneous())
    assert binom.sf(alarms - 1, tries, 0.05) > CHANCE


def test_one_by_one_24_cells_alarm_in_most_grids() -> None:
    # What the test above would see if the family-wise error were not held.
    grids = [Ratios(noisy(8, 24, seed, truth=0)).intervals() for seed in range(100)]
    assert sum(any(i.differs(0) for i in found) for found in grids) > 50


@pytest.mark.parametrize("units", [24, 48])
def test_a_slowdown_of_10_percent_is_found_among_24_cells(units: int) -> None:
    logs = noisy(units, 24, truth=0) / 2
    logs[:, 7] += math.log(0.9)
    _, family = geometric_family(logs)
    assert [i.differs() for i in family] == [-(k == 7) for k in range(24)]


def test_three_units_by_hand() -> None:
    found = geometric(np.log([1.0, 2.0, 4.0]))[0]
    reach = t.isf(0.025, 2) * math.log(2) / math.sqrt(3)
    assert found.value == pytest.approx(2) and found.units == 3
    assert found.bounds == pytest.approx((2 * math.exp(-reach), 2 * math.exp(reach)))


def test_a_ratio_by_hand() -> None:
    found = Ratios([1.0, 2.0, 6.0], [1.0, 1.0, 2.0]).intervals()[0]
    # Residuals of 9/4: -5/4, -1/4, 3/2; their variance over the mean denominator 4/3.
    error = math.sqrt((25 / 16 + 1 / 16 + 9 / 4) / 2 / 3) / (4 / 3)
    assert found.value == pytest.approx(9 / 4)
    assert found.bounds[1] - 9 / 4 == pytest.approx(t.isf(0.025, 2) * error)  # type: ignore[index]


def test_the_family_of_few_units_is_bonferronis() -> None:
    logs = noisy(8, 5)
    _, family = geometric_family(logs)
    reach = t.isf(0.05 / 5 / 2, 7) * logs.std(0, ddof=1) / math.sqrt(8)
    assert [i.high for i in family] == pytest.approx(np.exp(logs.mean(0) + reach))


def test_max_t_is_wider_than_one_interval_and_no_wider_than_bonferroni() -> None:
    shared = noisy(64, 1) + noisy(64, 30, seed=1) / 10  # cells that rise and fall together
    alone, family = geometric_family(shared)
    logs = np.exp(shared.mean(0) + t.isf(0.05 / 30 / 2, 63) * shared.std(0, ddof=1) / 8)
    for one, all_, most in zip(alone, family, logs, strict=True):
        assert one.high < all_.high < most  # type: ignore[operator]


def test_only_those_compared_pay_for_the_family() -> None:
    logs = noisy(8, 3)
    among = np.array([True, False, True])
    found = Ratios(logs).simultaneous(among=among)
    two = Ratios(logs[:, among]).simultaneous()
    assert [found[0].high, found[2].high] == pytest.approx([i.high for i in two])
    assert found[1].value is None


def test_a_grid_of_large_and_small_cells_shares_the_error() -> None:
    logs = noisy(60, 4)
    logs[10:, 3] = np.nan
    found = Ratios(logs).simultaneous()
    small = t.isf(0.05 / 4 / 2, 9) * logs[:10, 3].std(ddof=1) / math.sqrt(10)
    assert [i.how for i in found] == ["bootstrap-t"] * 3 + ["t"]
    assert found[3].high == pytest.approx(logs[:10, 3].mean() + small)
    assert found[0].high > Ratios(logs).intervals()[0].high  # type: ignore[operator]


@pytest.mark.parametrize("units", [0, 1, 2])
def test_too_few_units_give_a_value_and_say_why_no_more(units: int) -> None:
    found = geometric(noisy(units, 1))[0]
    assert found.bounds is None and found.differs() == 0 and found.units == units
    assert (found.value is None) == (units == 0)
    assert found.how == (
        "no units" if not units else f"{units} unit{'s' * (units > 1)}, an interval needs 3"
    )


@pytest.mark.parametrize("units", [3, 48])
def test_units_that_are_all_the_same_have_no_width(units: int) -> None:
    # A ratio of equal numbers leaves nothing to the bootstrap, not even rounding.
    found = geometric(np.full((units, 1), math.log(2)))[0]
    assert (found.value, found.low, found.high) == pytest.approx((2, 2, 2))


@pytest.mark.parametrize("units", [9, 60])
def test_units_that_are_missing_are_left_out(units: int) -> None:
    logs = noisy(units, 2)
    logs[-1, 0] = np.nan
    there = geometric(logs[:-1, :1])[0]
    found = geometric(logs)[0]
    assert found.units == units - 1 and found.value == pytest.approx(there.value)
    assert found.bounds == pytest.approx(there.bounds, rel=0.01)


def test_bounds_stay_finite_however_wild_the_units() -> None:
    wild = np.tile(np.array([[-60.0], [0.0], [60.0]]), 100)
    family = geometric_family(wild)[1] + Ratios(np.exp(wild), log=True).simultaneous()
    assert all(i.high is not None and math.isfinite(i.high) for i in family)


def test_nothing_to_divide_by() -> None:
    found = Ratios(np.zeros(4), np.zeros(4)).intervals()[0]
    assert found.value is None and found.how == "nothing to divide by"


@pytest.mark.parametrize("units", [6, 60])
def test_a_denominator_that_is_mostly_zero_is_no_trouble(units: int) -> None:
    drafted = np.zeros((units, 1))
    drafted[:2] = 3.0
    found = Ratios(drafted * 0.5, drafted).intervals()[0]
    assert found.value == found.low == found.high == 0.5


def test_the_same_numbers_give_the_same_interval() -> None:
    logs = noisy(48, 3)
    assert geometric(logs) == geometric(logs.copy())
    # And what else is in the grid makes no difference to an interval alone.
    assert geometric(logs[:, :1])[0].bounds == pytest.approx(geometric(logs)[0].bounds)


def test_an_interval_in_words() -> None:
    assert Interval(1.234, 1.1, 1.3, 9, "t").text() == "1.23 [1.10, 1.30]"
    assert Interval(1.234).text(1) == "1.2" and Interval().text() == "-"
    assert [Interval(1, *b).differs() for b in ((0.9, 1.1), (1.01, 1.1), (0.8, 0.99))] == [0, 1, -1]


def test_halves_are_fair_in_every_group() -> None:
    groups = ["a"] * 5 + ["b"] * 3 + ["c"] * 4
    first = halves(groups)
    assert [int(first[np.array(groups) == g].sum()) for g in "abc"] == [3, 1, 2]
    assert first.tolist() == halves(groups).tolist() != halves(groups, seed=1).tolist()


def test_without_pairs_by_hand() -> None:
    logs, others = np.array([0.0, 0.1, 0.2, np.nan]), np.array([0.0, 0.3, 0.6])
    found = welch(logs, others)
    parts = [0.01 / 3, 0.09 / 3]
    degrees = sum(parts) ** 2 / sum(p**2 / 2 for p in parts)
    assert found.value == pytest.approx(math.exp(-0.2)) and found.units == 3
    high = math.exp(-0.2 + t.isf(0.025, degrees) * math.sqrt(sum(parts)))
    assert found.high == pytest.approx(high)
    assert welch(np.zeros(3), np.zeros(4)).bounds == (1, 1)
    assert welch(logs[:2], others).bounds is None and welch(logs[:0], others).value is None
