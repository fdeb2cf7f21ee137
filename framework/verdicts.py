"""Pieces that verification rules share."""

from __future__ import annotations

import torch
from torch import Tensor

from .records import Draft


def token_probs(target_probs: Tensor, tokens: Tensor) -> Tensor:
    """The target's probability of each drafted token.

    ``target_probs [batch, width + 1, vocab]``, ``tokens [batch, width]`` -> ``[batch, width]``.
    """
    return target_probs[:, : tokens.shape[1]].gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def leading(stands: Tensor) -> Tensor:
    """How many positions stand before the first that does not: ``[batch, width] -> [batch]``."""
    return stands.long().cumprod(-1).sum(-1)


def law_at(target_probs: Tensor, position: Tensor) -> Tensor:
    """The target's law at one position per row: ``[batch, vocab]``."""
    # By flat index: a gather through an expanded one is ten times slower.
    first = torch.arange(len(position), device=position.device) * target_probs.shape[1]
    return target_probs.flatten(0, 1).index_select(0, first + position)


def longest_path(draft: Draft, stands: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The deepest node that stands with all its ancestors, the first drawn among equally deep ones.

    ``stands [batch, width]``. Returns how many nodes lie on its path ``[batch]``, the path
    ``[batch, depth]`` and the row of target laws behind it ``[batch]``.
    """
    rows, width = stands.shape
    if width == 0:
        none = torch.zeros(rows, dtype=torch.int64, device=stands.device)
        return none, none.new_zeros(rows, 0), none
    shape = draft.shape
    whole = ~(shape.ancestors & ~stands.unsqueeze(1)).any(-1)
    score = (shape.depths + 1) * whole
    accepted, node = score.amax(1), score.argmax(1)
    path = shape.paths()[torch.arange(rows, device=node.device), node]
    return accepted, path, torch.where(accepted > 0, node + 1, 0)


def correction_law(draft: Draft, target_probs: Tensor, accepted: Tensor) -> Tensor:
    """The law of the token after the accepted ones (Algorithm 1, last step).

    All of the row's own draft stood: the target's law there. Else: the normalised residual, or,
    where that is empty (target equal to draft, up to rounding), the target's law.
    """
    target_row = law_at(target_probs, accepted)
    if draft.width == 0:
        return target_row
    at = accepted.clamp(max=draft.width - 1).unsqueeze(1)
    residual = draft.law.residual(target_row.unsqueeze(1), at).squeeze(1)
    mass = residual.sum(-1, keepdim=True)
    lengths = draft.mask.sum(-1)
    rejected = (accepted < lengths).unsqueeze(1) & (mass > 0)
    tiny = torch.finfo(mass.dtype).tiny
    return (residual / mass.clamp(min=tiny)).where(rejected, target_row)
