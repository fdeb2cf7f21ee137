"""The figures of ``foredraft theory``, as plain values and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from .. import theory

PAPER = "formulas of Leviathan et al. 2023"


def by_rate(alpha: float, c: float, c_hat: float, gamma: int | None, limit: int) -> dict[str, Any]:
    """What one rate and one cost promise, at the best gamma and at a given one."""
    best = int(theory.best_gamma(alpha, c, limit)[0])
    return {
        "alpha": alpha,
        "c": c,
        "c_hat": c_hat,
        "limit": limit,
        "best": at_gamma(alpha, c, c_hat, best),
        "given": None if gamma is None else at_gamma(alpha, c, c_hat, gamma),
        "guaranteed_speedup": float(theory.guaranteed_speedup(alpha, c)),
        "oracle": {
            "tau": float(theory.oracle_tokens(alpha)),
            "speedup": float(theory.oracle_speedup(alpha, c)),
        },
    }


def at_gamma(alpha: float, c: float, c_hat: float, gamma: int) -> dict[str, Any]:
    """The formulas at one gamma."""
    return {
        "gamma": gamma,
        "tau": float(theory.expected_tokens(alpha, gamma)),
        "speedup": float(theory.speedup(alpha, gamma, c)),
        "operations": float(theory.operations(alpha, gamma, c_hat)),
        "memory_reads": float(theory.memory_reads(alpha, gamma)),
    }


def by_position(rates: Sequence[float], c: float) -> dict[str, Any]:
    """Every gamma up to the number of rates."""
    tokens = theory.tokens_by_position(rates)
    gammas = np.arange(len(tokens))
    factors = theory.measured_speedup(tokens, 1, c * gammas, 1)
    rows = [
        {"gamma": int(g), "tau": float(t), "speedup": float(f)}
        for g, t, f in zip(gammas, tokens, factors, strict=True)
    ]
    best = int(factors.argmax())
    return {"alpha_at": list(rates), "c": c, "best": rows[best], "gammas": rows}


def rate_table(found: dict[str, Any]) -> Table:
    """``by_rate`` as a table: what, at the best gamma, at the given one, by which formula."""
    best, given, oracle = found["best"], found["given"], found["oracle"]
    columns = [best, *([given] if given else [])]
    heads = ["at the best gamma", *(["at the given gamma"] if given else [])]
    title = f"alpha {found['alpha']:g}, c {found['c']:g}: {_advice(best)}"
    table = _table(title, "", *heads, PAPER)
    table.add_row("gamma", *(str(one["gamma"]) for one in columns), "section 3.5")
    for name, key, source in (
        ("tokens per round, tau", "tau", "Equation 1"),
        ("speed-up", "speedup", "Theorem 3.8"),
        (f"operations per token, c_hat {found['c_hat']:g}", "operations", "Theorem 3.11"),
        ("reads of the target's weights per token", "memory_reads", "section 3.4"),
    ):
        table.add_row(name, *(_figure(one[key]) for one in columns), source)
    blank = [""] * (len(columns) - 1)
    for name, value, source in (
        ("guaranteed speed-up", found["guaranteed_speedup"], "Corollary 3.9"),
        ("oracle: tokens per round", oracle["tau"], "stops at the first rejection"),
        ("oracle: speed-up", oracle["speedup"], "section 3.5"),
    ):
        table.add_row(name, _figure(value), *blank, source)
    return table


def position_table(found: dict[str, Any]) -> Table:
    """``by_position`` as a table, a row for each gamma."""
    best = found["best"]
    title = f"rates by position, c {found['c']:g}: {_advice(best)}"
    table = _table(title, "gamma", "rate of its last token", "tokens per round, tau", "speed-up")
    rates = ["", *(_figure(rate) for rate in found["alpha_at"])]
    for row, rate in zip(found["gammas"], rates, strict=True):
        mark = " *" if row is best or row == best else ""
        table.add_row(f"{row['gamma']}{mark}", rate, _figure(row["tau"]), _figure(row["speedup"]))
    return table


def run_table(run: dict[str, Any]) -> Table:
    """A run's measured figures beside what one rate, and its rates by position, predict."""
    parts = " ".join(f"{kind}={name}" for kind, name in run["parts"].items())
    facts = f"alpha {_figure(run['alpha'])}, accept rate {_figure(run['accept_rate'])}, " \
            f"drafted per round {_figure(run['gamma'])}, c {run['c']:.3g} ({run['c_from']})"  # fmt: skip
    title = f"{parts}: answers {run['answers']}, rounds {run['rounds']}\n{facts}"
    table = _table(title, "", "measured", "predicted from alpha", "from rates by position", "by")
    measured, alpha, positions = run["measured"], run["one_rate"], run["by_position"]
    for name, own, key, source in (
        ("tokens per round, tau", measured["tau"], "tau", "Equation 1"),
        ("speed-up", measured["speedup"], "speedup", "Theorem 3.8"),
        ("best gamma", None, "best_gamma", "section 3.5"),
        ("speed-up with it", None, "best_speedup", "Theorem 3.8"),
    ):
        table.add_row(name, _figure(own), _figure(alpha[key]), _figure(positions[key]), source)
    steps = measured["speedup_of_steps"]
    table.add_row(
        "speed-up, drafting and target steps alone", _figure(steps), "", "", "their times"
    )
    if run["given"]:
        name = f"speed-up with gamma {run['given']['gamma']}"
        table.add_row(name, "-", _figure(run["given"]["speedup"]), "", "Theorem 3.8")
    return table


def _advice(best: dict[str, Any]) -> str:
    if not best["gamma"]:
        return "do not speculate (gamma 0)"
    return f"best gamma {best['gamma']}, {best['speedup']:.2f} times as fast"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        words = number == 0 or column in (PAPER, "by")
        table.add_column(column, justify="left" if words else "right")
    return table


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.2f}"
