"""The formulas of Leviathan, Kalman and Matias 2023 (arXiv:2211.17192), each by its number there.

Letters: ``alpha`` acceptance rate in [0, 1], ``gamma`` drafted tokens per round, ``c`` time of a
draft step over time of a target step, ``c_hat`` the same for operations. All functions take numbers
or arrays that broadcast, and give arrays of that shape (float64).

The formulas take acceptance for independent and identical over positions, and a forward of
``gamma + 1`` tokens for as quick as one of a single token. Where it is not, give what was measured:
``measured_speedup``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import InputError

Numbers = NDArray[np.float64]
MOST_GAMMA = 256


def acceptance(target_probs: ArrayLike, draft_probs: ArrayLike) -> Numbers:
    """``beta``, the chance that a token drawn from ``draft_probs [..., vocab]`` is accepted:
    ``sum(min(target, draft))`` (Theorem 3.5, Corollary 3.6)."""
    return np.asarray(np.minimum(_float(target_probs), _float(draft_probs)).sum(-1))


def expected_tokens(alpha: ArrayLike, gamma: ArrayLike) -> Numbers:
    """``tau``, tokens emitted per round: ``(1 - alpha^(gamma+1)) / (1 - alpha)`` (Equation 1)."""
    rate, most = _rate(alpha), _length(gamma) + 1
    some = np.where(rate < 1, 1 - rate, 1.0)
    return np.where(rate < 1, (1 - rate**most) / some, most)


def expected_accepted(alpha: ArrayLike, gamma: ArrayLike) -> Numbers:
    """Drafted tokens that stand per round: ``tau`` less the token that the target adds."""
    return np.asarray(expected_tokens(alpha, gamma) - 1)


def speedup(alpha: ArrayLike, gamma: ArrayLike, c: ArrayLike) -> Numbers:
    """Expected factor in walltime: ``tau / (gamma c + 1)`` (Theorem 3.8). Below 1 is slower."""
    return np.asarray(expected_tokens(alpha, gamma) / (_length(gamma) * _cost(c) + 1))


def guaranteed_speedup(alpha: ArrayLike, c: ArrayLike) -> Numbers:
    """Where ``alpha > c`` some gamma gains at least ``(1 + alpha) / (1 + c)`` (Corollary 3.9), the
    factor of gamma 1; elsewhere nothing is promised, which is 1."""
    rate, cost = _rate(alpha), _cost(c)
    return np.where(rate > cost, (1 + rate) / (1 + cost), 1.0)


def operations(alpha: ArrayLike, gamma: ArrayLike, c_hat: ArrayLike) -> Numbers:
    """Growth of arithmetic per token: ``(gamma c_hat + gamma + 1) / tau`` (Theorem 3.11)."""
    length = _length(gamma)
    return np.asarray((length * _cost(c_hat) + length + 1) / expected_tokens(alpha, gamma))


def memory_reads(alpha: ArrayLike, gamma: ArrayLike) -> Numbers:
    """How often the target's weights and cache are read per token, plain decoding being 1:
    ``1 / tau`` (section 3.4)."""
    return np.asarray(1 / expected_tokens(alpha, gamma))


def best_gamma(
    alpha: ArrayLike, c: ArrayLike, limit: int = MOST_GAMMA
) -> tuple[NDArray[np.int64], Numbers]:
    """The gamma from 0 to ``limit`` with the largest ``speedup``, and that factor (section 3.5,
    Figure 3). 0 with factor 1 says: do not speculate. Of equal ones, the smallest."""
    rate, cost = np.broadcast_arrays(_rate(alpha), _cost(c))
    factors = speedup(rate[..., None], np.arange(limit + 1), cost[..., None])
    best = factors.argmax(-1)
    return best, np.take_along_axis(factors, best[..., None], -1)[..., 0]


def oracle_tokens(alpha: ArrayLike) -> Numbers:
    """Tokens per round of a policy that knows where the first rejection will be:
    ``1 / (1 - alpha)``; infinite at 1."""
    rate = _rate(alpha)
    return np.where(rate < 1, 1 / np.where(rate < 1, 1 - rate, 1.0), np.inf)


def oracle_speedup(alpha: ArrayLike, c: ArrayLike) -> Numbers:
    """The same policy's factor in walltime: ``1 / (1 - alpha + c alpha)`` (section 3.5)."""
    rate = _rate(alpha)
    return np.asarray(1 / (1 - rate + _cost(c) * rate))


def tokens_by_position(rates: Sequence[float]) -> Numbers:
    """``tau`` for each gamma from 0 to ``len(rates)`` when position i, once reached, is accepted with
    ``rates[i]``: one plus the sum of the products (Equation 1 without its assumption)."""
    return np.concatenate([[1.0], 1 + np.cumsum(np.cumprod(_rate(list(rates))))])


def measured_speedup(
    tokens: ArrayLike, verify: ArrayLike, draft: ArrayLike, plain: ArrayLike
) -> Numbers:
    """The factor with measured times in place of the two assumptions.

    Args:
        tokens: emitted per round.
        verify: seconds of a target step of this gamma's width.
        draft: seconds that the round's drafting takes, all steps of it.
        plain: seconds of a target step of width 1.
    """
    seconds = _float(verify) + _float(draft)
    return np.asarray(_float(tokens) * _float(plain) / seconds)


def _float(values: ArrayLike) -> Numbers:
    return np.asarray(values, dtype=np.float64)


def _rate(values: ArrayLike) -> Numbers:
    return _checked("alpha", values, 0, 1)


def _cost(values: ArrayLike) -> Numbers:
    return _checked("c", values, 0, np.inf)


def _length(values: ArrayLike) -> Numbers:
    return _checked("gamma", values, 0, np.inf)


def _checked(name: str, values: ArrayLike, low: float, high: float) -> Numbers:
    found = _float(values)
    bad = found[~((found >= low) & (found <= high))]  # also true for NaN
    if bad.size:
        limits = f"from {low} to {high}" if high < np.inf else f"{low} or more"
        raise InputError(f"{name}={bad.flat[0]} is not possible; it must be {limits}.")
    return found
