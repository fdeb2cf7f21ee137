"""What drafters learn from a round: the ids that were fed to the target, and tables to keep it in.

All of it stays on the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .context import Context
from .device import upload
from .records import Round, Scored


@dataclass(frozen=True)
class Fed:
    """What the target was fed in a round, and how much each place of it is worth.

    Args:
        tokens: ``[batch, width + 1]``, the newest id before the round, then the drafted nodes.
        order: ``[batch, width + 1]``: of two places that say something about the same thing, the
            higher one counts. Later is higher, and what was accepted is above what was not. -1
            is padding.
    """

    tokens: Tensor
    order: Tensor

    @classmethod
    def of(cls, outcome: Round, scored: Scored, context: Context) -> Fed:
        """A round, as ``observe`` hears of it."""
        draft, device = scored.draft, context.device
        places = draft.width + 1
        # The ids of the round are committed by now: the one before them was fed.
        pairs = zip(context.tokens, outcome.rows, strict=True)
        newest = upload([[ids[-1 - len(row.emitted)]] for ids, row in pairs], device)
        stood = [[places, *([0] * draft.width)] for _ in outcome.rows]
        for line, row in zip(stood, outcome.rows, strict=True):
            for node in row.path:
                line[node + 1] = places
        order = torch.arange(places, device=device) + upload(stood, device)
        real = torch.nn.functional.pad(draft.mask, (1, 0), value=True)
        return cls(torch.cat([newest, draft.tokens], 1), order.where(real, -1))


def write(table: Tensor, slots: Tensor, keys: Tensor, values: Tensor, order: Tensor) -> None:
    """Writes into each row's part of a table; of equal keys the one highest in ``order`` wins.

    Args:
        table: ``[parts, places + 1, ...]``; the last place takes what is not to be kept.
        slots: ``[batch]``, each row's part.
        keys: ``[batch, count]``, places.
        values: ``[batch, count, ...]``.
        order: ``[batch, count]``, different numbers within a row; below 0 is not written.
    """
    above = order.unsqueeze(1) > order.unsqueeze(2)
    beaten = ((keys.unsqueeze(1) == keys.unsqueeze(2)) & above).any(-1)
    # Only one write per place is left, so that the result does not depend on their order.
    places = keys.where((order >= 0) & ~beaten, table.shape[1] - 1)
    table[slots.unsqueeze(1), places] = values.to(table.dtype)
