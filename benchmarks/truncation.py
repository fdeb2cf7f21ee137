"""Milliseconds of truncation against a full sort of the vocabulary, on this machine's CPU.

    python benchmarks/truncation.py [--vocab 49152] [--width 9] [--batch 1 8] [--repeats 9]

Laws are made up: "peaked" falls with the rank about as a small language model's does, with
surer and less sure rows; "flat" is where a selection cannot settle top-p. Both sides take turns;
figures are medians, the last column is their ratio. One thread, float32.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from unittest import mock

import torch
from torch import Tensor

from foredraft.framework import truncation
from foredraft.framework.truncation import min_p, top_k, top_p

Side = Callable[[], Tensor]


def law(kind: str, shape: tuple[int, int, int]) -> Tensor:
    """Scores ``[batch, width, vocab]`` in float32."""
    if kind == "flat":
        return torch.randn(shape) * 0.1
    rank = torch.rand(shape).argsort(-1) + 1.0
    steep = 1.3 + torch.rand(*shape[:2], 1)
    return -steep * (rank + 2).log() + torch.randn(shape) * 0.3


def sorting(side: Side) -> Tensor:
    """The same rule, by the full sort that stands behind every selection."""
    with mock.patch.object(truncation, "_reads_pay", lambda scores: False):
        return side()


def sorted_top_k(scores: Tensor, k: int) -> Tensor:
    least = scores.sort(dim=-1, descending=True).values[..., k - 1 : k]
    return torch.where(scores < least, -torch.inf, scores)


def sorted_min_p(scores: Tensor, p: float) -> Tensor:
    ordered, index = scores.softmax(-1).sort(dim=-1, descending=True)
    drop = (ordered < p * ordered[..., :1]).scatter(-1, index, ordered < p * ordered[..., :1])
    return torch.where(drop, -torch.inf, scores)


def pairs(scores: Tensor) -> dict[str, tuple[Side, Side]]:
    """``control: (by full sort, ours)``."""

    def column(value: float) -> Tensor:
        return torch.full((len(scores), 1, 1), value, dtype=torch.float64)

    k, p90, p95, least = column(50).long(), column(0.9), column(0.95), column(0.05)

    def both() -> Tensor:
        return top_p(top_k(scores, k, 50), p90, 50)

    def nucleus(p: Tensor) -> tuple[Side, Side]:
        return lambda: sorting(lambda: top_p(scores, p)), lambda: top_p(scores, p)

    return {
        "top-k 50": (lambda: sorted_top_k(scores, 50), lambda: top_k(scores, k, 50)),
        "top-p 0.9": nucleus(p90),
        "top-p 0.95": nucleus(p95),
        "top-k 50, top-p 0.9": (lambda: sorting(both), both),
        "min-p 0.05": (lambda: sorted_min_p(scores, 0.05), lambda: min_p(scores, least)),
    }


def timed(side: Side) -> float:
    start = time.perf_counter()
    side()
    return (time.perf_counter() - start) * 1e3


def medians(sides: tuple[Side, Side], repeats: int) -> list[float]:
    """Each side once, then in turn; the side that goes first changes."""
    if not torch.equal(sides[0](), sides[1]()):
        raise SystemExit("The two sides keep different tokens: the figures would mean nothing.")
    times: tuple[list[float], list[float]] = ([], [])
    for repeat in range(repeats):
        for which in (0, 1) if repeat % 2 == 0 else (1, 0):
            times[which].append(timed(sides[which]))
    return [statistics.median(each) for each in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--vocab", type=int, default=49_152)
    parser.add_argument("--width", type=int, default=9)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{'law':8}{'batch':>6}  {'control':22}{'sort ms':>9}{'ours ms':>9}{'ratio':>8}")
    for kind in ("peaked", "flat"):
        for batch in given.batch:
            scores = law(kind, (batch, given.width, given.vocab))
            for name, sides in pairs(scores).items():
                full, ours = medians(sides, given.repeats)
                row = f"{kind:8}{batch:6}  {name:22}{full:9.1f}{ours:9.1f}"
                print(f"{row}{ours / full:8.3f}", flush=True)


if __name__ == "__main__":
    main()
