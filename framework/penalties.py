"""Penalties on repetition and, in ``biases.py``, biases and bans: all that a request can ask for.

Each gives, per row and place, what transformers' processor of that name gives for the text before
that place (``generation/logits_process.py``); presence and frequency penalties follow vLLM, where
only the answer counts. Order, as in transformers: logit bias (its sequence bias), repetition,
frequency and presence penalty, bad words, least number of new tokens.

Only logits that can change are touched: a penalty looks at the tokens of the text, not at the
vocabulary. Nothing is read back from the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from .biases import BadWords, LeastLength, LogitBias
from .controls import Committed, Control
from .device import upload
from .params import SamplingParams
from .tree import Branches

_LARGE = 1e30  # no sum of such numbers over a text is infinite, not even in float32


def penalties(
    params: Sequence[SamplingParams],
    prompt_lengths: Sequence[int],
    eos_ids: frozenset[int],
    vocab_size: int,
    device: torch.device | str,
) -> Penalties | None:
    """The control for these rows, or None if no row asks for any part of it."""
    if not any(p.controlled for p in params):
        return None
    return Penalties(params, prompt_lengths, eos_ids, vocab_size, device)


class Penalties(Control):
    """Every penalty, bias and ban, for rows that may each ask for something else.

    Args:
        params: one per row.
        prompt_lengths: how many of a row's committed ids are its prompt.
        eos_ids: the ids that end an answer.
        vocab_size: number of ids in a law.
        device: where the logits are.

    Raises:
        ConfigError: a bias or a bad word names an id that the vocabulary does not have.
    """

    def __init__(
        self,
        params: Sequence[SamplingParams],
        prompt_lengths: Sequence[int],
        eos_ids: frozenset[int],
        vocab_size: int,
        device: torch.device | str,
    ) -> None:
        self._params = list(params)
        parts: list[_Part] = [
            LogitBias(params, vocab_size, device),
            Repeats(params, prompt_lengths, vocab_size, device),
            BadWords(params, eos_ids, vocab_size, device),
            LeastLength(params, prompt_lengths, eos_ids, vocab_size, device),
        ]
        self._parts = [part for part in parts if any(map(part.wanted, params))]

    def apply(self, logits: Tensor, committed: Committed, branches: Branches) -> Tensor:
        """See ``Control.apply``."""
        out = logits.clone() if self._parts else logits
        for part in self._parts:
            part.change(out, committed, branches)
        return out

    def select(self, rows: list[int]) -> None:
        """See ``Control.select``."""
        self._params = [self._params[row] for row in rows]
        self._parts = [part for part in self._parts if any(map(part.wanted, self._params))]
        for part in self._parts:
            part.select(rows)


class _Part(Protocol):
    """One control of several: changes ``out [batch, places, vocab]`` in place."""

    def wanted(self, params: SamplingParams) -> bool: ...

    def change(self, out: Tensor, committed: Committed, branches: Branches) -> None: ...

    def select(self, rows: list[int]) -> None: ...


class Repeats:
    """Repetition, frequency and presence penalty.

    Kept per row, for the committed ids alone: which ids there are (``_ids``, each once, and
    ``_seen``) and how often the answer holds them (``_counts``). Drafted tokens are added to
    copies, along the path to each place.
    """

    def __init__(
        self,
        params: Sequence[SamplingParams],
        prompt_lengths: Sequence[int],
        vocab_size: int,
        device: torch.device | str,
    ) -> None:
        self._vocab, self._device = vocab_size, device
        self._prompts = list(prompt_lengths)
        self._used = [self.wanted(p) for p in params]
        # Only the repetition penalty looks at the prompt.
        pairs = zip(params, prompt_lengths, strict=True)
        self._done = [0 if p.repetition_penalty != 1 else prompt for p, prompt in pairs]
        self._known: list[set[int]] = [set() for _ in params]
        rows = len(params) if any(self._used) else 0
        self._ids = torch.zeros(rows, 0, dtype=torch.int64, device=device)
        self._seen = torch.zeros(rows, vocab_size, dtype=torch.bool, device=device)
        self._counts = torch.zeros(rows, vocab_size, device=device)
        rates = [[p.repetition_penalty, p.frequency_penalty, p.presence_penalty] for p in params]
        self._rates = torch.tensor(rates, dtype=torch.float64, device=device).clamp(-_LARGE, _LARGE)
        self._rates[:, 0].clamp_(min=1 / _LARGE)

    def wanted(self, params: SamplingParams) -> bool:
        """Whether a row needs this."""
        return params.repeats

    def select(self, rows: list[int]) -> None:
        """Keeps the given rows."""
        for name in ("_prompts", "_used", "_done", "_known"):
            kept = getattr(self, name)
            setattr(self, name, [kept[row] for row in rows])
        index = upload(rows, self._device)
        for name in ("_ids", "_seen", "_counts", "_rates"):
            setattr(self, name, getattr(self, name)[index])

    def change(self, out: Tensor, committed: Committed, branches: Branches) -> None:
        """Penalises the tokens of each row's text and draft."""
        self._catch_up(committed)
        tokens = branches.tokens.clamp(0, self._vocab - 1)  # padding may hold anything
        ids = torch.cat([self._ids, tokens], 1)
        same = tokens.unsqueeze(2) == ids.unsqueeze(1)
        drafted = branches.on_path.to(out.dtype) @ same.to(out.dtype)  # [batch, places, ids]
        index = ids.unsqueeze(1).expand_as(drafted)
        # An id that is here several times gets the same value each time.
        out.scatter_(2, index, self._penalised(out.gather(2, index), ids, drafted))

    def _penalised(self, scores: Tensor, ids: Tensor, drafted: Tensor) -> Tensor:
        """``scores [batch, places, ids]`` of tokens drafted so often before each place."""
        rates = self._rates.to(scores.dtype).view(-1, 3, 1, 1)
        repetition, frequency, presence = rates.unbind(1)
        seen = self._seen.gather(1, ids).unsqueeze(1) | (drafted > 0)
        worse = torch.where(scores < 0, scores * repetition, scores / repetition)
        counts = self._counts.gather(1, ids).unsqueeze(1).to(scores.dtype) + drafted
        return worse.where(seen, scores) - frequency * counts - presence * (counts > 0)

    def _catch_up(self, committed: Committed) -> None:
        """Takes in the ids that were committed since the last call."""
        first, answered = [], []
        for row, ids in enumerate(committed):
            for place in range(self._done[row], len(ids) if self._used[row] else 0):
                token, known = ids[place], self._known[row]
                if not 0 <= token < self._vocab:
                    continue  # a prompt's id that has an embedding, but no logit
                if token not in known:
                    first.append((row, len(known), token))
                    known.add(token)
                if place >= self._prompts[row]:
                    answered.append(row * self._vocab + token)
            self._done[row] = len(ids)
        if first:
            self._append(first)
        if answered:
            index = upload(answered, self._device)
            self._counts.view(-1).scatter_add_(
                0, index, torch.ones_like(index, dtype=torch.float32)
            )

    def _append(self, first: list[tuple[int, int, int]]) -> None:
        """Adds ids to rows that did not hold them yet: (row, column, id)."""
        room, needed = self._ids.shape[1], max(map(len, self._known))
        if needed > room:
            # Unused columns hold id 0: its value is right wherever it is computed.
            wider = max(16, 1 << (needed - 1).bit_length())
            self._ids = torch.nn.functional.pad(self._ids, (0, wider - room))
        row, column, token = upload(first, self._device).unbind(1)
        self._ids.view(-1).scatter_(0, row * self._ids.shape[1] + column, token)
        self._seen.view(-1).scatter_(0, row * self._vocab + token, True)
