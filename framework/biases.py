"""Logit bias, bad words and a least length: what adds to logits, or bans tokens.

Each changes ``out [batch, places, vocab]`` in place, for the few ids it is about. Lists of
different lengths are padded with entries that have no effect.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from .controls import Committed
from .device import upload
from .errors import ConfigError
from .params import SamplingParams
from .tree import Branches

_LARGE = 1e30  # and twice that is not infinite, not even in float32
_ANY, _MISSING = -1, -2  # in place of an id: whatever stands there; nothing stands there


class LogitBias:
    """Adds a row's biases to the logits of its ids."""

    def __init__(
        self, params: Sequence[SamplingParams], vocab_size: int, device: torch.device | str
    ) -> None:
        for p in params:
            _check_ids("logit_bias", p.logit_bias, vocab_size)
        self._device = device
        values = [[_finite(bias) for bias in p.logit_bias.values()] for p in params]
        self._ids = _table([list(p.logit_bias) for p in params], 0, torch.int64, device)
        self._values = _table(values, 0.0, torch.float64, device)

    def wanted(self, params: SamplingParams) -> bool:
        """Whether a row needs this."""
        return bool(params.logit_bias)

    def select(self, rows: list[int]) -> None:
        """Keeps the given rows."""
        index = upload(rows, self._device)
        self._ids, self._values = self._ids[index], self._values[index]

    def change(self, out: Tensor, committed: Committed, branches: Branches) -> None:
        """The same at every place."""
        shape = (-1, out.shape[1], -1)
        values = self._values.to(out.dtype).unsqueeze(1).expand(shape)
        out.scatter_add_(2, self._ids.unsqueeze(1).expand(shape), values)


class BadWords:
    """Bans a word's last id wherever the text ends with the ids before it.

    Transformers' rules: ids of the prompt count, and a word that is one end token has no effect.
    """

    def __init__(
        self,
        params: Sequence[SamplingParams],
        eos_ids: frozenset[int],
        vocab_size: int,
        device: torch.device | str,
    ) -> None:
        for p in params:
            _check_ids("bad_words", chain.from_iterable(p.bad_words), vocab_size)
        self._device, ends = device, [[token] for token in eos_ids]
        words = [[word for word in p.bad_words if word not in ends] for p in params]
        self._reach = max([len(word) - 1 for row in words for word in row], default=0)
        starts = [[_left(word[:-1], self._reach, _ANY) for word in row] for row in words]
        table = _table(starts, [_ANY] * self._reach, torch.int64, device)
        self._last = _table([[word[-1] for word in row] for row in words], 0, torch.int64, device)
        self._real = _table([[True for _ in row] for row in words], False, torch.bool, device)
        self._starts = table.view(*self._last.shape, self._reach)

    def wanted(self, params: SamplingParams) -> bool:
        """Whether a row needs this."""
        return bool(params.bad_words)

    def select(self, rows: list[int]) -> None:
        """Keeps the given rows."""
        index = upload(rows, self._device)
        self._starts, self._last = self._starts[index], self._last[index]
        self._real = self._real[index]

    def change(self, out: Tensor, committed: Committed, branches: Branches) -> None:
        """Compares the newest ids before each place with the beginning of each word."""
        complete = self._real.unsqueeze(1).expand(-1, out.shape[1], -1)
        if self._reach:
            tails = [_left(ids[-self._reach :], self._reach, _MISSING) for ids in committed]
            newest = branches.last(self._reach, upload(tails, self._device)).unsqueeze(2)
            starts = self._starts.unsqueeze(1)
            complete = complete & ((newest == starts) | (starts == _ANY)).all(-1)
        _ban(out, self._last, complete)


class LeastLength:
    """Bans the end tokens until an answer has so many tokens."""

    def __init__(
        self,
        params: Sequence[SamplingParams],
        prompt_lengths: Sequence[int],
        eos_ids: frozenset[int],
        vocab_size: int,
        device: torch.device | str,
    ) -> None:
        self._device = device
        self._enough = [
            prompt + p.min_new_tokens for p, prompt in zip(params, prompt_lengths, strict=True)
        ]
        self._ends = upload(sorted(token for token in eos_ids if 0 <= token < vocab_size), device)

    def wanted(self, params: SamplingParams) -> bool:
        """Whether a row needs this."""
        return params.min_new_tokens > 0 and len(self._ends) > 0

    def select(self, rows: list[int]) -> None:
        """Keeps the given rows."""
        self._enough = [self._enough[row] for row in rows]

    def change(self, out: Tensor, committed: Committed, branches: Branches) -> None:
        """Nothing, once every row has enough."""
        pairs = zip(self._enough, committed, strict=True)
        missing = [enough - len(ids) for enough, ids in pairs]
        if max(missing) <= 0:
            return
        short = branches.lengths < upload(missing, self._device).unsqueeze(1)
        shape = (*short.shape, len(self._ends))
        _ban(out, self._ends.expand(len(missing), -1), short.unsqueeze(-1).expand(shape))


def _ban(out: Tensor, ids: Tensor, where: Tensor) -> None:
    """``-inf`` for ``ids [batch, n]`` where ``where [batch, places, n]`` says so."""
    # By the least of several, since one id may be there twice, banned and not.
    limits = torch.zeros_like(where, dtype=out.dtype).masked_fill(where, -math.inf)
    limits.masked_fill_(~where, math.inf)
    out.scatter_reduce_(2, ids.unsqueeze(1).expand_as(where), limits, "amin")


def _check_ids(key: str, ids: Iterable[int], vocab_size: int) -> None:
    for token in ids:
        if token >= vocab_size:
            raise ConfigError(
                f"sampling.{key} has the token id {token}, which is not possible; the largest id "
                f"of the target is {vocab_size - 1}."
            )


def _finite(bias: float) -> float:
    return bias if bias == -math.inf else max(-_LARGE, min(bias, _LARGE))


def _table(
    rows: list[list[Any]], filler: Any, dtype: torch.dtype, device: torch.device | str
) -> Tensor:
    """Rows of different lengths, filled up."""
    longest = max(map(len, rows), default=0)
    padded = [row + [filler] * (longest - len(row)) for row in rows]
    return upload(torch.tensor(padded, dtype=dtype), device)


def _left(ids: Sequence[int], length: int, filler: int) -> list[int]:
    return [filler] * (length - len(ids)) + list(ids)
