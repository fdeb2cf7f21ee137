"""A target whose law is a table: exact tests, and studies of policies without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import ConfigError, InputError
from ..interfaces import Target, TargetSession
from ..tree import Branches, Tree

if TYPE_CHECKING:
    from .builtin import TableConfig


class TableTarget(Target):
    """The law of the next token depends on the last ``order`` tokens only.

    Args:
        probs: ``[(vocab + 1) ** order, vocab]``; the row of a context is its tokens read as digits
            in base ``vocab + 1``, newest last, with the digit ``vocab`` before the beginning.
    """

    def __init__(
        self, probs: Tensor, order: int, eos: int | None = None, max_context: int = 4096
    ) -> None:
        contexts, self.vocab_size = probs.shape
        if contexts != (self.vocab_size + 1) ** order:
            raise ConfigError(
                f"target table has {contexts} rows; order {order} over {self.vocab_size} tokens "
                f"needs {(self.vocab_size + 1) ** order}."
            )
        self.order, self.max_context, self.trees = order, max_context, True
        self.logits = probs.double().log()
        self.eos_ids = frozenset() if eos is None else frozenset({eos})
        self.tokenizer = NumberTokenizer(self.vocab_size)

    @classmethod
    def from_config(cls, config: TableConfig) -> TableTarget:
        """Reads the table, or draws it from the seed."""
        probs = _read(config.path) if config.path else random_table(config)
        return cls(probs, config.order, config.eos, config.max_context)

    def start(self, rows: int, capacity: int) -> TableSession:
        return TableSession(self, rows, capacity)


def random_table(config: TableConfig) -> Tensor:
    """A seeded table with sharpness and zeros as the config says; every row keeps one token."""
    generator = torch.Generator().manual_seed(config.seed)
    shape = ((config.vocab_size + 1) ** config.order, config.vocab_size)
    logits = torch.randn(shape, generator=generator, dtype=torch.float64) * config.sharpness
    dropped = torch.rand(shape, generator=generator) < config.zeros
    dropped.scatter_(1, logits.argmax(1, keepdim=True), False)
    return logits.masked_fill(dropped, -torch.inf).softmax(-1)


def _read(path: str) -> Tensor:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        probs = load_file(path)["probs"].double()
    except (OSError, KeyError, SafetensorError) as error:
        raise InputError(
            f"target.path={path} is not a safetensors file with 'probs': {error}"
        ) from None
    if probs.dim() != 2 or not bool(((probs.sum(-1) - 1).abs() < 1e-6).all() & (probs >= 0).all()):
        raise InputError(f"target.path={path} holds 'probs' whose rows are not laws that sum to 1.")
    return probs


class TableSession(TargetSession):
    """The committed ids of each row; the cache of a table."""

    def __init__(self, target: TableTarget, rows: int, capacity: int) -> None:
        self.target, self.capacity = target, capacity
        self.vocab_size, self.device = target.vocab_size, target.device
        self.history = torch.zeros(rows, capacity + 1, dtype=torch.int64)
        self.lengths = torch.zeros(rows, dtype=torch.int64)

    def prefill(self, tokens: Sequence[Sequence[int]]) -> None:
        for row, ids in enumerate(tokens):
            self.history[row, : len(ids)] = torch.tensor(list(ids), dtype=torch.int64)
        self.lengths = torch.tensor([len(ids) for ids in tokens])

    def forward(self, tokens: Tensor, counts: list[int], tree: Tree | None = None) -> Tensor:
        rows, width = tokens.shape
        self.fed = tokens
        order, missing = self.target.order, self.target.vocab_size
        at = torch.arange(-1, width - 1).expand(rows, width)
        drafted = tokens[:, 1:]
        branches = Branches.chain(drafted, at) if tree is None else Branches(drafted, tree, at)
        context = torch.zeros_like(tokens)
        if order:
            newest = branches.last(order, self._newest(tokens[:, :1], order))
            for token in newest.unbind(-1):
                context = context * (missing + 1) + token
        return self.target.logits[context]

    def _newest(self, token: Tensor, order: int) -> Tensor:
        """The ``order`` newest ids of each row up to the one that is fed first."""
        at = self.lengths.unsqueeze(1) - torch.arange(order - 1, 0, -1)
        older = self.history.gather(1, at.clamp(0, self.capacity))
        return torch.cat([torch.where(at >= 0, older, self.target.vocab_size), token], 1)

    def advance(self, kept: list[list[int]]) -> None:
        counts = torch.tensor([len(columns) for columns in kept])
        width = max(map(len, kept))
        columns = torch.tensor([row + [0] * (width - len(row)) for row in kept])
        # What lies behind a row's own count is overwritten by its next round.
        places = self.lengths.unsqueeze(1) + torch.arange(width)
        self.history.scatter_(1, places.clamp(max=self.capacity), self.fed.gather(1, columns))
        self.lengths = self.lengths + counts

    def select(self, rows: list[int]) -> None:
        self.history, self.lengths = self.history[rows], self.lengths[rows]


class NumberTokenizer:
    """Text is numbers with spaces between: ``"0 2 1"``."""

    chat_template = None

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Ids of a text; anything but numbers below the vocabulary size is refused."""
        words = text.split()
        for word in words:
            if not (word.isdecimal() and int(word) < self.vocab_size):
                raise InputError(
                    f"prompt has {word!r}; a table target reads numbers from 0 to "
                    f"{self.vocab_size - 1} with spaces between."
                )
        return [int(word) for word in words]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """Text of ids."""
        return " ".join(str(token) for token in ids)

    def get_vocab(self) -> dict[str, int]:
        """Token to id."""
        return {str(token): token for token in range(self.vocab_size)}
