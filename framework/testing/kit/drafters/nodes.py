"""Drawn nodes against the laws reported for them.

Each node's token is turned into a number that is uniform in [0, 1) if the token was drawn from its
law, whatever the law: the probability of all likelier tokens, plus a random part of its own (the
randomised probability integral transform; Rosenblatt 1952, Brockwell 2007). Numbers of different
nodes are independent, because each law is given by what was known before its token was drawn. What
may be tested together is therefore any set of nodes that is chosen by what was known before, such
as a position, a setting, or how sure the law is; a set chosen by the tokens themselves may not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from ...statistics import count_p_value, uniform_p_value
from .spies import Proposal
from .wellformed import given_siblings

ALARM = 1e-7  # p-values below are failures
SURE = 6.5  # standard deviations that are one
FEWEST, FEWEST_PAIRS = 100, 400


@dataclass(frozen=True)
class Nodes:
    """Drawn nodes of many rows and rounds, as columns of length ``nodes``.

    Args:
        uniform: the transform.
        node: its number in its row.
        place, round: where it was drawn.
        token: what was drawn.
        laws: ``[nodes, vocab]``, elder siblings given.
        before: the probability that its parent had; 1 behind the root.
        path: ``[nodes, vocab]`` bool, the ids of its ancestors in the draft.
    """

    uniform: Tensor
    node: Tensor
    place: Tensor
    round: Tensor
    token: Tensor
    laws: Tensor
    before: Tensor
    path: Tensor

    @classmethod
    def of(cls, proposals: Sequence[Proposal], seed: int) -> Nodes:
        """All real nodes of drafts that have a law."""
        generator = torch.Generator().manual_seed(seed)
        parts = [_columns(made, generator) for made in proposals if made.laws is not None]
        columns = [torch.cat(column) for column in zip(*parts, strict=True)]
        return cls(*columns)

    def where(self, chosen: Tensor) -> Nodes:
        """Some of them."""
        return Nodes(*(column[chosen] for column in self._all()))

    def _all(self) -> list[Tensor]:
        return [getattr(self, field.name) for field in fields(self)]

    def __len__(self) -> int:
        return len(self.uniform)


def _columns(made: Proposal, generator: torch.Generator) -> list[Tensor]:
    laws, tokens = given_siblings(made).cpu(), made.tokens.cpu()
    own = laws.gather(-1, tokens.unsqueeze(-1))
    likelier = laws > own
    # Of equally likely tokens, the smaller id comes first.
    ids = torch.arange(laws.shape[-1])
    likelier |= (laws == own) & (ids < tokens.unsqueeze(-1))
    share = torch.rand(own.shape[:2], generator=generator, dtype=torch.float64)
    own = own.squeeze(-1)
    uniform = (laws * likelier).sum(-1) + share * own
    parents = made.parents.cpu()
    before = own.gather(1, parents.clamp(min=0)).where(parents >= 0, 1.0)
    rows, width = tokens.shape
    node = torch.arange(width).expand(rows, width)
    place = torch.tensor(made.places).unsqueeze(1).expand(rows, width)
    index = torch.full_like(node, made.round)
    ids_before = torch.nn.functional.one_hot(tokens.clamp(min=0), laws.shape[-1]).double()
    ancestors = made.draft.shape.ancestors.cpu() & ~torch.eye(width, dtype=torch.bool)
    path = ancestors.double() @ ids_before > 0
    real = made.draft.mask.cpu()
    return [column[real] for column in (uniform, node, place, index, tokens, laws, before, path)]


def follows(nodes: Nodes) -> str:
    """Whether tokens follow their laws: what speaks against it, in words; empty if nothing does."""
    if len(nodes) < FEWEST:
        return ""
    p_value = uniform_p_value(nodes.uniform.clamp(0, 1))
    if p_value < ALARM:
        return f"p={p_value:.1g} over {len(nodes)} tokens"
    return _counts(nodes) or _repeats(nodes)


def _counts(nodes: Nodes) -> str:
    """How often each id was drawn, against the sum of its probabilities."""
    due, spread = nodes.laws.sum(0), (nodes.laws * (1 - nodes.laws)).sum(0)
    drawn = torch.bincount(nodes.token, minlength=len(due)).double()
    off = (drawn - due).abs() / spread.clamp(min=1e-12).sqrt()
    off = off.where(spread >= 60, 0.0)  # few are not normal
    worst = int(off.argmax())
    if float(off[worst]) < SURE:
        return ""
    return (
        f"id {worst} was drawn {int(drawn[worst])} times in {len(nodes)}, where its laws add up to "
        f"{float(due[worst]):.0f} ({float(off[worst]):.0f} standard deviations)"
    )


def _repeats(nodes: Nodes) -> str:
    """How often the draft held the token already, against the sum of that probability."""
    chance = (nodes.laws * nodes.path).sum(-1)
    drawn = nodes.path.gather(1, nodes.token.unsqueeze(1)).double().sum()
    spread = (chance * (1 - chance)).sum()
    off = float((drawn - chance.sum()).abs() / spread.clamp(min=1e-12).sqrt())
    if spread < 60 or off < SURE:
        return ""
    return (
        f"{int(drawn)} of {len(nodes)} repeat a token of their draft, where the laws add up to "
        f"{float(chance.sum()):.0f} ({off:.0f} standard deviations)"
    )


def dependent(nodes: Nodes) -> str:
    """Whether one token says anything about the next one's noise, in a draft or a round later."""
    for what, pairs in (("node", _next_node(nodes)), ("round", _next_round(nodes))):
        if len(pairs) >= FEWEST_PAIRS:
            p_value = _grid(pairs)
            if p_value < ALARM:
                return f"noise that one {what} shares with the next (p={p_value:.1g})"
    return ""


def _next_node(nodes: Nodes) -> Tensor:
    key = (nodes.round * 1_000_000 + nodes.place) * 1000 + nodes.node
    return _pairs(nodes.uniform, key)


def _next_round(nodes: Nodes) -> Tensor:
    first = nodes.where(nodes.node == 0)
    return _pairs(first.uniform, first.place * 1_000_000 + first.round)


def _pairs(values: Tensor, key: Tensor) -> Tensor:
    """Values whose keys follow each other, side by side: ``[pairs, 2]``."""
    order = key.argsort()
    key, values = key[order], values[order]
    after = (key[1:] - key[:-1]) == 1
    return torch.stack([values[:-1][after], values[1:][after]], 1)


def _grid(pairs: Tensor, cells: int = 5) -> float:
    """P-value of a contingency table against its own margins."""
    index = (pairs.clamp(0, 1 - 1e-9) * cells).long()
    counts = torch.bincount(index[:, 0] * cells + index[:, 1], minlength=cells * cells)
    table = counts.view(cells, cells).double()
    due = table.sum(1, keepdim=True) * table.sum(0, keepdim=True) / len(pairs)
    return count_p_value(table, due, (cells - 1) ** 2)
