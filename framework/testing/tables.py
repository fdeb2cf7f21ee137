"""A drafter that drafts from a table: with a table target, every law of a run is known exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from ..bases import StepSession
from ..context import Context
from ..growth import Growth
from ..interfaces import Drafter
from ..targets.table import TableTarget
from ..tree_bases import Frontier, TreeStepSession


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
        key = torch.zeros(self.context.rows, dtype=torch.int64)
        for token in self.context.newest(self.table.order, drafted).unbind(1):
            key = key * (self.table.vocab_size + 1) + token
        return self.table.logits[key]


class TableTreeDrafter(Drafter):
    """The same as trees, grown by a plan."""

    def __init__(self, table: TableTarget, growth: Growth) -> None:
        growth.check_vocabulary(table.vocab_size)
        self.table, self.growth = table, growth
        self.kind, self.max_nodes = growth.kind, growth.max_nodes

    def start(self, context: Context) -> TableTreeSession:
        return TableTreeSession(self.table, self.growth, context)


class TableTreeSession(TreeStepSession):
    """Looks up the newest ``order`` tokens before each place."""

    def __init__(self, table: TableTarget, growth: Growth, context: Context) -> None:
        super().__init__(context, growth)
        self.table = table

    def next_logits_at(self, frontier: Frontier) -> Tensor:
        order = self.table.order
        newest = self.context.newest(order)
        key = torch.zeros_like(frontier.at)
        for token in frontier.last(order, newest).unbind(-1) if order else ():
            key = key * (self.table.vocab_size + 1) + token
        return self.table.logits[key]
