"""Where a sequence of ids occurs in many documents, and what followed it there.

A suffix array (Manber and Myers 1993): the starts of all suffixes in the order of what begins
there. Those that begin with the same ids stand together, so binary search finds them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
END = -1  # behind every document: below all ids, and in no query, so no match crosses it


def suffix_array(text: Ids, depth: int) -> Ids:
    """Starts of the suffixes of ``text``, ordered by their first ``depth`` ids.

    By doubling: two ranks by ``known`` ids, side by side, rank by twice as many. Each step is one
    sort, so all of it takes O(n log n log depth).
    """
    rank, known = np.unique(text, return_inverse=True)[1], 1
    while known < depth and rank.max(initial=-1) + 1 < len(text):
        behind = np.zeros_like(rank)  # 0: the text is over
        behind[:-known] = rank[known:] + 1
        rank = np.unique(rank * (len(text) + 1) + behind, return_inverse=True)[1]
        known *= 2
    return np.argsort(rank, kind="stable")


class Corpus:
    """Documents of ids with their index.

    Args:
        documents: ids of each; matches and continuations stay within one.
        longest: the most ids of a query.
    """

    def __init__(self, documents: Sequence[Sequence[int]], longest: int) -> None:
        ends = [np.array([*document, END], dtype=np.int64) for document in documents]
        self.text: Ids = np.concatenate(ends)
        self.starts = suffix_array(self.text, longest + 1)  # one more: see `_matches`
        self.longest = longest

    @property
    def nbytes(self) -> int:
        """Bytes of text and index."""
        return self.text.nbytes + self.starts.nbytes

    def behind(self, newest: Sequence[int], shortest: int, most: int) -> Ids:
        """The places right behind the longest match of the newest ids, in the order of what begins
        at the match: at most ``most`` of them, evenly spread; none if no match has ``shortest``."""
        found, length = slice(0, 0), 0
        for tried in range(shortest, min(len(newest), self.longest) + 1):
            longer = self._matches(list(newest[len(newest) - tried :]))
            if longer.start == longer.stop:  # what has no match has no longer one
                break
            found, length = longer, tried
        count = found.stop - found.start
        chosen = found.start + np.arange(min(count, most)) * count // max(min(count, most), 1)
        return self.starts[chosen] + length

    def _matches(self, query: list[int]) -> slice:
        """The part of the index that begins with the query and has at least one id behind it."""
        length = len(query) + 1

        def beginning(start: int) -> list[int]:
            ids: list[int] = self.text[start : start + length].tolist()
            return ids

        first = bisect_left(self.starts, [*query, END + 1], key=beginning)
        last = bisect_left(self.starts, [*query[:-1], query[-1] + 1], lo=first, key=beginning)
        return slice(first, last)

    def read(self, places: Ids, count: int) -> Ids:
        """``count`` ids from each place on, ``[places, count]``; END from a document's end on."""
        columns = places[:, None] + np.arange(count)
        ids = self.text[columns.clip(max=len(self.text) - 1)]
        return np.where((ids == END).cumsum(1) > 0, END, ids)


def best_chains(seen: Ids, branches: int) -> list[list[int]]:
    """The rows of ``seen`` whose ids are shared by the most rows, one after the other.

    A chain is worth the sum, over its beginnings, of how many rows begin so: if the next text is
    one of the rows, that is the number of its tokens that will stand. What an earlier chain has
    drafted counts no more.
    """
    worth, chains = _support(seen), []
    for _ in range(branches):
        gain = worth.sum(1)
        if not gain.any():
            break
        chain = seen[gain.argmax()]
        chains.append(chain[chain != END].tolist())
        worth[(seen == chain).cumprod(1).astype(bool)] = 0
    return chains


def _support(seen: Ids) -> Ids:
    """How many rows agree with each row up to and with each column; 0 at END."""
    support, group = np.zeros_like(seen), np.zeros(len(seen), np.int64)
    for column, ids in enumerate(seen.T):
        keys = group * (seen.max(initial=0) + 2) + ids + 1
        _, group, sizes = np.unique(keys, return_inverse=True, return_counts=True)
        support[:, column] = np.where(ids == END, 0, sizes[group])
    return support
