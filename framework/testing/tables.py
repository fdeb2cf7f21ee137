"""A drafter that drafts from a table: with a table target, every law of a run is known exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from ..bases import StepSession
from ..interfaces import Context, Drafter
from ..targets.table import TableTarget


class TableDrafter(Drafter):
    """Drafts from ``table`` through the requests' own sampling; a full draft law."""

    def __init__(self, table: TableTarget) -> None:
        self.table = table

    def start(self, context: Context) -> TableDraftSession:
        return TableDraftSession(self.table, context)


class TableDraftSession(StepSession):
    """Looks the newest ``order`` tokens up; nothing to roll back."""

    def __init__(self, table: TableTarget, context: Context) -> None:
        super().__init__(context)
        self.table = table

    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        order, base = self.table.order, self.table.vocab_size + 1
        missing = [self.table.vocab_size] * order
        newest = torch.tensor(
            [[*missing, *row[-order:]][-order:] if order else [] for row in self.context.tokens]
        )
        chain = torch.cat(
            [newest.long().reshape(self.context.rows, order), *[d[:, None] for d in drafted]], 1
        )
        key = torch.zeros(self.context.rows, dtype=torch.int64)
        for token in chain[:, chain.shape[1] - order :].unbind(1):
            key = key * base + token
        return self.table.logits[key]
