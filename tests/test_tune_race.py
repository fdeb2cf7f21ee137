"""When a race looks, and whom it leaves out: on synthetic times, many races of each kind."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from foredraft.framework.bench.tuning_race import ERROR, FEWEST, Loss, losses, schedule

Numbers = NDArray[np.float64]
UNITS, GROUPS, CELLS, RACES = 24, 6, 12, 1000
SPREAD = 0.15  # of a log-ratio, from unit to unit
NOISE: dict[str, Callable[[np.random.Generator, tuple[int, int]], Numbers]] = {
    "normal": lambda rng, shape: rng.normal(0, SPREAD, shape),
    "skewed": lambda rng, shape: SPREAD * (rng.exponential(1, shape) - 1),
    "heavy": lambda rng, shape: SPREAD / 3**0.5 * rng.standard_t(3, shape),
}


def race(seconds: dict[str, Numbers], fixed: list[str], tests: int) -> tuple[set[str], int]:
    """Who is in at the end, and how many runs were made."""
    alive, runs, before = list(seconds), 0, 0
    for at in schedule(UNITS, GROUPS):
        runs, before = runs + len(alive) * (at - before), at
        found = losses({name: seconds[name][:at] for name in alive}, fixed, tests)
        alive = [name for name in alive if name not in found]
        if len(set(alive) - set(fixed)) < 2:
            break
    return set(alive), runs


def races(logs: Numbers, noise: str) -> tuple[float, float, float]:
    """The share of races that the fastest arm did not survive, runs made of all, arms left."""
    rng = np.random.default_rng(7)
    tests = (len(logs) - 1) * len(schedule(UNITS, GROUPS))
    lost, made, left = 0, 0, 0
    for _ in range(RACES):
        shared = rng.normal(0, 0.5, UNITS)  # a long prompt is long for all
        values = np.exp(shared + logs[:, None] + NOISE[noise](rng, (len(logs), UNITS)))
        alive, runs = race({str(i): row for i, row in enumerate(values)}, [], tests)
        lost, made, left = lost + ("0" not in alive), made + runs, left + len(alive)
    return lost / RACES, made / (RACES * len(logs) * UNITS), left / RACES


@pytest.mark.parametrize("noise", NOISE)
def test_the_fastest_stays_in_though_all_are_equal(noise: str) -> None:
    """The hardest case: nothing tells it from the others but chance."""
    lost, made, _ = races(np.zeros(CELLS), noise)
    assert lost < ERROR
    assert made > 0.9


def test_slow_cells_leave_early() -> None:
    """Speeds from 1 down to 0.45 of the fastest: about half of the runs are saved."""
    lost, made, left = races(np.linspace(0, 0.8, CELLS), "normal")
    assert lost < ERROR / 10
    assert 0.4 < made < 0.6 and left < 3.5


def test_a_fast_rival_that_is_fixed_takes_others_out_but_stays() -> None:
    rng = np.random.default_rng(0)
    seconds = {name: np.exp(rng.normal(at, 0.02, 12)) for name, at in (("a", 0.5), ("plain", 0.0))}
    found = losses(seconds, ["plain"], 4)
    assert list(found) == ["a"] and found["a"].rival == "plain"
    factor = found["a"].factor
    assert factor.bounds is not None
    assert factor.bounds[0] < np.exp(-0.5) < factor.bounds[1] < 1
    assert not losses({"a": seconds["plain"], "plain": seconds["a"]}, ["plain"], 4)


def test_bounds_are_those_of_students_t() -> None:
    """Six differences by hand: mean 0.1, standard error 0.02; t(1 - 0.05/3; 5) is 2.912."""
    away = 0.02 * np.sqrt(6 * 5 / 6)
    d = 0.1 + away * np.array([1, -1, 1, -1, 1, -1])
    two = {"slow": np.exp(d), "fast": np.ones(6)}
    loss = losses(two, [], 3)["slow"]
    assert loss == Loss("fast", loss.factor)
    assert loss.factor.value == pytest.approx(np.exp(-0.1))
    assert loss.factor.high == pytest.approx(np.exp(-0.1 + 2.912 * 0.02), rel=1e-4)
    far = {"slow": np.exp(d - 0.1 + 2.9 * 0.02), "fast": np.ones(6)}
    assert not losses(far, [], 3)


def test_units_without_times_are_left_out() -> None:
    fast = np.ones(8)
    slow = np.exp(0.5 + 0.01 * np.arange(8.0))
    slow[:2] = np.nan
    assert list(losses({"fast": fast, "slow": slow}, [], 10)) == ["slow"]
    slow[2] = np.nan  # five pairs are too few to say
    assert not losses({"fast": fast, "slow": slow}, [], 10)
    assert not losses({"one": np.full(8, np.nan), "other": fast}, [], 10)
    assert not losses({}, [], 10)


@pytest.mark.parametrize(
    ("units", "groups", "expected"),
    [
        (24, 6, [6, 12, 18, 24]),
        (24, 1, [6, 9, 14, 21, 24]),
        (6, 6, [6]),
        (7, 4, [7]),
        (20, 4, [8, 12, 20]),
    ],
)
def test_looks_are_at_whole_turns_of_the_groups(
    units: int, groups: int, expected: list[int]
) -> None:
    assert schedule(units, groups) == expected
    assert schedule(units, groups)[0] >= FEWEST


def test_looks_are_few_however_many_units_there_are() -> None:
    assert len(schedule(10_000, 6)) < 20
