"""Standardised sampling: the one function from logits to a law.

Leviathan et al. 2023, section 2.2: greedy, temperature, top-k and nucleus sampling are all "sample
from an adjusted law". The target and (by default) the drafter go through the same function, so
the verification rule only ever sees laws. Order and tie rules follow transformers: temperature,
top-k, top-p, min-p.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .params import SamplingParams


class Sampler:
    """Turns logits into laws for a batch whose rows may all sample differently."""

    def __init__(self, params: Sequence[SamplingParams], device: torch.device | str) -> None:
        self.params = list(params)
        self.device = torch.device(device)
        self._tensors()

    def select(self, rows: list[int]) -> None:
        """Keeps the given rows, in that order."""
        self.params = [self.params[row] for row in rows]
        self._tensors()

    def law(self, logits: Tensor) -> Tensor:
        """``logits [batch, ..., vocab]`` -> laws of the same shape, in float32 (float64 if given).

        Half-precision logits are widened first: laws are never computed in half precision.
        """
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self._all_greedy:
            return one_hot_argmax(logits)
        rows = (len(self.params),) + (1,) * (logits.dim() - 1)
        probs = self._filtered(logits, rows).softmax(-1)
        if not self._any_greedy:
            return probs
        return torch.where(self._greedy.view(rows), one_hot_argmax(logits), probs)

    def _filtered(self, logits: Tensor, rows: tuple[int, ...]) -> Tensor:
        # Shifting by the maximum first keeps tiny temperatures finite.
        shifted = logits - logits.amax(-1, keepdim=True)
        # What a temperature rounds to in the logits' dtype must stay positive and finite.
        kind = torch.finfo(logits.dtype)
        temperature = self._temperature.to(logits.dtype).clamp(kind.tiny, kind.max)
        scores = shifted / temperature.view(rows)
        if self._widest:
            scores = _top_k(scores, self._top_k.view(rows), self._widest)
        if self._use_top_p:
            scores = _top_p(scores, self._top_p.view(rows).to(logits.dtype))
        if self._use_min_p:
            scores = _min_p(scores, self._min_p.view(rows).to(logits.dtype))
        return scores

    def _tensors(self) -> None:
        """Host-known switches and per-row tensors, rebuilt only when the rows change."""
        params = self.params
        self._all_greedy = all(p.greedy for p in params)
        self._any_greedy = any(p.greedy for p in params)
        self._widest = max(p.top_k for p in params)  # on the host: no device read
        self._use_top_p = any(p.top_p < 1 for p in params)
        self._use_min_p = any(p.min_p > 0 for p in params)
        self._greedy = torch.tensor([p.greedy for p in params], device=self.device)
        self._temperature = self._column([p.temperature or 1.0 for p in params])
        self._top_k = torch.tensor([p.top_k for p in params], device=self.device)
        self._top_p = self._column([p.top_p for p in params])
        self._min_p = self._column([p.min_p for p in params])

    def _column(self, values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self.device)


def one_hot_argmax(logits: Tensor) -> Tensor:
    """All mass on the largest logit, the first one on a tie; NaN where the logits allow none."""
    best = logits.max(-1, keepdim=True).values
    one = best * 0 + 1  # NaN, and so noticed, for NaN and for rows of -inf
    return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), one)


def _top_k(scores: Tensor, k: Tensor, widest: int) -> Tensor:
    """Per-row k; 0 keeps all. A partial selection, not a sort of the vocabulary."""
    vocab = scores.shape[-1]
    widest = min(widest, vocab)
    best = scores.topk(widest, dim=-1).values
    index = (k.clamp(min=1, max=widest) - 1).expand(*scores.shape[:-1], 1)
    kth = best.gather(-1, index)
    return scores.masked_fill((scores < kth) & (k > 0) & (k < vocab), -math.inf)


def _top_p(scores: Tensor, p: Tensor) -> Tensor:
    """Keeps a token while the mass of the likelier ones is below p; the first always stays."""
    ordered, index = torch.sort(scores.softmax(-1), dim=-1, descending=True, stable=True)
    drop = (ordered.cumsum(-1) - ordered >= p) & (p < 1)
    drop[..., 0] = False
    return scores.masked_fill(torch.zeros_like(drop).scatter(-1, index, drop), -math.inf)


def _min_p(scores: Tensor, p: Tensor) -> Tensor:
    probs = scores.softmax(-1)
    return scores.masked_fill(probs < p * probs.amax(-1, keepdim=True), -math.inf)
