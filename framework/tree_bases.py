"""The base of autoregressive drafters that can draft trees: write one method, ``next_logits_at``.

The base draws the children of every node from the very law that it reports, through the requests'
own sampling. A tree grows level by level. Which nodes are expanded may follow what was drawn
before; a node that was drawn stays, in its place.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from .bases import StepSession, check_logits, empty_draft
from .context import Context
from .growth import Growth, Level
from .records import Draft, Round
from .tree import Tree
from .tree_drawing import Frontier as Frontier
from .tree_drawing import Growing


class TreeStepSession(StepSession):
    """Base for drafters that give logits behind any drafted node.

    While a round is drafted and observed, ``levels`` says what each row drafts in it; a chain has
    one node per level.

    Args:
        growth: the plan of the trees; None drafts chains.
    """

    def __init__(self, context: Context, growth: Growth | None = None) -> None:
        super().__init__(context)
        self.growth = growth
        self.levels: list[list[Level]] = [[] for _ in range(context.rows)]

    @abstractmethod
    def next_logits_at(self, frontier: Frontier) -> Tensor:
        """Logits of the token behind each place, ``[batch, places, vocab]``.

        The first call of a round has no tokens yet, and the root as its one place. Each further
        call has only children of the last call's places; in a chain, the newest token.
        """

    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        rows, device = self.context.rows, self.context.device
        none = torch.zeros(rows, 0, dtype=torch.int64, device=device)
        tokens = torch.stack(drafted, 1) if drafted else none
        at = torch.full((rows, 1), len(drafted) - 1, device=device)
        frontier = Frontier(tokens, Tree.chain(tokens), at, self.drafting(len(drafted)))
        return self.next_logits_at(frontier).squeeze(1)

    def propose(self, gammas: list[int]) -> Draft:
        if self.growth is None:
            draft = super().propose(gammas)
            self.levels = [[Level(1, 1)] * length for length in draft.lengths]
            return draft
        self.lengths = self.limits(gammas)
        self.levels = [self.growth.levels(depth) for depth in self.lengths]
        if not any(self.levels):
            return empty_draft(self.context)
        tree = Growing(self.context, self.growth, self.levels)
        for _ in range(tree.depth):
            frontier = tree.frontier()
            due = (*frontier.at.shape, self.context.vocab_size)
            tree.add(frontier, check_logits("next_logits_at", self.next_logits_at(frontier), due))
        return tree.draft()

    def observe(self, outcome: Round) -> None:
        self.levels = [[] for _ in self.levels]

    def select(self, rows: list[int]) -> None:
        self.levels = [self.levels[row] for row in rows]

    def places_of(self, row: int, path: list[int]) -> list[int]:
        """The place at which each node of an accepted path was expanded, from the root on.

        It ends before a node that was not expanded, or of which the host does not know it: where
        the device chose, only a child tells the place of its parent.
        """
        levels, places = self.levels[row], []
        ranked = self.growth is not None and self.growth.ranked
        start = 0  # the first node of the level at hand
        for depth, node in enumerate(path[: max(len(levels) - 1, 0)]):
            after = start + levels[depth].size
            if not ranked:
                places.append(node - start)
            elif depth + 1 < len(path):
                places.append((path[depth + 1] - after) // levels[depth + 1].children)
            start = after
        return places
