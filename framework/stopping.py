"""When a row ends: exact inside a block, whatever the number of tokens a round brings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .errors import ConfigError

if TYPE_CHECKING:
    from .constraints import Progress

EOS, STOP, LENGTH, CONTEXT, CANCELLED = "eos", "stop", "length", "context", "cancelled"
CONSTRAINT = "constraint"

# Tokens that decode to nothing (special ones) may lie inside the window that is searched.
_SLACK = 16


class Stopper:
    """Feeds a row's new tokens one by one and cuts at the first that completes a stop.

    Args:
        eos_ids: ids that end the answer; the id itself is kept.
        stop: strings that end the answer; the token that completes one is kept.
        tokenizer: decodes the answer for ``stop``; not needed without.
        max_new_tokens: cap on the answer, or None.
        context_room: ids the context can still take behind the prompt, or None.
        progress: the answer's constraint; it ends the answer where nothing may follow.
    """

    def __init__(
        self,
        eos_ids: frozenset[int],
        stop: Sequence[str] = (),
        tokenizer: Any = None,
        max_new_tokens: int | None = None,
        context_room: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        limits = [n for n in (max_new_tokens, context_room) if n is not None]
        if not limits:
            raise ConfigError(
                "max_new_tokens=null is not possible for a target without a context limit; give a number."
            )
        if stop and tokenizer is None:
            raise ConfigError(
                f"stop={list(stop)} is not possible without a tokenizer; pass one, or drop it."
            )
        self.limit = min(limits)
        self.eos_ids, self.stop, self.tokenizer = eos_ids, tuple(stop), tokenizer
        self.max_new_tokens, self.context_room = max_new_tokens, context_room
        self.answer: list[int] = []
        self.progress = progress
        self._window = max((len(s.encode()) for s in stop), default=0) + _SLACK

    def room(self) -> int:
        """Tokens that may still be emitted."""
        return self.limit - len(self.answer)

    def feed(self, tokens: Sequence[int]) -> tuple[list[int], str | None]:
        """Takes new tokens; returns those that are kept and why the row ended, if it did."""
        for count, token in enumerate(tokens, 1):
            self.answer.append(token)
            reason = self._reason(token)
            if reason:
                return list(tokens[:count]), reason
        return list(tokens), None

    def _reason(self, token: int) -> str | None:
        complete = self.progress is not None and self.progress.completes(token)
        if token in self.eos_ids:
            return EOS
        if self.stop and self._stop_completed():
            return STOP
        if complete:
            return CONSTRAINT
        if len(self.answer) == self.max_new_tokens:
            return LENGTH
        return CONTEXT if len(self.answer) == self.context_room else None

    def _stop_completed(self) -> bool:
        # Every token before the newest was checked when it was fed, so only a tail is decoded:
        # each token but a special one brings at least a byte of text.
        tail = self.tokenizer.decode(self.answer[-self._window :])
        return any(stop in tail for stop in self.stop)


def trim(text: str, stop: Sequence[str]) -> str:
    """Text before the earliest stop string."""
    cuts = [text.index(s) for s in stop if s in text]
    return text[: min(cuts)] if cuts else text
