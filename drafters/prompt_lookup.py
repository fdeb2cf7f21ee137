"""Prompt lookup: copy what followed the last occurrence of the newest tokens.

The idea is "copying from the context on a matching prefix" of Leviathan et al. 2023, section 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ..framework.bases import TokenSession
from ..framework.context import Context
from ..framework.interfaces import Drafter
from ..framework.records import Draft
from ..framework.specs import DETERMINISTIC, DraftKind
from ..framework.trie import trie_draft

if TYPE_CHECKING:
    from .builtin import PromptLookupConfig


class PromptLookup(Drafter):
    """Looks in the prompt and in the answer so far. The longest match wins; among equally long
    ones, the most recent.

    With ``branches`` above 1, the draft is a tree of what followed the best matches in that order.
    It has at most ``nodes`` nodes; beyond, the continuations of better matches stay.
    """

    def __init__(self, config: PromptLookupConfig) -> None:
        self.min_ngram, self.max_ngram = config.min_ngram, config.max_ngram
        self.branches = config.branches
        self.kind = DraftKind(DETERMINISTIC, config.branches > 1)
        self.max_nodes = config.nodes if self.kind.tree else 0

    def start(self, context: Context) -> PromptLookupSession:
        return PromptLookupSession(self, context)


class PromptLookupSession(TokenSession):
    """One index per row, extended by what was committed since the last look."""

    def __init__(self, drafter: PromptLookup, context: Context) -> None:
        super().__init__(context)
        self.drafter = drafter
        self.indices = [
            SuffixIndex(drafter.min_ngram, drafter.max_ngram) for _ in range(context.rows)
        ]

    def continuation(self, row: int, gamma: int) -> Sequence[int]:
        return next(iter(self.continuations(row, gamma)), [])

    def continuations(self, row: int, gamma: int) -> Sequence[Sequence[int]]:
        """What followed the best matches, ``gamma`` tokens of each, best first."""
        tokens, index = self.context.tokens[row], self.indices[row]
        index.extend(tokens)
        ends = islice(index.ends(tokens), self.drafter.branches)
        return [copied(tokens, end, gamma) for end in ends]

    def propose(self, gammas: list[int]) -> Draft:
        if not self.drafter.kind.tree:
            return super().propose(gammas)
        found = [self.continuations(row, g) if g else [] for row, g in enumerate(gammas)]
        return trie_draft(found, self.drafter.max_nodes, self.context.device)

    def select(self, rows: list[int]) -> None:
        self.indices = [self.indices[row] for row in rows]


class SuffixIndex:
    """Where each n-gram ended; constant work per token and per match.

    An n-gram is entered only once the token behind it exists, so the newest tokens can never
    match themselves.
    """

    def __init__(self, min_ngram: int, max_ngram: int) -> None:
        self.lengths = range(max_ngram, min_ngram - 1, -1)
        self.last_end: dict[tuple[int, ...], int] = {}
        self.end_before: dict[tuple[int, int], int] = {}  # by length and end: the same n-gram's
        self.seen = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Enters the n-grams that end before the newest token."""
        for end in range(self.seen + 1, len(tokens)):
            for length in self.lengths:
                if length <= end:
                    ngram = tuple(tokens[end - length : end])
                    if ngram in self.last_end:
                        self.end_before[length, end] = self.last_end[ngram]
                    self.last_end[ngram] = end
        self.seen = max(self.seen, len(tokens) - 1)

    def ends(self, tokens: Sequence[int]) -> Iterator[int]:
        """Where earlier occurrences of the newest tokens ended: the longest first, and of equally
        long ones the most recent first."""
        given: set[int] = set()
        for length in self.lengths:
            end = self.last_end.get(tuple(tokens[-length:])) if length < len(tokens) else None
            while end is not None:
                if end not in given:  # a longer match is one of the shorter ones again
                    given.add(end)
                    yield end
                end = self.end_before.get((length, end))


def copied(tokens: Sequence[int], begin: int, count: int) -> list[int]:
    """The ``count`` tokens from ``begin`` on; at the end of the text they are taken to repeat."""
    period = len(tokens) - begin
    return [tokens[begin + step % period] for step in range(count)]
