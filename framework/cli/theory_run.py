"""What a run measured, beside what the formulas predict from its rates and costs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import theory
from ..errors import InputError
from ..metrics import Metrics
from .theory_files import Run, read_runs
from .theory_tables import at_gamma

ALIKE = ("target", "sampling", "runtime")  # what two runs must share for their times to compare


@dataclass(frozen=True)
class Costs:
    """Seconds per round of a row: what formulas with times need.

    Args:
        verify, draft: of the run.
        step: of a target step of width 1; of the run's own, wider ones if there are no others.
        source: where ``step`` is from.
    """

    verify: float
    draft: float
    step: float
    source: str


def compared(path: str, plain: str | None, gamma: int | None, limit: int) -> list[dict[str, Any]]:
    """One object per run of the file that drafted."""
    runs = read_runs("run", path)
    drafting = [run for run in runs if run.metrics.drafted]
    if not drafting:
        raise InputError(f"run={path} has no drafted tokens, so there is nothing to compare.")
    others = [run for run in runs if not run.metrics.drafted]
    if plain is not None:
        others = _plain_runs(plain)
    found = []
    for run in drafting:
        alike = [other for other in others if _alike(run.config, other.config)]
        if plain is not None and not alike:
            raise InputError(
                f"plain={plain} cannot be compared with run={path}: another target, sampling or "
                "batch size made it."
            )
        found.append(_compare(run, alike[0].metrics if alike else None, gamma, limit))
    return found


def _plain_runs(path: str) -> list[Run]:
    found = [run for run in read_runs("plain", path) if not run.metrics.drafted]
    if not found:
        raise InputError(
            f"plain={path} has drafted tokens in every run; make one with drafter=none."
        )
    return found


def _alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one.get(key) == other.get(key) for key in ALIKE)


def _compare(run: Run, plain: Metrics | None, gamma: int | None, limit: int) -> dict[str, Any]:
    metrics, costs = run.metrics, _costs(run, plain)
    mean = metrics.drafted / metrics.rounds
    c = costs.draft / mean / costs.step
    # Sums of float32 laws can be above 1 by a rounding.
    alpha = min(metrics.overlap / metrics.reached, 1.0)
    rates = [min(rate, 1.0) for rate in metrics.as_dict()["accept_rate_at"]]
    known = plain is not None or bool(run.idle)
    measured = {
        "tau": metrics.tau,
        "speedup": None if plain is None else _pace(plain) / _pace(metrics),
        "speedup_of_steps": _factor(metrics.tau, costs) if known else None,
    }
    best, factor = theory.best_gamma(alpha, c, limit)
    one_rate = _predicted(theory.expected_tokens(alpha, _lengths(run)), run, c)
    one_rate |= {"best_gamma": int(best), "best_speedup": float(factor)}
    by_position = _predicted(_tokens_at(rates, run), run, c)
    by_position |= _best_measured(rates[:limit], c)
    return {
        "parts": run.parts,
        "answers": run.answers,
        "rounds": metrics.rounds,
        "gamma": mean,
        "alpha": alpha,
        "accept_rate": metrics.accept_rate,
        "accept_rate_at": rates,
        "c": c,
        "c_from": costs.source,
        "measured": measured,
        "one_rate": one_rate,
        "by_position": by_position,
        "given": None if gamma is None else at_gamma(alpha, c, c, gamma),
    }


def _costs(run: Run, plain: Metrics | None) -> Costs:
    metrics = run.metrics
    verify = metrics.seconds["verify"] / metrics.rounds
    draft = metrics.seconds["draft"] / metrics.rounds
    if plain is not None:
        step, source = plain.seconds["verify"] / plain.rounds, "steps of the plain run"
    elif run.idle:
        step, source = median(run.idle), "its own rounds without a draft"
    else:
        step, source = verify, "its own steps, which are wider than plain ones"
    if step <= 0:
        raise InputError("the run has no time in its target's steps, so c cannot be told.")
    return Costs(verify, draft, step, source)


def _pace(metrics: Metrics) -> float:
    """Seconds per token, prefill left out."""
    spent = sum(seconds for phase, seconds in metrics.seconds.items() if phase != "prefill")
    return spent / metrics.emitted


def _factor(tokens: float | None, costs: Costs) -> float:
    return float(theory.measured_speedup(tokens or 0, costs.verify, costs.draft, costs.step))


def _lengths(run: Run) -> NDArray[np.int64]:
    return np.array(sorted(run.lengths), np.int64)


def _predicted(tokens: Any, run: Run, c: float) -> dict[str, float]:
    """``tokens`` for each of the run's lengths, averaged as the run had them; Theorem 3.8, which for
    one length is ``theory.speedup``."""
    counts: Counter[int] = run.lengths
    shares = np.array([counts[length] for length in sorted(counts)], np.float64)
    shares /= shares.sum()
    tau, mean = float(shares @ tokens), float(shares @ _lengths(run))
    return {"tau": tau, "speedup": float(theory.measured_speedup(tau, 1, c * mean, 1))}


def _tokens_at(rates: list[float], run: Run) -> NDArray[np.float64]:
    """Tokens per round for each of the run's lengths; a position that none reached adds none."""
    longest = max(run.lengths)
    padded = [*rates, *([0.0] * (longest - len(rates)))]
    return theory.tokens_by_position(padded)[_lengths(run)]


def _best_measured(rates: list[float], c: float) -> dict[str, Any]:
    tokens = theory.tokens_by_position(rates)
    factors = theory.measured_speedup(tokens, 1, c * np.arange(len(tokens)), 1)
    best = int(factors.argmax())
    return {"best_gamma": best, "best_speedup": float(factors[best])}
