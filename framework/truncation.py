"""Truncation of laws, row by row: top-k, top-p, min-p and locally typical sampling.

Top-p: Holtzman et al. 2020, section 3.1; min-p: Nguyen et al. 2024; typical: Meister et al. 2023,
section 4. Rules, ties and rounding follow transformers' warpers, with a stable sort where theirs
leaves the order of equal scores open. The order in use: temperature, top-k, top-p, min-p, typical.

Each function takes ``scores [batch, ..., vocab]``: log-probabilities up to a constant, after
temperature, -inf where a token is impossible. Dropped tokens become -inf; the rest is not
renormalised. A control is a column ``[batch, 1, ..., 1]``, one value per row; a row whose control
is off is left as it is. Rows without a law (NaN, or -inf throughout) stay without one.

Sorting the vocabulary is the dear part, and most laws are settled by a few hundred tokens. Whether
they are must be read back, so this shortcut is for the CPU; a device always sorts, which it does
fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

SELECTIONS = (256, 4096)
"""Top-p tries this many of the likeliest tokens, one after the other, before it sorts them all."""

SMALL = 2048
"""Vocabularies below this size are always sorted: nothing to gain."""


def top_k(scores: Tensor, k: Tensor, widest: int) -> Tensor:
    """Keeps the ``k`` likeliest tokens and all that tie with the last of them; 0 keeps all.

    ``k`` holds integers; ``widest`` is the largest of them, known on the host, at least 1.
    """
    widest = min(widest, scores.shape[-1])
    best = scores.topk(widest, dim=-1).values
    index = (k.clamp(min=1, max=widest) - 1).expand(*scores.shape[:-1], 1)
    least = best.gather(-1, index).masked_fill(k == 0, -math.inf)
    return torch.where(scores < least, -math.inf, scores)


def top_p(scores: Tensor, p: Tensor, widest: int = 0) -> Tensor:
    """Keeps the likeliest tokens until their mass reaches ``p``; 1 keeps all.

    Args:
        scores: See above.
        p: Float64, so that ``1 - p`` is rounded once, as in transformers. The likeliest token
            stays whatever ``p`` is. Of equal scores the one with the higher id stays.
        widest: The largest k if every row with top-p has been through top-k, 0 otherwise.
    """
    return _where(p < 1, lambda rows, left: _nucleus(rows, left, widest), scores, 1 - p)


def min_p(scores: Tensor, p: Tensor) -> Tensor:
    """Drops tokens less likely than ``p`` times the likeliest one; 0 keeps all."""
    probs = scores.softmax(-1)
    least = p.to(scores.dtype) * probs.amax(-1, keepdim=True)
    return torch.where(probs < least, -math.inf, scores)


def typical_p(scores: Tensor, mass: Tensor) -> Tensor:
    """Keeps the tokens whose surprise is nearest to the entropy until ``mass``; 1 keeps all."""
    return _where(mass < 1, _typical, scores, mass)


def _where(
    on: Tensor, change: Callable[[Tensor, Tensor], Tensor], scores: Tensor, value: Tensor
) -> Tensor:
    """``change(scores, value)`` in the rows that are on; on the CPU it runs for them alone."""
    if not _reads_pay(scores):
        changed = change(scores, value.to(scores.dtype))
        return torch.where(on, changed, scores)
    column = (*scores.shape[:-1], 1)
    rows = scores.reshape(-1, scores.shape[-1])
    value = value.to(scores.dtype).expand(column).reshape(-1, 1)
    at = on.expand(column).reshape(-1).nonzero()[:, 0]
    if len(at) == len(rows):
        return change(rows, value).view(scores.shape)
    return rows.index_copy(0, at, change(rows[at], value[at])).view(scores.shape)


def _reads_pay(scores: Tensor) -> bool:
    return scores.device.type == "cpu" and scores.shape[-1] >= SMALL


def _nucleus(scores: Tensor, left: Tensor, widest: int) -> Tensor:
    """``left`` is the mass that may be dropped, ``1 - p``."""
    if not _reads_pay(scores):
        return _sorted_nucleus(scores, left)
    if widest:
        return _shortest_nucleus(scores, left, None, (widest + 1,))
    weights = (scores - scores.amax(-1, keepdim=True)).exp_()
    total = weights.sum(-1, keepdim=True, dtype=torch.float64)
    return _shortest_nucleus(scores, left, total, SELECTIONS)


def _shortest_nucleus(
    scores: Tensor, left: Tensor, total: Tensor | None, counts: Sequence[int]
) -> Tensor:
    """By the first selection that settles the row, or by a full sort.

    ``total`` is the weight of all tokens, the likeliest one weighing 1; ``None`` if the selection
    should have them all.
    """
    if not counts or 4 * counts[0] > scores.shape[-1]:
        return _sorted_nucleus(scores, left)
    if total is not None and (counts[0] < (1 - left) * total).all():  # even if all weighed 1
        return _shortest_nucleus(scores, left, total, counts[1:])
    kept, settled = _selected_nucleus(scores, left, total, counts[0])
    rest = (~settled).nonzero()[:, 0]
    if len(rest):
        weight = None if total is None else total[rest]
        kept[rest] = _shortest_nucleus(scores[rest], left[rest], weight, counts[1:])
    return kept


def _sorted_nucleus(scores: Tensor, left: Tensor) -> Tensor:
    """transformers' own steps, for the same rounding: the unlikeliest tokens come first."""
    ordered, index = scores.sort(dim=-1, stable=True)
    drop = ordered.softmax(-1).cumsum(-1) <= left
    drop[..., -1] = False
    return scores.masked_fill(drop.scatter(-1, index, drop), -math.inf)


def _selected_nucleus(
    scores: Tensor, left: Tensor, total: Tensor | None, count: int
) -> tuple[Tensor, Tensor]:
    """The nucleus from the ``count`` likeliest tokens of ``scores [rows, vocab]``.

    Returns the kept scores and, per row, whether a full sort is sure to keep the same.
    """
    best, index = scores.topk(count, dim=-1)
    weight = (best - best[:, :1]).exp().double()
    whole = weight.sum(-1, keepdim=True) if total is None else total
    below = whole - weight.cumsum(-1)  # what all later tokens weigh
    from_here = below + weight
    limit = left.double() * whole
    keep = from_here > limit
    keep[:, 0] = True
    sure = (from_here - limit).abs() > _slack(from_here, below[:, -1:] / whole, whole, scores)
    last, edge = best.gather(-1, keep.sum(-1, keepdim=True) - 1), best[:, -1:]
    fits = edge == -math.inf if total is None else edge < last  # else the edge may tie on outside
    settled = sure[:, 1:].all(-1) & fits[:, 0]
    kept = torch.full_like(scores, -math.inf)
    index = _higher_ids_first(index, best, last, keep)
    return kept.scatter_(-1, index, best.masked_fill(~keep, -math.inf)), settled


def _slack(from_here: Tensor, outside: Tensor, total: Tensor, scores: Tensor) -> Tensor:
    """How far transformers' running mass may be from ours, which is summed in float64.

    Theirs is divided by a sum in the scores' dtype, over eight lanes with the small terms first.
    Rising terms lose at most n / 16 units of what they sum to: here those in the selection, and
    the rest of the vocabulary, whose share is ``outside``. The 64 are for exp and the division.
    """
    unit, vocab = torch.finfo(scores.dtype).eps / 2, scores.shape[-1]
    relative = unit * (64 + (from_here.shape[-1] + vocab * outside) / 16)
    return from_here * relative + total * (vocab * 2.0**-52)


def _higher_ids_first(index: Tensor, best: Tensor, last: Tensor, keep: Tensor) -> Tensor:
    """Orders by id the tokens that tie with the last kept one, where only some of them stay."""
    tied = best == last
    if not (tied & ~keep).any():
        return index
    rank = torch.where(tied, index, -1).masked_fill(best > last, torch.iinfo(torch.int64).max)
    return index.gather(-1, rank.argsort(dim=-1, descending=True, stable=True))


def _typical(scores: Tensor, mass: Tensor) -> Tensor:
    """A full sort: the order is not that of the scores. Ties with the last one kept are kept."""
    logs = scores.log_softmax(-1)
    entropy = -(logs * logs.exp()).nansum(-1, keepdim=True)
    distance = (-logs - entropy).abs()
    ordered, index = distance.sort(dim=-1, stable=True)
    reached = scores.gather(-1, index).softmax(-1).cumsum(-1)
    last = (reached < mass).sum(-1, keepdim=True).clamp(max=scores.shape[-1] - 1)
    return scores.masked_fill(distance > ordered.gather(-1, last), -math.inf)
