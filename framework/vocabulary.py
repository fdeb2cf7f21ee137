"""Whether two models speak of the same tokens: by identity, never by size alone."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from .errors import ConfigError
from .interfaces import Target


def check_same_tokens(target: Target, tokenizer: Any, vocab_size: int) -> None:
    """Refuses a drafter whose ids mean other tokens than the target's.

    Ids beyond a tokenizer's last token are padding of the embedding and may differ in number.
    Tokens that only one side has, behind the other's last, are accepted with a warning.
    """
    if tokenizer is None or target.tokenizer is None:
        if vocab_size != target.vocab_size:
            raise ConfigError(
                f"the drafter has {vocab_size} ids and the target {target.vocab_size}, and without both "
                "tokenizers it cannot be shown that they agree; pass the tokenizers."
            )
        return
    ours, theirs = _by_id(target.tokenizer), _by_id(tokenizer)
    shared = min(max(ours, default=-1), max(theirs, default=-1)) + 1
    for token in range(shared):
        if ours.get(token) != theirs.get(token) and not _optional(
            token, target.tokenizer, tokenizer
        ):
            raise ConfigError(
                f"the drafter's tokenizer differs from the target's at id {token} "
                f"({theirs.get(token)!r} and {ours.get(token)!r}); drafting needs the same tokens."
            )
    if ours != theirs:
        warnings.warn(
            f"drafter and target tokenizers differ in added tokens only ({len(theirs)} and {len(ours)} "
            "tokens); drafting goes on over the shared ones.",
            stacklevel=2,
        )


def _by_id(tokenizer: Any) -> dict[int, str]:
    return {index: token for token, index in tokenizer.get_vocab().items()}


def _optional(token: int, *tokenizers: Any) -> bool:
    """True for an id that some side knows as an added special token."""
    return any(token in getattr(tokenizer, "added_tokens_decoder", {}) for tokenizer in tokenizers)


def fit_vocabulary(logits: Tensor, vocab_size: int) -> Tensor:
    """Cuts or fills a drafter's ``[batch, vocab']`` logits to the target's ids.

    Ids that the drafter lacks get probability zero, ids that the target lacks are never drafted;
    the law is normalised afterwards, so it stays the law drawn from.
    """
    width = logits.shape[-1]
    if width >= vocab_size:
        return logits[..., :vocab_size]
    return torch.nn.functional.pad(logits, (0, vocab_size - width), value=-math.inf)


class OwnIds:
    """The ids that a drafting model works in, beside the target's.

    Args:
        size: rows of its embedding.
        ids: the target's ids that it has, ascending, as its own 0, 1, 2, ...; its last one stands for all
            others. None: its ids are the target's, as far as they go.
        vocab_size: the target's ids.
    """

    def __init__(self, size: int, ids: Tensor | None, vocab_size: int) -> None:
        self.last, self.ids, self.vocab_size = size - 1, ids, vocab_size
        if ids is not None:
            table = torch.full((vocab_size,), self.last)
            table[ids] = torch.arange(len(ids))
            self._table, self._host = table, table.tolist()

    def to(self, device: torch.device) -> OwnIds:
        """Puts its tables where the model is."""
        if self.ids is not None:
            self.ids, self._table = self.ids.to(device), self._table.to(device)
        return self

    def known(self, tokens: list[int]) -> list[int]:
        """The target's ids as the model reads them; one that it lacks is read as its last: a worse draft,
        no crash."""
        if self.ids is None:
            return [min(token, self.last) for token in tokens]
        return [self._host[token] for token in tokens]

    def fed(self, tokens: Tensor) -> Tensor:
        """The same on the device, of any shape; what is no id becomes one."""
        if self.ids is None:
            return tokens.clamp(0, self.last)
        own: Tensor = self._table[tokens.clamp(0, self.vocab_size - 1)]
        return own

    def logits(self, logits: Tensor) -> Tensor:
        """The model's ``[..., size]`` over the target's ids."""
        if self.ids is None:
            return fit_vocabulary(logits, self.vocab_size)
        return widen(logits[..., : self.last], self.ids, self.vocab_size)


def widen(logits: Tensor, ids: Tensor | None, vocab_size: int) -> Tensor:
    """Puts logits ``[..., len(ids)]`` of a reduced vocabulary at these ids of the target's
    ``[..., vocab_size]``; the others are never drafted. None: they are the target's already."""
    if ids is None:
        return logits
    whole = logits.new_full((*logits.shape[:-1], vocab_size), -math.inf)
    whole[..., ids] = logits
    return whole
