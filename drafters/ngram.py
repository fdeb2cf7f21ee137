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

from ..framework.bases import StepSession
from ..framework.interfaces import Context, Drafter, Target
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

    def start(self, context: Context) -> NgramSession:
        return NgramSession(self, context)

    def weight_bytes(self) -> int:
        arrays = self.table.arrays.values() if self.table is not None else ()
        return sum(array.nbytes for array in arrays)


class NgramSession(StepSession):
    """Fitted counts are shared; running counts belong to a row."""

    def __init__(self, drafter: Ngram, context: Context) -> None:
        super().__init__(context)
        self.order, self.fitted = drafter.order, drafter.table
        self.running = [RunningCounts(drafter.order) for _ in range(context.rows)]

    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        chains = torch.stack(drafted, 1).tolist() if drafted else [[]] * self.context.rows
        laws = [self._law(row, chain) for row, chain in enumerate(chains)]
        return torch.from_numpy(np.log(np.stack(laws))).to(self.context.device)

    def select(self, rows: list[int]) -> None:
        self.running = [self.running[row] for row in rows]

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
