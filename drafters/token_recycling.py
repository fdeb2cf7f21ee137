"""Token recycling: draft from the target's own candidates of earlier rounds.

Luo et al. 2024 (arXiv:2408.08696): an adjacency matrix holds, for each id, the ids that the target
ranked highest the last time it was fed that id. A tree of fixed shape is read off the matrix.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..framework.bases import empty_draft
from ..framework.checks import check_whole
from ..framework.context import Context
from ..framework.device import upload
from ..framework.feedback import Fed, write
from ..framework.interfaces import Drafter, DraftSession, Target
from ..framework.law import PointMass
from ..framework.records import Draft, Round
from ..framework.specs import DETERMINISTIC, DraftKind
from ..framework.tree import NONE, Tree

if TYPE_CHECKING:
    from .builtin import TokenRecyclingConfig


class TokenRecycling(Drafter):
    """A matrix per request and the best tree of ``nodes`` nodes for each depth.

    The matrix begins with what follows what in the prompt (the target's own ranking of the
    prompt is not at hand), or empty.
    """

    def __init__(self, config: TokenRecyclingConfig, target: Target) -> None:
        check_whole("drafter.successors", config.successors, 1, min(32, target.vocab_size))
        self.successors, self.from_prompt = config.successors, config.from_prompt
        self.vocab_size = target.vocab_size
        self.shapes = shapes(config.nodes, config.successors)
        self.kind = DraftKind(DETERMINISTIC, config.successors > 1)
        self.max_nodes = config.nodes if self.kind.tree else 0

    def start(self, context: Context) -> TokenRecyclingSession:
        return TokenRecyclingSession(self, context)

    def session_bytes(self, rows: int, capacity: int) -> int:
        return rows * (self.vocab_size + 1) * self.successors * 4


class TokenRecyclingSession(DraftSession):
    """``matrix [rows, vocab + 1, successors]`` int32 on the device; the last line takes writes that
    are not to be kept.

    The host only remembers which ids have successors: a row whose newest id has none drafts
    nothing. Further on in a tree such ids can still come up; their children are ids 0, 1, 2, ...
    """

    def __init__(self, drafter: TokenRecycling, context: Context) -> None:
        self.drafter, self.context = drafter, context
        count, rows, device = drafter.successors, context.rows, context.device
        ids = torch.arange(count, dtype=torch.int32, device=device)
        self.matrix = ids.repeat(rows, context.vocab_size + 1, 1)
        self.slots = torch.arange(rows, device=device)
        self.known: list[set[int]] = [set() for _ in range(rows)]
        self.parents = upload(_table([shape.parents for shape in drafter.shapes], NONE), device)
        self.ranks = upload(_table([shape.ranks for shape in drafter.shapes], 0), device)
        if drafter.from_prompt:
            self._read_prompts()

    def propose(self, gammas: list[int]) -> Draft:
        deepest = len(self.drafter.shapes) - 1
        rows = zip(gammas, self.context.tokens, self.known, strict=True)
        depths = [min(g, deepest) if ids[-1] in known else 0 for g, ids, known in rows]
        if not any(depths):
            return empty_draft(self.context)
        shapes = [self.drafter.shapes[depth] for depth in depths]
        lengths = [len(shape.parents) for shape in shapes]
        index, width = upload(depths, self.context.device), max(lengths)
        parents, ranks = self.parents[index, :width], self.ranks[index, :width]
        depth = max(shape.depth for shape in shapes)
        tokens = self._walk(parents, ranks, depth)
        tree = Tree(parents, depth, max(shape.children for shape in shapes))
        return Draft(tokens, lengths, PointMass(tokens), tree if self.drafter.kind.tree else None)

    def observe(self, outcome: Round) -> None:
        scored = outcome.scored
        if scored is None:
            return
        fed = Fed.of(outcome, scored, self.context)
        best = scored.logits.topk(self.drafter.successors, -1).indices
        write(self.matrix, self.slots, fed.tokens, best, fed.order)
        for ids, known, row in zip(self.context.tokens, self.known, outcome.rows, strict=True):
            known.update((ids[-1 - len(row.emitted)], *row.drafted))

    def select(self, rows: list[int]) -> None:
        self.slots = self.slots[upload(rows, self.context.device)]
        self.known = [self.known[row] for row in rows]

    def _walk(self, parents: Tensor, ranks: Tensor, depth: int) -> Tensor:
        """The tokens of every node, one more level right with each pass."""
        newest = upload([[ids[-1]] for ids in self.context.tokens], self.context.device)
        tokens = torch.zeros_like(parents)
        for _ in range(depth):
            before = torch.cat([newest, tokens], 1).gather(1, parents + 1)
            tokens = self.matrix[self.slots.unsqueeze(1), before, ranks].long()
        return tokens

    def _read_prompts(self) -> None:
        count, vocab = self.drafter.successors, self.context.vocab_size
        places, lines = [], []
        for row, ids in enumerate(self.context.tokens):
            found = successors_in(ids, count)
            self.known[row].update(found)
            places += [(row, token) for token in found]
            lines += [_filled(behind, count, vocab) for behind in found.values()]
        if places:
            slots, tokens = upload(places, self.context.device).unbind(1)
            self.matrix[slots, tokens] = upload(lines, self.context.device).int()


@dataclass(frozen=True)
class Shape:
    """A tree without tokens: of each node, its parent and which of the parent's successors it is."""

    parents: list[int]
    ranks: list[int]
    depth: int = 0

    @property
    def children(self) -> int:
        """The most children of any node."""
        return max(self.ranks, default=-1) + 1


def chance(rank: int) -> float:
    """About how often the token that follows is this one of the successors, 0 being the first:
    greedy answers of a small chat model, counted where the newest id had successors."""
    return 0.4 if rank == 0 else 0.1 / rank


def best_shape(nodes: int, successors: int, depth: int) -> Shape:
    """The nodes that are likeliest to be reached and right, likeliest first."""
    shape = Shape([], [], depth)
    waiting = [(-chance(0), 0, NONE, 0)]  # minus the chance, the level, the parent, the rank
    while waiting and len(shape.parents) < nodes:
        likely, level, parent, rank = heapq.heappop(waiting)
        node = len(shape.parents)
        shape.parents.append(parent)
        shape.ranks.append(rank)
        if level + 1 < depth:
            heapq.heappush(waiting, (likely * chance(0), level + 1, node, 0))
        if rank + 1 < successors:
            beside = likely / chance(rank) * chance(rank + 1)
            heapq.heappush(waiting, (beside, level, parent, rank + 1))
    return shape


def shapes(nodes: int, successors: int) -> list[Shape]:
    """The best trees of depth 0, 1, 2, ..., up to the depth from which on nothing changes."""
    found = [Shape([], [])]
    while True:
        shape = best_shape(nodes, successors, len(found))
        if shape.parents == found[-1].parents:
            return found
        found.append(shape)


def successors_in(ids: Sequence[int], count: int) -> dict[int, list[int]]:
    """The ``count`` ids that last followed each id, the newest first, each once."""
    found: dict[int, list[int]] = {}
    for token, behind in pairwise(ids):
        others = [other for other in found.get(token, ()) if other != behind]
        found[token] = [behind, *others][:count]
    return found


def _filled(ids: list[int], count: int, vocab: int) -> list[int]:
    """Siblings have to differ, also where there are not enough of them."""
    rest = (token for token in range(min(2 * count, vocab)) if token not in ids)
    return [*ids, *rest][:count]


def _table(lists: Sequence[Sequence[int]], padding: int) -> Tensor:
    width = max(map(len, lists))
    return torch.tensor([[*row, *([padding] * (width - len(row)))] for row in lists])
