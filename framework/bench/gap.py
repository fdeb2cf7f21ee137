"""Why a cell is as fast as it is: what theory says, what was measured, and where the rest went.

A round of speculation takes as long as a plain one, plus what drafting, a wider verification, sampling
and everything else take more. Against plain decoding, with ``tau`` tokens a round,

    speed-up = tau / (1 + drafting + wider verification + sampling + other)

exactly, each term in plain rounds. Theorem 3.8 (Leviathan et al. 2023, arXiv:2211.17192) is this with
``tau`` from ``alpha``, ``gamma c`` for drafting and 0 for the rest.

On a GPU the phases are host times (see ``framework/clock.py``), so that work launched in one phase
may count in the next one that waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .. import theory
from .readings import PHASES, Side

LOSSES = ("acceptance", *PHASES)
_SHORTEST = 1e-12  # seconds; what takes less than this was not measured
_SMALL = 1.03  # a loss that would gain less than this is not worth advice


@dataclass(frozen=True)
class Gap:
    """One cell against the plain loop, over the units that both have, by total time.

    Args:
        measured: the speed-up.
        theory: that of Theorem 3.8 with the measured ``alpha``, ``gamma`` and ``c``; None when
            nothing was drafted.
        by_times: the same with the measured tokens and seconds per round of drafting and verifying.
        alpha, tau: as in the metrics; ``tau`` per row.
        gamma: tokens drafted per row and round, on average: where drafts are short or missing, less
            than what the policy asks for.
        c: seconds of drafting per token over seconds of a plain target step.
        width: seconds of the cell's target step over those of a plain one.
        batch: rows that decode together.
        extra: what a round takes more than a plain one by phase, in plain rounds; negative if less.
        share: of what is lost by time, each phase's part; all 0 when nothing is.
        if_ideal: the speed-up if one loss alone were gone: ``acceptance`` (every drafted token
            accepted), ``draft`` (drafting takes no time), ``verify`` (as quick as a plain step),
            ``sampling`` and ``other`` (as quick as in plain decoding).
        largest: the loss that costs most, or "" if none is worth words.
        advice: one sentence.
    """

    measured: float
    theory: float | None
    by_times: float
    alpha: float | None
    gamma: float
    tau: float
    c: float | None
    width: float
    batch: int
    extra: Mapping[str, float]
    share: Mapping[str, float]
    if_ideal: Mapping[str, float]
    largest: str
    advice: str

    @property
    def of_theory(self) -> float | None:
        """Measured over predicted by Theorem 3.8."""
        return self.measured / self.theory if self.theory else None

    @property
    def of_times(self) -> float:
        """Measured over predicted by step times: what sampling and the rest leave."""
        return self.measured / self.by_times


def gap(cell: Side, plain: Side) -> Gap | None:
    """None when there is no unit on which both have times by phase and counts, or no time in them."""
    shared = _phased(cell) & _phased(plain)
    if not shared.any():
        return None
    ours, theirs = _round(cell, shared), _round(plain, shared)
    draft, verify = (PHASES.index(name) for name in ("draft", "verify"))
    if min(ours[draft] + ours[verify], theirs[verify]) < _SHORTEST:
        return None
    tokens = _tokens(cell, shared) / _tokens(plain, shared)
    rounds, drafted, reached, overlap, emitted = (
        float(cell.counts[name][shared].sum())
        for name in ("rounds", "drafted", "reached", "overlap", "emitted")
    )
    gamma, alpha = drafted / rounds, overlap / reached if reached else None
    measured = tokens * theirs.sum() / ours.sum()
    cost = float(ours[draft] / gamma / theirs[verify]) if gamma else None
    extra = dict(zip(PHASES, ((ours - theirs) / theirs.sum()).tolist(), strict=True))
    ideal = _if_ideal(tokens, extra, measured, gamma, emitted / rounds)
    largest = max(ideal, key=lambda name: ideal[name])
    largest = largest if ideal[largest] > measured * _SMALL else ""
    found = {
        "alpha": alpha,
        "gamma": gamma,
        "c": cost,
        "width": float(ours[verify] / theirs[verify]),
    }
    return Gap(
        measured=float(measured),
        theory=_theory(alpha, gamma, cost),
        by_times=float(theory.measured_speedup(tokens, ours[verify], ours[draft], theirs[verify])),
        alpha=alpha,
        gamma=gamma,
        tau=emitted / rounds,
        c=cost,
        width=found["width"] or 0.0,
        batch=cell.batch,
        extra=extra,
        share=_shares(extra),
        if_ideal=ideal,
        largest=largest,
        advice=_advice(largest, found, extra, ideal, float(measured)),
    )


def _phased(side: Side) -> NDArray[np.bool_]:
    """Units whose run has times by phase and rounds."""
    return np.isfinite(side.phases).all(1) & (side.forwards > 0) & (side.counts["rounds"] > 0)


def _round(side: Side, units: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Seconds of a mean round by phase."""
    return np.asarray(side.phases[units].sum(0) / side.forwards[units].sum())


def _tokens(side: Side, units: NDArray[np.bool_]) -> float:
    """Tokens of a mean round, all rows together."""
    return float(side.tokens[units].sum() / side.forwards[units].sum())


def _theory(alpha: float | None, gamma: float, cost: float | None) -> float | None:
    if alpha is None or cost is None:
        return None
    return float(theory.speedup(min(alpha, 1.0), gamma, max(cost, 0.0)))


def _shares(extra: Mapping[str, float]) -> dict[str, float]:
    lost = {name: max(value, 0.0) for name, value in extra.items()}
    whole = sum(lost.values())
    return {name: value / whole if whole else 0.0 for name, value in lost.items()}


def _if_ideal(
    tokens: float, extra: Mapping[str, float], measured: float, gamma: float, tau: float
) -> dict[str, float]:
    """Speed-up without each loss; a phase that takes less than in plain decoding loses nothing."""
    whole = 1 + sum(extra.values())
    ideal = {"acceptance": float(measured) * max((gamma + 1) / tau, 1.0)}
    for name, value in extra.items():
        left = whole - max(value, 0.0)
        # Where nothing else takes time, there is no such figure.
        if left > whole * 1e-6:
            ideal[name] = tokens / left
    return ideal


def _advice(
    largest: str,
    found: Mapping[str, float | None],
    extra: Mapping[str, float],
    ideal: Mapping[str, float],
    measured: float,
) -> str:
    alpha, gamma, cost = found["alpha"], found["gamma"] or 0.0, found["c"]
    if alpha is None or cost is None:
        return "Nothing was drafted, so nothing can be gained: try another drafter."
    best = int(theory.best_gamma(min(alpha, 1.0), max(cost, 0.0), limit=32)[0])
    if measured < 1 and best == 0:
        return (
            f"With alpha {alpha:.2f} and c {cost:.2f} no gamma gains by Theorem 3.8: try a cheaper or a "
            f"better drafter, or do not speculate."
        )
    if not largest:
        return f"Little is lost in a round; by Theorem 3.8 the best gamma is {best}."
    fewer = f" or gamma {best}" if best < gamma - 0.5 else ""
    longer = f" or gamma {best}" if best > gamma + 0.5 else ""
    says = {
        "acceptance": f"Rejected drafts cost most (alpha {alpha:.2f}): try a drafter closer to the "
        f"target{fewer or longer}",
        "draft": f"Drafting costs most (c {cost:.2f}): try a cheaper drafter{fewer}",
        "verify": f"The wider target step costs most ({found['width']:.2f} of a plain one): try "
        f"{fewer.removeprefix(' or ') or 'a smaller gamma'} or a smaller batch",
        "sampling": f"Sampling costs most ({extra['sampling']:.2f} plain rounds more): try a simpler "
        f"verifier or fewer logits processors",
        "other": f"Work outside of the models costs most ({extra['other']:.2f} plain rounds more): "
        f"try a policy that drafts in fewer, longer rounds, or a larger target",
    }[largest]
    return f"{says}; without this loss it would be {ideal[largest]:.2f} times plain decoding."
