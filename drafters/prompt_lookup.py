"""Prompt lookup: copy what followed the last occurrence of the newest tokens.

The idea is "copying from the context on a matching prefix" of Leviathan et al. 2023, section 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..framework.bases import TokenSession
from ..framework.interfaces import Context, Drafter

if TYPE_CHECKING:
    from .builtin import PromptLookupConfig


class PromptLookup(Drafter):
    """Looks in the prompt and in the answer so far. The longest match wins; among equally long
    ones, the most recent."""

    def __init__(self, config: PromptLookupConfig) -> None:
        self.min_ngram, self.max_ngram = config.min_ngram, config.max_ngram

    def start(self, context: Context) -> PromptLookupSession:
        return PromptLookupSession(self, context)


class PromptLookupSession(TokenSession):
    """One index per row, extended by what was committed since the last look."""

    def __init__(self, drafter: PromptLookup, context: Context) -> None:
        super().__init__(context)
        self.indices = [
            SuffixIndex(drafter.min_ngram, drafter.max_ngram) for _ in range(context.rows)
        ]

    def continuation(self, row: int, gamma: int) -> Sequence[int]:
        tokens = self.context.tokens[row]
        self.indices[row].extend(tokens)
        return self.indices[row].lookup(tokens, gamma)

    def select(self, rows: list[int]) -> None:
        self.indices = [self.indices[row] for row in rows]


class SuffixIndex:
    """Where each n-gram last ended; constant work per token and per look.

    An n-gram is entered only once the token behind it exists, so the newest tokens can never
    match themselves.
    """

    def __init__(self, min_ngram: int, max_ngram: int) -> None:
        self.lengths = range(max_ngram, min_ngram - 1, -1)
        self.last_end: dict[tuple[int, ...], int] = {}
        self.seen = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Enters the n-grams that end before the newest token."""
        for end in range(self.seen + 1, len(tokens)):
            for length in self.lengths:
                if length <= end:
                    self.last_end[tuple(tokens[end - length : end])] = end
        self.seen = max(self.seen, len(tokens) - 1)

    def lookup(self, tokens: Sequence[int], gamma: int) -> list[int]:
        """The ``gamma`` tokens behind the best match; a match that reaches the end of the text
        is taken to repeat."""
        for length in self.lengths:
            if length < len(tokens):
                begin = self.last_end.get(tuple(tokens[-length:]))
                if begin is not None:
                    period = len(tokens) - begin
                    return [tokens[begin + step % period] for step in range(gamma)]
        return []
