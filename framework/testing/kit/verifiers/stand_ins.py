"""Targets, drafters of every kind and a policy, for running the engine around a rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ....bases import TokenSession
from ....context import Context
from ....growth import Growth
from ....interfaces import Drafter, GammaPolicy, PolicySession
from ....records import Draft
from ....specs import DETERMINISTIC, INDEPENDENT, DraftKind
from ....targets.builtin import TableConfig
from ....targets.table import TableTarget
from ...draws import table_logits
from ...tables import TableDrafter, TableDraftSession, TableTreeDrafter


def table_of(seed: int, vocab: int, zeros: float) -> TableTarget:
    config = TableConfig(vocab_size=vocab, order=2, sharpness=1.2, zeros=zeros, seed=seed)
    return TableTarget.from_config(config)


def near(target: TableTarget, seed: int) -> TableTarget:
    """A table that agrees with the target behind some texts, and hardly behind others."""
    generator = torch.Generator().manual_seed(seed + 1000)  # not the table's own
    noise = torch.randn(target.logits.shape, generator=generator, dtype=torch.float64)
    scale = torch.where(torch.arange(len(noise)) % 2 > 0, 0.3, 3.0).unsqueeze(1)
    return TableTarget((target.logits + scale * noise).softmax(-1), target.order)


def greedy_text(target: TableTarget, prompt: list[int], tokens: int) -> list[int]:
    """The greedy text, looked up token by token."""
    logits, text = table_logits(target), list(prompt)
    for _ in range(tokens):
        text.append(int(logits(text).argmax()))
    return text[len(prompt) :]


def drafter_of(kind: DraftKind, table: TableTarget) -> Drafter:
    """Drafts of this kind from a table."""
    if kind.tree:
        return TableTreeDrafter(table, Growth(widths=(2, 2, 1, 1), children=kind.drawn))
    if kind.drawn == DETERMINISTIC:
        return _Likeliest(table)
    return TableDrafter(table) if kind.drawn == INDEPENDENT else _Renamed(table, kind)


class _Renamed(TableDrafter):
    """A chain has one child per node, so any way of drawing is the same."""

    def __init__(self, table: TableTarget, kind: DraftKind) -> None:
        super().__init__(table)
        self.kind = kind

    def start(self, context: Context) -> TableDraftSession:
        return _RenamedSession(self.table, context, self.kind.drawn)


class _RenamedSession(TableDraftSession):
    def __init__(self, table: TableTarget, context: Context, drawn: str) -> None:
        super().__init__(table, context)
        self.drawn = drawn

    def propose(self, gammas: list[int]) -> Draft:
        draft = super().propose(gammas)
        return replace(draft, drawn=self.drawn) if draft.width else draft


class _Likeliest(Drafter):
    """The table's likeliest tokens, chosen and not drawn."""

    kind = DraftKind(DETERMINISTIC)

    def __init__(self, table: TableTarget) -> None:
        self.table = table

    def start(self, context: Context) -> TokenSession:
        return _LikeliestSession(context, self.table)


class _LikeliestSession(TokenSession):
    def continuation(self, row: int, gamma: int) -> Sequence[int]:
        return greedy_text(self.config, self.context.tokens[row], gamma)


@dataclass(frozen=True)
class Uneven(GammaPolicy):
    """From ``gamma`` down to 0, another number in each row and round."""

    gamma: int

    def start(self, context: Context) -> PolicySession:
        return _UnevenSession(context, self.gamma)


class _UnevenSession(PolicySession):
    def __init__(self, context: Context, config: Any = None) -> None:
        super().__init__(context, config)
        self.places = list(range(context.rows))

    def gammas(self) -> list[int]:
        most, index = self.config, self.context.round_index
        return [most - (place + index) % (most + 1) for place in self.places]

    def select(self, rows: list[int]) -> None:
        self.places = [self.places[row] for row in rows]
