"""Draws trees level by level, each node's children from the law that is then reported for them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .children import draw_children
from .context import Context
from .device import upload
from .growth import Growth, Level
from .hosttree import PADDING
from .law import DenseLaw, PointMass
from .records import Draft
from .specs import DETERMINISTIC, WITHOUT_REPLACEMENT
from .tree import NONE, Branches, Tree

# How much likelier each spare child is than the next one; 8 of them fit into float32.
SPARE = 2.0**-14


@dataclass(frozen=True)
class Frontier(Branches):
    """The nodes whose children are drawn next, as ``at`` of ``Branches``.

    Args:
        counts: how many places of each row are real, on the host; the others are -2. 0: the row
            has no further level.
    """

    counts: list[int]


class Growing:
    """A batch of trees, level by level. Rows may differ in depth and, with a budget, in width."""

    def __init__(self, context: Context, growth: Growth, levels: list[list[Level]]) -> None:
        self.context, self.growth, self.levels = context, growth, levels
        self.depth, self.level = max(map(len, levels)), 0
        self.lengths = [_nodes(row) for row in levels]
        self.width = max(self.lengths)
        # The last column takes what is written for nodes that a row does not have.
        self.tokens = torch.zeros(
            context.rows, self.width + 1, dtype=torch.int64, device=context.device
        )
        self.index, self.parents = self.tokens, torch.full_like(self.tokens, NONE)
        self.scores = self.tokens.double()
        self.newest = self.parents[:, :1]  # the nodes of the newest level; at first, the root
        self.laws: list[Tensor] = []
        self.uniforms = context.uniforms(0, self.width + 1)

    def frontier(self) -> Frontier:
        """The nodes that are expanded next."""
        counts = [row[self.level].expanded if self.level < len(row) else 0 for row in self.levels]
        places = torch.arange(max(counts), device=self.context.device)
        real = places < upload(counts, self.context.device).unsqueeze(1)
        at = self._likeliest_first()[:, : len(places)].where(real, PADDING)
        known = max(_nodes(row[: self.level]) for row in self.levels)
        tree = Tree(self.parents[:, :known], self.level, self.growth.widest)
        return Frontier(self.tokens[:, :known], tree, at, counts)

    def add(self, frontier: Frontier, logits: Tensor) -> None:
        """Draws the children of the frontier."""
        children = max(row[self.level].children for row in self.levels if self.level < len(row))
        nodes = self._numbers(logits.shape[1] * children)
        uniforms = self.uniforms.gather(1, nodes).view(*frontier.at.shape, children)
        behind = sum(law.shape[1] for law in self.laws)
        places = torch.arange(logits.shape[1], device=logits.device)
        tokens, scores = self._draw(frontier, logits, uniforms)
        self.tokens = self.tokens.scatter(1, nodes, tokens.flatten(1))
        self.scores = self.scores.scatter(1, nodes, scores.flatten(1))
        parents = frontier.at.repeat_interleave(children, 1)
        self.parents = self.parents.scatter(1, nodes, parents)
        index = (behind + places).repeat_interleave(children).expand_as(nodes)
        self.index = self.index.scatter(1, nodes, index)
        self.newest, self.level = nodes, self.level + 1

    def draft(self) -> Draft:
        """The trees."""
        tokens, parents, index = (
            x[:, : self.width] for x in (self.tokens, self.parents, self.index)
        )
        tree = Tree(parents, self.depth, self.growth.widest)
        law = DenseLaw(torch.cat(self.laws, 1), index) if self.laws else PointMass(tokens)
        return Draft(tokens, self.lengths, law, tree, self.growth.children)

    def _likeliest_first(self) -> Tensor:
        """The newest nodes; with a budget, in the order of the drafter's probability of their
        paths. That is taken at temperature 1 and untruncated: else greedy rows had no order."""
        if not self.growth.ranked or self.level == 0:
            return self.newest
        scores = self.scores.gather(1, self.newest)
        scores = scores.masked_fill(self.newest == self.width, -torch.inf)
        return self.newest.gather(1, scores.argsort(dim=1, descending=True, stable=True))

    def _numbers(self, most: int) -> Tensor:
        """The numbers of the new level's nodes, ``[batch, most]``, the last column if none."""
        starts = [_nodes(row[: self.level]) for row in self.levels]
        ends = [_nodes(row[: self.level + 1]) for row in self.levels]
        bounds = upload([starts, ends], self.context.device).unsqueeze(-1)
        nodes = bounds[0] + torch.arange(most, device=self.context.device)
        return nodes.where(nodes < bounds[1], self.width)

    def _draw(self, frontier: Frontier, logits: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Children of each place, and the logarithm of their paths' probability, both
        ``[batch, places, children]``."""
        drawn, count = self.growth.children, uniforms.shape[-1]
        plain = self.context.sampler.controlled(logits, self.context.tokens, frontier)
        if drawn == DETERMINISTIC:
            tokens = likeliest(plain, count)
        else:
            law = self.context.branch_law(logits, frontier, plain)
            if drawn == WITHOUT_REPLACEMENT and count > 1:
                law = with_spares(law, plain, count)
            self.laws.append(law)
            tokens = draw_children(law, uniforms, drawn)
        if not self.growth.ranked:
            return tokens, uniforms  # nobody reads the scores
        above = self.scores.gather(1, frontier.at.clamp(min=0)).where(frontier.at >= 0, 0.0)
        own = plain.gather(-1, tokens) - plain.logsumexp(-1, keepdim=True)
        # A path on which nothing is possible any more is expanded last.
        return tokens, (above.unsqueeze(-1) + own.double()).nan_to_num(nan=-torch.inf)


def likeliest(logits: Tensor, count: int) -> Tensor:
    """The ``count`` largest logits in order, the first index on a tie, as plain decoding breaks
    it: ``[..., vocab] -> [..., count]``. All different, also where fewer are possible."""
    left = logits.clamp(min=torch.finfo(logits.dtype).min)
    tokens = []
    for _ in range(count):
        tokens.append(left.argmax(-1, keepdim=True))
        left.scatter_(-1, tokens[-1], -torch.inf)
    return torch.cat(tokens, -1)


def with_spares(law: Tensor, logits: Tensor, count: int) -> Tensor:
    """A law from which ``count`` different tokens can be drawn, likely ones all of them.

    A greedy or truncated law may hold fewer tokens than a node has children: what is drawn
    without replacement behind them would be any token. The likeliest ``count`` tokens that the
    law lacks are therefore added with a tiny share, each with ``SPARE`` of the one before. A
    greedy row thus draws the tokens with the largest logits, in order, but for one draw in 16,000;
    and since this is the law they were drawn from, rows of every kind can share a batch and
    nothing is said that is not so.

    ``law`` and ``logits [..., vocab]``. Returns a law of the same shape.
    """
    tokens = likeliest(logits, count)
    shares = law.gather(-1, tokens)
    last = torch.ones_like(shares[..., 0])
    for own in shares.unbind(-1):  # views, filled in place
        last = own.copy_(own.where(own > 0, last * SPARE))
    filled = law.scatter(-1, tokens, shares)
    return filled / filled.sum(-1, keepdim=True)


def _nodes(levels: list[Level]) -> int:
    return sum(level.size for level in levels)
