"""Several chains per row, merged by their common beginnings into one tree of drafted tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch

from .bases import point_mass_draft
from .device import upload
from .law import PointMass
from .records import Draft
from .tree import NONE, Tree


class Trie:
    """One row's tree, on the host. Nodes are numbered as they come, siblings in the order of their
    chains.

    Args:
        limit: the most nodes; what comes later has no place.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._child: dict[tuple[int, int], int] = {}

    def add(self, chain: Iterable[int]) -> None:
        """Adds a chain behind the root, or as much of its beginning as there is room for."""
        node = NONE
        for token in chain:
            known = self._child.get((node, token))
            if known is None:
                if len(self.tokens) == self.limit:
                    return
                known = self._child[node, token] = len(self.tokens)
                self.tokens.append(token)
                self.parents.append(node)
            node = known

    @property
    def children(self) -> int:
        """The most children of any node."""
        return max(Counter(self.parents).values(), default=0)


def trie_draft(rows: Sequence[Sequence[Sequence[int]]], limit: int, device: torch.device) -> Draft:
    """Packs chains that were chosen, not drawn, into a tree of at most ``limit`` nodes per row.

    Args:
        rows: the chains of each row. Where there are too many nodes, those of earlier chains stay.
    """
    tries = [Trie(limit) for _ in rows]
    for trie, chains in zip(tries, rows, strict=True):
        for chain in chains:
            trie.add(chain)
    if not any(trie.tokens for trie in tries):
        return point_mass_draft([[] for _ in rows], device)
    tokens = _pack([trie.tokens for trie in tries], 0, device)
    parents = _pack([trie.parents for trie in tries], NONE, device)
    depth = max(len(chain) for chains in rows for chain in chains)
    tree = Tree(parents, depth, max(trie.children for trie in tries))
    return Draft(tokens, [len(trie.tokens) for trie in tries], PointMass(tokens), tree)


def _pack(rows: Sequence[Sequence[int]], padding: int, device: torch.device) -> torch.Tensor:
    width = max(map(len, rows))
    padded = [[*row, *([padding] * (width - len(row)))] for row in rows]
    return upload(torch.tensor(padded, dtype=torch.int64), device)
