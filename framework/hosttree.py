"""The drafted trees of a batch on the host, for controls that walk them there."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .tree import NONE, Branches

# A place behind no node, nor behind the root: nobody reads its law.
PADDING = -2


@dataclass(frozen=True)
class HostTree:
    """One row of ``Branches``, as lists.

    Args:
        tokens: the drafted token of each node.
        parents: the node before each node; -1 is the root.
        at: the node behind which each place lies; below -1 it is padding.
    """

    tokens: list[int]
    parents: list[int]
    at: list[int]

    def path(self, place: int) -> list[int] | None:
        """Nodes from the root's child to the place's own; None for padding."""
        found, node = [], self.at[place]
        below = len(self.parents)
        while NONE < node < below:
            found.append(node)
            node, below = self.parents[node], node  # a parent has a lower number
        return found[::-1] if node == NONE else None

    def places(self) -> dict[int, list[int]]:
        """The places behind each node (or the root, -1) behind which there are any."""
        found: dict[int, list[int]] = {}
        for place, node in enumerate(self.at):
            if self.path(place) is not None:
                found.setdefault(node, []).append(place)
        return found

    def children(self) -> dict[int, list[int]]:
        """The children of each node (or of the root, -1) that lie on the way to a place."""
        found: dict[int, list[int]] = {}
        on_the_way = {node for place in range(len(self.at)) for node in self.path(place) or ()}
        for node in sorted(on_the_way):
            found.setdefault(self.parents[node], []).append(node)
        return found


def read_trees(branches: Branches) -> list[HostTree]:
    """Brings every row across in one device-to-host read."""
    parts = (branches.tokens, branches.tree.parents, branches.at)
    nodes, end = branches.tokens.shape[1], branches.tokens.shape[1] + parts[1].shape[1]
    rows: list[list[int]] = torch.cat(parts, 1).tolist()
    return [HostTree(row[:nodes], row[nodes:end], row[end:]) for row in rows]
