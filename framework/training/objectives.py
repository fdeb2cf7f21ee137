"""What a guess is judged by: how far the draft law is from the target's.

| name | loss of a token |
|---|---|
| ``ce`` | cross-entropy against the target's own law, or against the id that it chose |
| ``kl`` | ``sum p log(p / q)`` |
| ``reverse_kl`` | ``sum q log(q / p)`` |
| ``tv`` | ``1 - sum min(p, q)``, which is ``1 - alpha`` (Leviathan et al. 2023, Corollary 3.6) |

With a reduced vocabulary the sums are over its ids. There the draft law is whole, and the target's is
what it gives to these ids: a drafter cannot win what it cannot draft.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
TINY = 1e-9


def _kl(target: Tensor, logs: Tensor, chosen: Tensor) -> Tensor:
    return (target * (target.clamp_min(TINY).log() - logs)).sum(-1)


def _reverse(target: Tensor, logs: Tensor, chosen: Tensor) -> Tensor:
    return (logs.exp() * (logs - target.clamp_min(TINY).log())).sum(-1)


def _tv(target: Tensor, logs: Tensor, chosen: Tensor) -> Tensor:
    return 1 - overlap(target, logs)


def _ce(target: Tensor, logs: Tensor, chosen: Tensor) -> Tensor:
    known = chosen >= 0  # an id that the drafter lacks teaches nothing
    return -logs.gather(-1, chosen.clamp_min(0).unsqueeze(-1)).squeeze(-1) * known


LOSSES: dict[str, Loss] = {"ce": _ce, "kl": _kl, "reverse_kl": _reverse, "tv": _tv}


def overlap(target: Tensor, logs: Tensor) -> Tensor:
    """Alpha of each place: ``sum min(p, q)``, from laws ``[..., ids]`` and log-laws alike."""
    return torch.minimum(target, logs.exp()).sum(-1)


def mixed(weights: Mapping[str, float], target: Tensor, logits: Tensor, chosen: Tensor) -> Tensor:
    """The weighted sum of losses, place by place.

    Args:
        weights: by name.
        target: ``[..., ids]``, the target's law at the ids that are drafted.
        logits: ``[..., ids]``, the drafter's.
        chosen: ``[...]``, the place of the target's id among these, or -1.
    """
    logs = logits.float().log_softmax(-1)
    whole = torch.zeros_like(chosen, dtype=torch.float32)
    for name, weight in weights.items():
        whole = whole + weight * LOSSES[name](target, logs, chosen)
    return whole
