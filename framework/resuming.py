"""Verifying a draft whose tokens the target's first layers have run already.

A drafter that drafts with these layers leaves their cache entries where the target wants them, and
hands over the hidden states behind them (``records.Ahead``). What is left is the other layers, and
the first ones for tokens that were drawn but not run: the last one of each row (LayerSkip, Elhoushi
et al. 2024, arXiv:2404.16710, section 4.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .cache import RaggedModel
from .device import upload
from .models import near
from .records import Ahead
from .views import View, first_layers, rest_of


@dataclass(frozen=True)
class Halves:
    """A model in two parts.

    Args:
        first: its first layers, up to their hidden states.
        rest: the others, from these states to logits.
    """

    first: View
    rest: View


def halves_of(model: Any, layers: int, key: str) -> Halves:
    """The parts before and behind layer number ``layers``. Each session needs its own: a part holds
    the states that it was given while it runs."""
    return Halves(first_layers(model, layers, key), rest_of(model, layers, key))


@torch.inference_mode()
def resume(
    ragged: RaggedModel, halves: Halves, tokens: Tensor, counts: list[int], ahead: Ahead
) -> Tensor:
    """What ``ragged.forward(tokens, counts)`` gives, by the layers that have not run yet."""
    known = [min(n, count) for n, count in zip(ahead.counts, counts, strict=True)]
    rows, width = tokens.shape
    size = ahead.hidden.shape[2]
    # One column more takes what is padding.
    hidden = ahead.hidden.new_zeros(rows, width + 1, size)
    have = min(width, ahead.hidden.shape[1])
    hidden[:, :have] = ahead.hidden[:, :have]
    missing = [count - n for count, n in zip(counts, known, strict=True)]
    if any(missing):
        columns = _columns(known, missing, width, tokens.device)
        fed = tokens.gather(1, columns.clamp(max=width - 1))
        more = ragged.forward(fed, missing, ahead=known, view=halves.first, logits=False)
        at = columns.to(more.device).unsqueeze(2).expand(-1, -1, size)
        hidden.scatter_(1, at, more.to(hidden))
    return _behind(ragged, halves.rest, tokens, counts, hidden[:, :width])


def _columns(known: list[int], missing: list[int], width: int, device: Any) -> Tensor:
    """Where each row's missing tokens stand, ``[rows, most]``; ``width`` for padding."""
    most = max(missing)
    places = [
        [*range(begin, begin + count), *[width] * (most - count)]
        for begin, count in zip(known, missing, strict=True)
    ]
    return upload(places, device)


def _behind(
    ragged: RaggedModel, rest: View, tokens: Tensor, counts: list[int], hidden: Tensor
) -> Tensor:
    assert rest.begin is not None
    rest.begin.given = hidden
    try:
        return ragged.forward(tokens, counts, view=rest)
    finally:
        rest.begin.given = None


@torch.inference_mode()
def resumes(model: Any, layers: int) -> bool:
    """Whether a model can be taken apart behind this layer: tried on five tokens, because some hand
    more from layer to layer than hidden states."""
    tokens = torch.tensor([[1, 2, 3, 0, 1]], device=model.device)
    try:
        whole = model(input_ids=tokens, use_cache=False)[0][:, 2:]
        halves = halves_of(model, layers, "drafter=early_exit")
        ragged = RaggedModel(model, 1, 8)
        ragged.forward(tokens[:, :2], [2])
        ragged.advance([2])
        hidden = ragged.forward(tokens[:, 2:4], [2], view=halves.first, logits=False)
        found = resume(
            ragged, halves, tokens[:, 2:], [3], Ahead(tokens[:, 3:], layers, hidden, [2])
        )
    except Exception:  # whatever it is, the model is verified as any other
        return False
    return near(found.to(whole.device), whole, model)
