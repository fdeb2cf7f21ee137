"""The formulas against the figures that the paper prints, and against simulation."""

from __future__ import annotations

import numpy as np
import pytest

from foredraft.framework import theory
from foredraft.framework.errors import InputError

# Table 1, c = c_hat = 0: alpha, gamma, operations, speed.
TABLE_1 = [
    (0.6, 2, 1.53, 1.96), (0.7, 3, 1.58, 2.53), (0.8, 2, 1.23, 2.44),
    (0.8, 5, 1.63, 3.69), (0.9, 2, 1.11, 2.71), (0.9, 10, 1.60, 6.86),
]  # fmt: skip
# Table 4: gamma, alpha, c, the speed-up that the formula expects.
TABLE_4 = [
    (7, 0.75, 0.02, 3.2), (7, 0.80, 0.04, 3.3), (7, 0.82, 0.11, 2.5), (7, 0.62, 0.02, 2.3),
    (5, 0.68, 0.04, 2.4), (3, 0.71, 0.11, 2.0), (5, 0.65, 0.02, 2.4), (5, 0.73, 0.04, 2.6),
    (3, 0.74, 0.11, 2.0), (5, 0.53, 0.02, 1.9), (3, 0.55, 0.04, 1.8), (3, 0.56, 0.11, 1.6),
]  # fmt: skip
COSTS = [0.01, 0.02, 0.05, 0.10, 0.20, 0.30, 0.50]
# Figure 3: the best gamma and its factor, by alpha and cost; 0 is: do not speculate.
BEST = {
    0.3: [(3, 1.38), (3, 1.34), (2, 1.26), (1, 1.18), (1, 1.08), (0, 1), (0, 1)],
    0.5: [(5, 1.88), (4, 1.79), (3, 1.63), (2, 1.46), (1, 1.25), (1, 1.15), (0, 1)],
    0.7: [(9, 2.97), (8, 2.76), (6, 2.35), (4, 1.98), (3, 1.58), (2, 1.37), (1, 1.13)],
    0.8: [(14, 4.23), (11, 3.82), (8, 3.09), (6, 2.47), (4, 1.87), (3, 1.55), (2, 1.22)],
    0.9: [(24, 7.49), (19, 6.37), (13, 4.67), (10, 3.43), (7, 2.37), (5, 1.87), (3, 1.38)],
}


@pytest.mark.parametrize(("alpha", "gamma", "operations", "speed"), TABLE_1)
def test_table_1(alpha: float, gamma: int, operations: float, speed: float) -> None:
    assert round(float(theory.operations(alpha, gamma, 0)), 2) == operations
    assert round(float(theory.speedup(alpha, gamma, 0)), 2) == speed
    assert theory.memory_reads(alpha, gamma) == pytest.approx(1 / speed, rel=0.01)


@pytest.mark.parametrize(("gamma", "alpha", "c", "expected"), TABLE_4)
def test_table_4_as_the_formula_has_it(gamma: int, alpha: float, c: float, expected: float) -> None:
    assert theory.speedup(alpha, gamma, c) == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize("alpha", BEST)
def test_the_best_gamma(alpha: float) -> None:
    gammas, factors = theory.best_gamma(alpha, COSTS)
    found = [(int(g), round(float(f), 2)) for g, f in zip(gammas, factors, strict=True)]
    assert found == BEST[alpha]


def test_speculation_can_be_slower() -> None:
    assert theory.speedup(0, 5, 0.05) == pytest.approx(0.80)


def test_the_worked_example_of_a_residual() -> None:
    assert theory.acceptance([0.4, 0.3, 0.3], [0.8, 0.1, 0.1]) == pytest.approx(0.6)


def test_equation_1_is_what_rounds_bring_on_average() -> None:
    stands = np.random.default_rng(0).random((200_000, 5)) < 0.7
    tokens = 1 + np.cumprod(stands, 1).sum(1)
    assert theory.expected_tokens(0.7, 5) == pytest.approx(tokens.mean(), abs=0.02)
    assert theory.expected_accepted(0.7, 5) == pytest.approx(tokens.mean() - 1, abs=0.02)


def test_certain_acceptance_is_no_division_by_zero() -> None:
    assert theory.expected_tokens(1.0, [0, 3]).tolist() == [1, 4]
    assert theory.oracle_tokens([0.5, 1.0]).tolist() == [2, np.inf]
    assert theory.oracle_speedup(1.0, 0.25) == 4


def test_the_oracle_is_beyond_every_fixed_gamma() -> None:
    alphas, costs = np.linspace(0, 0.99, 40)[:, None], np.linspace(0, 0.9, 40)
    _, best = theory.best_gamma(alphas, costs)
    oracle = theory.oracle_speedup(alphas, costs)
    assert (oracle >= best - 1e-9).all()
    assert 1.5 < (oracle / best).max() < 1.7  # up to about 60 % (section 3.5)


def test_what_corollary_3_9_promises_is_kept() -> None:
    alphas, costs = np.linspace(0, 0.99, 40)[:, None], np.linspace(0, 0.9, 40)
    assert (
        theory.best_gamma(alphas, costs)[1] >= theory.guaranteed_speedup(alphas, costs) - 1e-9
    ).all()


def test_equal_rates_at_all_positions_are_equation_1() -> None:
    assert theory.tokens_by_position([0.8] * 6) == pytest.approx(
        theory.expected_tokens(0.8, np.arange(7))
    )


def test_measured_times_that_fit_the_assumptions_give_theorem_3_8() -> None:
    tokens = theory.expected_tokens(0.8, 4)
    assert theory.measured_speedup(tokens, 2.0, 4 * 0.2, 2.0) == pytest.approx(
        theory.speedup(0.8, 4, 0.1)
    )


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: theory.speedup(1.2, 3, 0.1), r"alpha=1.2 .* from 0 to 1"),
        (lambda: theory.speedup([0.2, float("nan")], 3, 0.1), "alpha=nan"),
        (lambda: theory.speedup(0.2, -1, 0.1), r"gamma=-1.0 .* 0 or more"),
        (lambda: theory.best_gamma(0.2, -0.1), r"c=-0.1 .* 0 or more"),
    ],
)
def test_impossible_values_are_refused(call, said) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=said):
        call()
