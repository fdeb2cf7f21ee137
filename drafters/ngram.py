"""An interpolated n-gram model: order 1 is the unigram, 2 the bigram.

Leviathan et al. 2023, section 3.5 and Table 3, draft from unigram and bigram tables at a cost
ratio c of nearly zero. Unlike a lookup, this drafter has a real draft law, which enters
verification as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..framework.context import Context
from ..framework.hosttree import read_trees
from ..framework.interfaces import Drafter, Target
from ..framework.tree_bases import Frontier, TreeStepSession
from .ngram_table import Counts, NgramTable, RunningCounts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .builtin import NgramConfig


class Ngram(Drafter):
    """Witten-Bell interpolation of all orders up to ``order``, down to the uniform law.

    With ``path`` the counts come from a fitted file; without, each row counts its own prompt and
    answer as they grow.
    """

    def __init__(self, config: NgramConfig, target: Target) -> None:
        self.order = config.order
        self.table = NgramTable.load(config.path, target) if config.path else None
        if self.table is not None:
            self.table.check_order(config.order)
        self.growth, self.kind = config.growth, config.kind
        if self.growth is not None:
            self.growth.check_vocabulary(target.vocab_size)
            self.max_nodes = self.growth.max_nodes

    def start(self, context: Context) -> NgramSession:
        return NgramSession(self, context)

    def weight_bytes(self) -> int:
        arrays = self.table.arrays.values() if self.table is not None else ()
        return sum(array.nbytes for array in arrays)


class NgramSession(TreeStepSession):
    """Fitted counts are shared; running counts belong to a row."""

    def __init__(self, drafter: Ngram, context: Context) -> None:
        super().__init__(context, drafter.growth)
        self.order, self.fitted = drafter.order, drafter.table
        self.running = [RunningCounts(drafter.order) for _ in range(context.rows)]

    def next_logits_at(self, frontier: Frontier) -> Tensor:
        shape = (*frontier.at.shape, self.context.vocab_size)
        laws = np.full(shape, 1.0 / shape[-1])  # padding stays as it is
        for row, chains in enumerate(self._chains(frontier)):
            for place, chain in enumerate(chains):
                laws[row, place] = self._law(row, chain)
        return torch.from_numpy(np.log(laws)).to(self.context.device)

    def select(self, rows: list[int]) -> None:
        super().select(rows)
        self.running = [self.running[row] for row in rows]

    def _chains(self, frontier: Frontier) -> list[list[list[int]]]:
        """The drafted tokens before each real place; the first level needs no read."""
        if frontier.tokens.shape[1] == 0:
            return [[[]] * count for count in frontier.counts]
        return [
            [[tree.tokens[node] for node in tree.path(place) or ()] for place in range(count)]
            for tree, count in zip(read_trees(frontier), frontier.counts, strict=True)
        ]

    def _law(self, row: int, chain: list[int]) -> NDArray[np.float64]:
        counts: Counts
        if self.fitted is not None:
            counts = self.fitted
        else:
            counts = self.running[row]
            self.running[row].extend(self.context.tokens[row])
        newest = [*self.context.tokens[row][-self.order :], *chain]
        return witten_bell(counts, newest, self.order, self.context.vocab_size)


def witten_bell(
    counts: Counts, tokens: Sequence[int], order: int, vocab_size: int
) -> NDArray[np.float64]:
    """The law of the next token: ``[vocab]``, every entry above zero.

    At each order, with n occurrences of the context and t distinct successors,
    ``P(w) = (count(w) + t * P_lower(w)) / (n + t)`` (Witten and Bell 1991). The first context
    that was never seen ends the recursion: longer ones were not seen either.
    """
    law = np.full(vocab_size, 1.0 / vocab_size)
    for length in range(min(order, len(tokens) + 1)):
        context = tuple(tokens[len(tokens) - length :])
        ids, occurrences = counts.successors(context)
        if len(ids) == 0:
            break
        total, distinct = float(occurrences.sum()), len(ids)
        law *= distinct / (total + distinct)
        law[ids] += occurrences / (total + distinct)
    return law
