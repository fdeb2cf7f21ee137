"""How far and how wide a tree of drafted tokens grows: host-side numbers, no torch.

Two plans. ``widths`` gives each node of a level the same number of children (SpecInfer's expansion
configuration, Miao et al. 2023, arXiv:2305.09781). ``nodes`` is a budget, spent level by level on
the likeliest nodes, as EAGLE-2 does (Li et al. 2024, arXiv:2406.16858), but without its second
step: tokens that were drawn are never pruned or put in another order, which would change the law.
"""

from __future__ import annotations

from dataclasses import dataclass

from .checks import check_choice, check_whole
from .errors import ConfigError
from .specs import DRAWN, INDEPENDENT, WITHOUT_REPLACEMENT, DraftKind

MAX_NODES, MAX_CHILDREN = 64, 8
_BRANCHING = 2


@dataclass(frozen=True)
class Level:
    """``expanded`` nodes of the level above have ``children`` children each."""

    expanded: int
    children: int

    @property
    def size(self) -> int:
        """Nodes of this level."""
        return self.expanded * self.children


@dataclass(frozen=True)
class Growth:
    """The plan of a tree.

    Args:
        widths: children of each node, level by level; empty: grow by budget.
        nodes: the budget.
        branching: children of each node that is expanded within the budget.
        children: how they are drawn (``specs.DRAWN``).
    """

    widths: tuple[int, ...] = ()
    nodes: int = 0
    branching: int = _BRANCHING
    children: str = WITHOUT_REPLACEMENT

    @property
    def ranked(self) -> bool:
        """Whether the nodes to expand are chosen by their probability; if not, all are."""
        return not self.widths

    @property
    def widest(self) -> int:
        """No node has more children."""
        return max(self.widths, default=self.branching)

    @property
    def max_nodes(self) -> int:
        """No tree has more nodes."""
        return self.nodes or sum(level.size for level in self.levels(len(self.widths)))

    @property
    def kind(self) -> DraftKind:
        """What drafts grown by it look like."""
        return DraftKind(self.children, tree=True)

    def levels(self, depth: int) -> list[Level]:
        """The levels of a tree of at most ``depth``; what a row gets depends on its own depth."""
        return self._by_width(depth) if self.widths else self._by_budget(depth)

    def check_vocabulary(self, vocab_size: int) -> None:
        """Refuses to draw more different tokens than there are."""
        if self.children != INDEPENDENT and self.widest > vocab_size:
            key = "widths" if self.widths else "branching"
            raise ConfigError(
                f"drafter.{key} asks for {self.widest} different children of a node; with a "
                f"vocabulary of {vocab_size} at most {vocab_size} are possible."
            )

    def _by_width(self, depth: int) -> list[Level]:
        levels, expanded = [], 1
        for width in self.widths[:depth]:
            levels.append(Level(expanded, width))
            expanded *= width
        return levels

    def _by_budget(self, depth: int) -> list[Level]:
        """The root first; what is left is spread evenly over the levels below, the rest on top."""
        levels = [Level(1, self.branching)][:depth]
        left = self.nodes // self.branching - 1
        for below in range(depth - 1, 0, -1):
            expanded = min(levels[-1].size, -(-left // below))
            if expanded == 0:
                break
            levels.append(Level(expanded, self.branching))
            left -= expanded
        return levels


@dataclass
class TreeConfig:
    """Keys of drafters that can draft trees; without ``widths`` and ``nodes`` they draft chains.

    Args:
        widths: a tree: children of each node, level by level, such as [3,2,1]; gamma cuts its
            depth. At most 64 nodes.
        nodes: a tree of at most this many nodes, grown below its likeliest nodes; gamma is its
            depth. One of ``widths`` and ``nodes`` can be set.
        branching: with ``nodes``: children of each node that is expanded, 1 to 8.
        children: of a tree's node: ``without_replacement``, ``independent``, or ``deterministic``
            (the likeliest ones, not drawn).
    """

    widths: list[int] | None = None
    nodes: int | None = None
    branching: int = _BRANCHING
    children: str = WITHOUT_REPLACEMENT

    def __post_init__(self) -> None:
        check_choice("drafter.children", self.children, DRAWN)
        check_whole("drafter.branching", self.branching, 1, MAX_CHILDREN)
        if self.widths is not None and self.nodes is not None:
            raise ConfigError(
                f"drafter.nodes={self.nodes} is not possible beside drafter.widths={self.widths}; "
                "set one of them."
            )
        self._check_widths()
        if self.nodes is not None:
            check_whole("drafter.nodes", self.nodes, self.branching, MAX_NODES)
        self._check_effect()

    @property
    def growth(self) -> Growth | None:
        """The plan; None drafts chains."""
        if self.widths is None and self.nodes is None:
            return None
        return Growth(tuple(self.widths or ()), self.nodes or 0, self.branching, self.children)

    @property
    def kind(self) -> DraftKind:
        """What drafts look like under this config."""
        return DraftKind() if self.growth is None else self.growth.kind

    def _check_widths(self) -> None:
        if self.widths is None:
            return
        whole = all(type(width) is int and 1 <= width <= MAX_CHILDREN for width in self.widths)
        if not self.widths or not whole:
            raise ConfigError(
                f"drafter.widths={self.widths!r} is not possible; it must be a list of whole "
                f"numbers from 1 to {MAX_CHILDREN}, one for each level."
            )
        total = Growth(tuple(self.widths)).max_nodes
        if total > MAX_NODES:
            raise ConfigError(
                f"drafter.widths={self.widths} is a tree of {total} nodes; at most {MAX_NODES} "
                "are possible."
            )

    def _check_effect(self) -> None:
        if self.nodes is None and self.branching != _BRANCHING:
            raise ConfigError(f"drafter.branching={self.branching} has no effect without nodes.")
        if self.growth is None and self.children != WITHOUT_REPLACEMENT:
            raise ConfigError(
                f"drafter.children={self.children} has no effect on a chain; set drafter.widths or "
                "drafter.nodes."
            )


def grown(config: TreeConfig) -> DraftKind:
    """What drafts look like under a config, as specs ask it."""
    return config.kind
