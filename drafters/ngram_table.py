"""Counts for the n-gram drafter: of a running text, or fitted and kept in a safetensors file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ..framework.errors import ConfigError, InputError
from ..framework.files import written_whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Successors = tuple[NDArray[np.int64], NDArray[np.int64]]

FORMAT = "foredraft-ngram-1"


class Vocabulary(Protocol):
    """What a table has to know of a target; ``foredraft fit`` has it without the weights."""

    @property
    def tokenizer(self) -> Any: ...

    @property
    def vocab_size(self) -> int: ...


class Counts(Protocol):
    """What followed a context, and how often."""

    def successors(self, context: tuple[int, ...]) -> Successors:
        """Distinct next ids and their counts; both empty for a context never seen."""


class RunningCounts:
    """Counts of one growing text, for contexts of 0 to ``order - 1`` tokens."""

    def __init__(self, order: int) -> None:
        self.order, self.seen = order, 0
        self.counts: dict[tuple[int, ...], dict[int, int]] = {}

    def extend(self, tokens: Sequence[int]) -> None:
        """Counts the tokens that are new since the last call."""
        for at in range(self.seen, len(tokens)):
            for length in range(min(self.order, at + 1)):
                successors = self.counts.setdefault(tuple(tokens[at - length : at]), {})
                successors[tokens[at]] = successors.get(tokens[at], 0) + 1
        self.seen = max(self.seen, len(tokens))

    def successors(self, context: tuple[int, ...]) -> Successors:
        found = self.counts.get(context, {})
        return np.array(list(found), np.int64), np.array(list(found.values()), np.int64)


class NgramTable:
    """Fitted counts: per context length, sorted packed contexts with their successors.

    A context of tokens ``a b`` has the key ``a * vocab + b``; successors of key number i are
    entries ``offsets[i] : offsets[i + 1]`` of ``tokens`` and ``counts``.
    """

    def __init__(self, arrays: dict[str, NDArray[np.int64]], order: int, vocab_size: int) -> None:
        self.arrays, self.order, self.vocab_size = arrays, order, vocab_size

    @classmethod
    def fit(cls, documents: Iterable[Sequence[int]], order: int, vocab_size: int) -> NgramTable:
        """Counts documents of ids; no n-gram crosses from one document to the next."""
        if vocab_size**order >= 2**63:
            raise ConfigError(
                f"order={order} is not possible with a vocabulary of {vocab_size}; "
                f"the highest is {int(63 / np.log2(vocab_size))}."
            )
        texts = [np.asarray(document, np.int64) for document in documents]
        if not sum(map(len, texts)):
            raise InputError("there is no text to fit: every document is empty.")
        arrays: dict[str, NDArray[np.int64]] = {}
        for length in range(order):
            arrays.update(_count(texts, length, vocab_size))
        return cls(arrays, order, vocab_size)

    def successors(self, context: tuple[int, ...]) -> Successors:
        length = len(context)
        key = 0
        for token in context:
            key = key * self.vocab_size + token
        keys = self.arrays[f"keys_{length}"]
        at = int(np.searchsorted(keys, key))
        if at == len(keys) or keys[at] != key:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        offsets = self.arrays[f"offsets_{length}"]
        entries = slice(offsets[at], offsets[at + 1])
        return self.arrays[f"tokens_{length}"][entries], self.arrays[f"counts_{length}"][entries]

    def check_order(self, order: int) -> None:
        """Refuses to draft at a higher order than was fitted."""
        if order > self.order:
            raise ConfigError(
                f"drafter.order={order} is not possible; the file holds orders 1 to {self.order}."
            )

    def save(self, path: str | Path, target: Vocabulary) -> None:
        """Writes the file, whole or not at all."""
        meta = {"format": FORMAT, "order": self.order, "vocab_size": self.vocab_size,
                "fingerprint": fingerprint(target.tokenizer)}  # fmt: skip
        with written_whole(path) as partial:
            save_file(self.arrays, partial, metadata={"foredraft": json.dumps(meta)})

    @classmethod
    def load(cls, path: str, target: Vocabulary) -> NgramTable:
        """Reads a file that was fitted for this target's vocabulary."""
        try:
            with safe_open(path, framework="numpy") as file:
                meta = json.loads((file.metadata() or {}).get("foredraft", "{}"))
                arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError, ValueError) as error:
            raise InputError(
                f"drafter.path={path} is not a readable n-gram file: {error}"
            ) from None
        _check_file(path, meta, arrays, target)
        return cls(arrays, int(meta["order"]), int(meta["vocab_size"]))


def _count(
    texts: list[NDArray[np.int64]], length: int, vocab_size: int
) -> dict[str, NDArray[np.int64]]:
    """All (context, successor) pairs of one context length, sorted and counted."""
    pairs = np.concatenate([_packed(text, length, vocab_size) for text in texts])
    unique, counts = np.unique(pairs, return_counts=True)
    contexts, tokens = np.divmod(unique, vocab_size)
    keys, starts = np.unique(contexts, return_index=True)
    return {
        f"keys_{length}": keys,
        f"offsets_{length}": np.append(starts, len(contexts)).astype(np.int64),
        f"tokens_{length}": tokens,
        f"counts_{length}": counts.astype(np.int64),
    }


def _packed(text: NDArray[np.int64], length: int, vocab_size: int) -> NDArray[np.int64]:
    count = max(len(text) - length, 0)
    packed = np.zeros(count, np.int64)
    for offset in range(length + 1):
        packed = packed * vocab_size + text[offset : offset + count]
    return packed


def _check_file(
    path: str, meta: dict[str, Any], arrays: dict[str, Any], target: Vocabulary
) -> None:
    where = f"drafter.path={path}"
    meta = meta if isinstance(meta, dict) else {}
    if meta.get("format") != FORMAT or not isinstance(meta.get("order"), int) or meta["order"] < 1:
        raise InputError(f"{where} is not a file that 'foredraft fit' of this version wrote.")
    if meta.get("vocab_size") != target.vocab_size or meta.get("fingerprint") != fingerprint(
        target.tokenizer
    ):
        raise ConfigError(
            f"{where} was fitted for another vocabulary ({meta.get('vocab_size')} ids) than the target's "
            f"({target.vocab_size} ids); fit it again with this target."
        )
    for length in range(meta["order"]):
        parts = [arrays.get(f"{name}_{length}") for name in ("keys", "offsets", "tokens", "counts")]
        if any(part is None for part in parts) or not _consistent(*parts, vocab=target.vocab_size):
            raise InputError(
                f"{where} is damaged: its counts of order {length + 1} do not fit together."
            )


def _consistent(keys: Any, offsets: Any, tokens: Any, counts: Any, *, vocab: int) -> bool:
    return bool(
        all(part.ndim == 1 and part.dtype == np.int64 for part in (keys, offsets, tokens, counts))
        and len(offsets) == len(keys) + 1
        and len(tokens) == len(counts) == offsets[-1]
        and offsets[0] == 0
        and (np.diff(offsets) > 0).all()
        and (np.diff(keys) > 0).all()
        and (counts > 0).all()
        and ((tokens >= 0) & (tokens < vocab)).all()
    )


def fingerprint(tokenizer: Any) -> str:
    """A hash of the token-to-id map, so that a table is not read with other tokens."""
    if tokenizer is None:
        return "none"
    vocab = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return hashlib.sha256(json.dumps(vocab).encode()).hexdigest()[:16]
