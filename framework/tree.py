"""The shape of a draft: which drafted node follows which.

Nodes of a row are numbered in the order they were drawn: a parent before its children, siblings
in their order. Parent -1 is the root, the newest committed token. A chain is the tree in which
node i follows node i - 1.

Everything here is computed on the device and reads nothing back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

NONE = -1


@dataclass(frozen=True)
class Tree:
    """Parents, and two bounds that the host knows.

    Args:
        parents: ``[batch, width]`` int64; columns at or beyond a row's length are ignored.
        depth: no path is longer than this many nodes.
        children: no node has more children than this.
    """

    parents: Tensor
    depth: int
    children: int

    @classmethod
    def chain(cls, tokens: Tensor) -> Tree:
        """The tree of ``tokens [batch, width]`` in which each node has one child."""
        width = tokens.shape[1]
        parents = torch.arange(-1, width - 1, device=tokens.device).expand(tokens.shape)
        return cls(parents, width, 1)

    @cached_property
    def contexts(self) -> Tensor:
        """The row of target laws that each node had to follow: parent + 1, ``[batch, width]``."""
        return self.parents + 1

    @cached_property
    def ancestors(self) -> Tensor:
        """``[batch, width, width]`` bool: node j is node i, or lies on the way to it."""
        rows, width = self.parents.shape
        reach = torch.eye(width + 1, device=self.parents.device).repeat(rows, 1, 1)
        reach[:, 1:].scatter_(2, self.contexts.unsqueeze(-1), 1.0)
        for _ in range(max(width, 1).bit_length()):  # paths double in length at every squaring
            reach = (reach @ reach).clamp_(max=1.0)
        return reach[:, 1:, 1:] > 0

    @cached_property
    def depths(self) -> Tensor:
        """Nodes before each node on its path, ``[batch, width]``: 0 for the root's children."""
        return self.ancestors.sum(-1) - 1

    def first_child(self, real: Tensor) -> Tensor:
        """The first child behind each law row, or -1: ``[batch, width + 1]``."""
        rows, width = self.parents.shape
        nodes = torch.arange(width, device=real.device).expand(rows, width)
        found = torch.full((rows, width + 2), width, device=real.device)
        # Padding goes into a column of its own, which is cut off.
        places = self.contexts.where(real, width + 1)
        found.scatter_reduce_(1, places, nodes, "amin")
        return found[:, :-1].where(found[:, :-1] < width, NONE)

    def next_sibling(self, real: Tensor) -> Tensor:
        """The next child of the same parent, or -1: ``[batch, width]``."""
        width = self.parents.shape[1]
        if width == 0:
            return self.parents
        nodes = torch.arange(width, device=real.device)
        same = self.parents.unsqueeze(2) == self.parents.unsqueeze(1)
        later = same & (nodes > nodes.unsqueeze(1)) & real.unsqueeze(1)
        found = nodes.expand_as(later).masked_fill(~later, width).amin(-1)
        return found.where(found < width, NONE)

    def paths(self) -> Tensor:
        """Nodes on the way to each node, itself last, -1 behind it: ``[batch, width, depth]``."""
        rows, width = self.parents.shape
        out = torch.full((rows, width, self.depth + 1), NONE, device=self.parents.device)
        nodes = torch.arange(width, device=self.parents.device)
        level = self.depths.clamp(max=self.depth - 1).unsqueeze(1).expand(rows, width, width)
        # Nodes that are no ancestors write into a column of their own, which is cut off.
        places = level.where(self.ancestors, self.depth)
        return out.scatter_(2, places, nodes.expand(rows, width, width))[..., : self.depth]

    def leaf_to_root(self, real: Tensor) -> Tensor:
        """Nodes in the order in which each comes after all its descendants and after everything
        drawn to the left of it; padding last: ``[batch, width]``."""
        width = self.parents.shape[1]
        paths = self.paths()
        key = paths.masked_fill(paths == NONE, width)  # behind all descendants
        key = key.masked_fill(~real.unsqueeze(-1), width + 1)
        order = torch.arange(width, device=real.device).expand(self.parents.shape)
        for level in reversed(range(self.depth)):  # a lexicographic sort, last key first
            by = key[..., level].gather(1, order).argsort(dim=1, stable=True)
            order = order.gather(1, by)
        return order


@dataclass(frozen=True)
class Branches:
    """Where laws are asked for: behind which drafted nodes of each row.

    Args:
        tokens: ``[batch, nodes]`` drafted tokens so far.
        tree: their shape.
        at: ``[batch, places]``, the node behind which each law is asked for; -1 is the root, and
            below it is padding, whose law nobody reads.
    """

    tokens: Tensor
    tree: Tree
    at: Tensor

    @classmethod
    def chain(cls, tokens: Tensor, at: Tensor) -> Branches:
        """Branches of a chain ``tokens [batch, width]``."""
        return cls(tokens, Tree.chain(tokens), at)

    @cached_property
    def on_path(self) -> Tensor:
        """``[batch, places, nodes]`` bool: the node lies before this place."""
        ancestors = self.tree.ancestors
        if ancestors.shape[1] == 0:
            return ancestors.new_zeros(*self.at.shape, 0)
        index = self.at.clamp(min=0).unsqueeze(-1).expand(-1, -1, ancestors.shape[2])
        return ancestors.gather(1, index) & (self.at >= 0).unsqueeze(-1)

    @cached_property
    def lengths(self) -> Tensor:
        """Drafted tokens before each place, ``[batch, places]``."""
        return self.on_path.sum(-1)

    def last(self, count: int, committed: Tensor) -> Tensor:
        """The ``count`` newest ids before each place, newest last: ``[batch, places, count]``.

        ``committed [batch, count]`` are the newest committed ids, newest last; whatever stands
        there for a missing one comes out again.
        """
        found, node = [], self.at
        beyond = torch.zeros_like(self.at)  # how far back in the committed ids we are
        for _ in range(count):
            inside = node >= 0
            old = committed.gather(1, (count - 1 - beyond).clamp(min=0))
            found.append(self._token(node).where(inside, old))
            beyond = beyond + (~inside).long()
            node = self._parent(node)
        return torch.stack(found[::-1], -1)

    def _token(self, node: Tensor) -> Tensor:
        if self.tokens.shape[1] == 0:
            return torch.zeros_like(node)
        return self.tokens.gather(1, node.clamp(min=0))

    def _parent(self, node: Tensor) -> Tensor:
        if self.tokens.shape[1] == 0:
            return node
        return self.tree.parents.gather(1, node.clamp(min=0)).where(node >= 0, NONE)
