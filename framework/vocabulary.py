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
