"""Constraints from JSON schemas, regular expressions and grammars, through llguidance.

llguidance is an optional extra: ``pip install 'foredraft[grammar]'``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from .constraints import Constraint, ConstraintState
from .errors import ConfigError
from .grammar_source import compiled, fault, library

_END = "<|end of a constrained text|>"
_tokenizers: WeakKeyDictionary[Any, dict[int, Any]] = WeakKeyDictionary()


def grammar_constraint(
    kind: str,
    source: str | Mapping[str, Any],
    tokenizer: Any,
    eos_ids: Iterable[int],
    vocab_size: int | None = None,
) -> Constraint:
    """A constraint under which every finished answer is a text that the grammar allows.

    Special tokens are no text and never allowed, but for end ids, and those a Lark grammar names
    (``<|tool|>``). An answer that no more text can follow ends without an end id.

    Args:
        kind: ``json_schema``, ``regex`` (Rust's syntax; the whole answer has to match), ``lark``
            (llguidance's variant of Lark) or ``gbnf`` (llama.cpp's grammars).
        source: the grammar; a JSON schema may also be a dict.
        tokenizer: a fast transformers tokenizer. The first constraint made with one takes a second
            or two, the others some milliseconds.
        eos_ids: allowed where the text may end; none lets it go on there while it can.
        vocab_size: the target's number of ids, if that is not the tokenizer's.

    Raises:
        ConfigError: llguidance is missing, or the grammar has a fault.
    """
    grammar, size = compiled(kind, source), vocab_size or len(tokenizer)
    tokens = _tokens(tokenizer, size)
    matcher = library().LLMatcher(tokens, grammar, log_level=0)
    if matcher.is_error():
        raise fault(kind, matcher.get_error())
    return _Grammar(matcher, _Ids(size, tokens.eos_token, sorted(eos_ids)))


class _Grammar(Constraint):
    def __init__(self, matcher: Any, ids: _Ids) -> None:
        self._start = _GrammarState(matcher, ids)

    def start(self) -> ConstraintState:
        return self._start.fork()


@dataclass(frozen=True)
class _Ids:
    """The target's ids, and the one that stands for the end of the text in llguidance's masks.

    llguidance knows one end id. It gets one of its own that no text has, so that the target's keep
    what they are as text, and so that there may be several or none.
    """

    size: int
    end: int
    eos: list[int]

    def mask(self, allowed: bytes) -> Tensor:
        """From one byte per id, not 0 where it is allowed: bool ``[size]``."""
        found = np.frombuffer(allowed, dtype=np.uint8) > 0
        mask = torch.from_numpy(found[: self.size].copy())  # torch wants memory it can write to
        mask[self.end : self.end + 1] = False
        mask[self.eos] = bool(found[self.end])
        return mask


class _GrammarState(ConstraintState):
    """A matcher, and whether an end id came after its text."""

    def __init__(self, matcher: Any, ids: _Ids, ended: bool = False) -> None:
        self._matcher, self._ids, self._ended = matcher, ids, ended
        self._mask: Tensor | None = None  # of the state as it is

    def allowed(self) -> Tensor:
        if self._mask is None:
            self._mask = self._new_mask()
        return self._mask

    def advance(self, token: int) -> bool:
        if self._complete:
            return False
        if token in self._ids.eos:
            moved = self._ended = bool(self._matcher.is_accepting())
        else:
            moved = self._matcher.try_consume_tokens([token]) == 1
            self._check()
        if moved:
            self._mask = None
        return moved

    def rollback(self, count: int) -> None:
        if count == 0:
            return
        self._mask = None
        if self._ended:
            self._ended, count = False, count - 1
        self._matcher.rollback(count)
        self._check()

    def fork(self) -> ConstraintState:
        return _GrammarState(self._matcher.deep_copy(), self._ids, self._ended)

    @property
    def _complete(self) -> bool:
        """By what the matcher knows without a mask."""
        return self._ended or bool(self._matcher.is_stopped())

    @property
    def finished(self) -> bool:
        return self._complete or super().finished

    def _new_mask(self) -> Tensor:
        if self._complete:
            return torch.zeros(self._ids.size, dtype=torch.bool)
        found = self._matcher.compute_logit_bias()
        self._check()
        return self._ids.mask(found)

    def _check(self) -> None:
        """The library only notes it where a text becomes too much for its limits."""
        if self._matcher.is_error():
            raise fault("grammar", self._matcher.get_error())


def _tokens(tokenizer: Any, size: int) -> Any:
    """llguidance's view of a tokenizer, kept as long as the tokenizer lives."""
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise ConfigError(
            f"a grammar needs a fast transformers tokenizer; {type(tokenizer).__name__} is none."
        )
    kept = _tokenizers.setdefault(tokenizer, {})
    if size not in kept:
        kept[size] = _read_tokens(tokenizer.backend_tokenizer, size)
    return kept[size]


def _read_tokens(backend: Any, size: int) -> Any:
    ours = type(backend).from_str(backend.to_str())
    ours.no_padding()
    ours.no_truncation()
    ours.add_special_tokens([_END])
    end = ours.token_to_id(_END)
    if backend.id_to_token(end) is not None:
        raise ConfigError(f"this tokenizer cannot be used for grammars: it has {_END!r} itself.")
    try:
        return library().LLTokenizer(ours.to_str(), n_vocab=max(size, end + 1), eos_token=end)
    except ValueError as error:
        raise fault("tokenizer", error) from None
