"""Where two greedy answers part, and how near the tie was, by one plain forward of any target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..engine import Engine
from ..interfaces import Target


@dataclass(frozen=True)
class Parting:
    """The first place at which two answers differ.

    Args:
        place: tokens that they share.
        gap: the distance of the two tokens' logits there; infinite where one answer just goes on.
    """

    place: int
    gap: float


def first_difference(
    engine: Engine, prompt: Sequence[int], ours: Sequence[int], theirs: Sequence[int]
) -> Parting | None:
    """Where the answers part; None if they are equal."""
    for place, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        if mine != other:
            logits = _logits(engine.parts.target, [*prompt, *ours[:place]])
            return Parting(place, abs(float(logits[mine] - logits[other])))
    if len(ours) == len(theirs):
        return None
    return Parting(min(len(ours), len(theirs)), math.inf)


@torch.inference_mode()
def _logits(target: Target, ids: list[int]) -> torch.Tensor:
    """``[vocab]``, behind these ids."""
    session = target.start(1, len(ids))
    session.prefill([ids[:-1]])
    fed = torch.tensor([ids[-1:]], device=target.device)
    return session.forward(fed, [1])[0, -1].double()
