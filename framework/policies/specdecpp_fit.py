"""Trains the head of ``policy=specdecpp`` from dense traces (after Huang et al. 2024, arXiv:2405.19715)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from ..errors import InputError
from .specdecpp_head import FEATURES, Head, features

if TYPE_CHECKING:
    from ..traces import DenseTrace

MOST = 200_000  # examples; more make it slower, not better
BLOCK, HELD_OUT = 32, 5  # of so many places in a row, every fifth block is kept for the report
DECAY = 1e-4
STEPS = 200


@dataclass(frozen=True)
class Examples:
    """Drafted tokens that were reached: what was known of each, and whether it stood.

    Args:
        rows: ``[n, features]`` float64.
        stood: ``[n]`` float64, 1 for accepted tokens and 0 for rejected ones.
        held_out: ``[n]`` bool, examples that are not trained on.
    """

    rows: Tensor
    stood: Tensor
    held_out: Tensor

    def part(self, held_out: bool) -> tuple[Tensor, Tensor]:
        """Rows and outcomes of one of the two parts."""
        chosen = self.held_out == held_out
        return self.rows[chosen], self.stood[chosen]


def examples_of(traces: Sequence[DenseTrace]) -> Examples:
    """The reached tokens of all traces: at each position those that stand, and the first that does
    not. What lies behind a rejection was drafted behind a wrong token and teaches nothing."""
    starts = np.cumsum([0, *(trace.places for trace in traces)])
    parts = [_examples(trace, int(start)) for trace, start in zip(traces, starts, strict=False)]
    whole = Examples(
        torch.cat([part.rows for part in parts]),
        torch.cat([part.stood for part in parts]),
        torch.cat([part.held_out for part in parts]),
    )
    if not len(whole.stood):
        raise InputError("there is nothing to train on: no trace has a drafted token.")
    every = -(-len(whole.stood) // MOST)
    return Examples(whole.rows[::every], whole.stood[::every], whole.held_out[::every])


def _examples(trace: DenseTrace, start: int) -> Examples:
    places, columns = np.arange(trace.places)[:, None], np.arange(trace.most)
    # What was drafted past the end of the text has nothing to be compared with.
    known = np.minimum(trace.lengths[:, None], trace.places - places)
    reached = (columns <= trace.runs[:, None]) & (columns < known)
    confidence, entropy = torch.tensor(trace.confidences), torch.tensor(trace.entropies)
    logs = features(confidence, entropy, 0, torch.zeros_like(confidence))[..., 0]
    rows = features(confidence, entropy, torch.from_numpy(columns), logs.cumsum(1) - logs)
    blocks = (start + places) // BLOCK
    held = np.broadcast_to(blocks % HELD_OUT == HELD_OUT - 1, reached.shape)
    stood = torch.tensor(trace.accepts[reached], dtype=torch.float64)
    return Examples(rows[torch.from_numpy(reached)], stood, torch.tensor(held[reached]))


def train(examples: Examples, hidden: int = 8, reject_weight: float = 1.0, seed: int = 0) -> Head:
    """Fits the head by L-BFGS on the weighted log-loss.

    Args:
        hidden: units of the hidden layer; 0 is a logistic regression.
        reject_weight: how many times a rejected token counts, an accepted one counting once. With 1
            the head predicts chances; above 1 it errs towards stopping (the authors' script takes 6).
        seed: of the first weights.

    Returns:
        The head; ``about`` has its log-loss on the examples that it was not trained on, beside that
        of the best constant.

    Raises:
        InputError: all tokens stood, or none, so there is nothing to tell apart.
    """
    rows, stood = examples.part(held_out=False)
    if not 0 < float(stood.sum()) < len(stood):
        word = "was accepted" if float(stood.sum()) else "was rejected"
        raise InputError(f"there is nothing to learn: every drafted token of the traces {word}.")
    head = _fresh(rows, hidden, seed)
    parameters = [value.requires_grad_() for value in _trained(head)]
    search = torch.optim.LBFGS(
        parameters, max_iter=STEPS, line_search_fn="strong_wolfe", tolerance_grad=1e-7
    )

    def closure() -> Tensor:
        search.zero_grad()
        decay = sum((value**2).sum() for value in parameters if value.dim() > 0)
        loss = weighted_loss(head.logits(rows), stood, reject_weight) + DECAY * decay
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    search.step(closure)  # type: ignore[no-untyped-call]
    for value in parameters:
        value.requires_grad_(False)
    return replace(head, about=_report(head, examples, reject_weight, seed))


def weighted_loss(logits: Tensor, stood: Tensor, reject_weight: float) -> Tensor:
    """Mean log-loss in nats, rejected tokens counted ``reject_weight`` times."""
    weights = torch.where(stood > 0, 1.0, reject_weight)
    losses = binary_cross_entropy_with_logits(logits, stood, reduction="none")
    return (weights * losses).sum() / weights.sum()


def constant_loss(trained_on: Tensor, stood: Tensor, reject_weight: float) -> float:
    """The same of the best constant, which the training examples give."""
    accepted = float(trained_on.sum())
    odds = accepted / (reject_weight * (len(trained_on) - accepted))
    logits = torch.full_like(stood, odds).log()
    return float(weighted_loss(logits, stood, reject_weight))


def _fresh(rows: Tensor, hidden: int, seed: int) -> Head:
    scale = rows.std(0, correction=0)
    scale = torch.where(scale > 1e-9, scale, 1.0)
    width, noise = len(FEATURES), torch.Generator().manual_seed(seed)
    real = torch.float64
    inner = torch.randn(hidden, width, generator=noise, dtype=real) / width**0.5
    outer = torch.randn(hidden, generator=noise, dtype=real) / max(hidden, 1) ** 0.5
    if not hidden:
        outer = torch.zeros(width, dtype=real)
    return Head(
        rows.mean(0),
        scale,
        inner,
        torch.zeros(hidden, dtype=real),
        outer,
        torch.zeros(1, dtype=real),
    )


def _trained(head: Head) -> list[Tensor]:
    layer = [head.inner, head.inner_bias] if head.hidden else []
    return [*layer, head.outer, head.outer_bias]


def _report(head: Head, examples: Examples, reject_weight: float, seed: int) -> dict[str, Any]:
    rows, stood = examples.part(held_out=True)
    trained_on = examples.part(held_out=False)[1]
    held_out = len(stood) > 0
    if not held_out:  # short traces
        rows, stood = examples.part(held_out=False)
    return {
        "examples": len(examples.stood),
        "accepted": float(examples.stood.mean()),
        "reject_weight": reject_weight,
        "seed": seed,
        "held_out": held_out,
        "log_loss": float(weighted_loss(head.logits(rows), stood, reject_weight)),
        "constant_log_loss": constant_loss(trained_on, stood, reject_weight),
    }
