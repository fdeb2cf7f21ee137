"""Draws of the whole engine against the law of plain decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..decoding import Parts, decode
from ..requests import Answer, Request
from ..targets.table import TableTarget
from .laws import chi_square
from .reference import reference_joint

Setting = dict[str, Any]  # fields of Request


def law_p_values(
    parts: Parts,
    settings: Sequence[Setting],
    prompt: list[int],
    tokens: int,
    draws: int,
    batch: int = 2000,
    seed: int = 11,
) -> list[float]:
    """One chi-square p-value per setting, from ``draws`` answers; settings alternate within a
    batch, row by row. The target has to be a table."""
    target = parts.target
    assert isinstance(target, TableTarget)
    counts = [torch.zeros((target.vocab_size + 1) ** tokens) for _ in settings]
    for begin in range(0, draws, batch):
        rows = [
            Answer(Request(list(prompt), tokens, seed=seed, index=i, **settings[i % len(settings)]))
            for i in range(begin, min(begin + batch, draws))
        ]
        for _ in decode(parts, rows):
            pass
        for row in rows:
            counts[row.request.index % len(settings)][_cell(row, target, tokens)] += 1
    ends = tuple(target.eos_ids)
    found = []
    for setting, count in zip(settings, counts, strict=True):
        request = Request(list(prompt), tokens, **setting)
        found.append(
            chi_square(count, reference_joint(table_logits(target), request, tokens, ends))
        )
    return found


def table_logits(target: TableTarget) -> Any:
    """The table as a function of a text."""

    def logits(text: list[int]) -> Tensor:
        base, key = target.vocab_size + 1, 0
        for token in ([target.vocab_size] * target.order + text)[len(text) :]:
            key = key * base + token
        return target.logits[key]

    return logits


def _cell(answer: Answer, target: TableTarget, tokens: int) -> int:
    missing = [target.vocab_size] * (tokens - len(answer.token_ids))
    cell = 0
    for token in answer.token_ids + missing:
        cell = cell * (target.vocab_size + 1) + token
    return cell
