"""Children of a node: how they are drawn, and what a rule asks about the law of each.

Drawing and judging share ``what_is_left``: whether anything is left of a law decides what the next
child is drawn from, so both sides have to see it alike.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from .errors import InputError
from .noise import draw
from .records import Draft
from .specs import DETERMINISTIC, DRAWN, INDEPENDENT, WITHOUT_REPLACEMENT


def draw_children(probs: Tensor, uniforms: Tensor, drawn: str) -> Tensor:
    """The children of each place, in the order drawn.

    Args:
        probs: ``[batch, places, vocab]``, the law at each place.
        uniforms: ``[batch, places, count]`` float64 in [0, 1); with ``deterministic``, which takes
            the likeliest tokens, only their number counts.
        drawn: one of ``specs.DRAWN``.

    Returns:
        ``[batch, places, count]`` int64.

    Raises:
        InputError: more different tokens are asked for than there are.
    """
    count, vocab = uniforms.shape[-1], probs.shape[-1]
    if drawn not in DRAWN:
        raise InputError(f"drawn={drawn!r} is not possible; it is one of {', '.join(DRAWN)}.")
    if drawn == INDEPENDENT:
        return draw(probs.unsqueeze(-2).expand(*uniforms.shape, vocab), uniforms)
    if count > vocab:
        raise InputError(
            f"{count} children were asked for with drawn={drawn!r}; at most {vocab} are possible, "
            "one per id."
        )
    if drawn == DETERMINISTIC:
        return probs.topk(count, -1).indices
    return _without_replacement(probs, uniforms)


def _without_replacement(probs: Tensor, uniforms: Tensor) -> Tensor:
    unused = torch.ones_like(probs)
    tokens = torch.zeros(uniforms.shape, dtype=torch.int64, device=probs.device)
    for child in range(uniforms.shape[-1]):
        token = draw(what_is_left(probs, unused), uniforms[..., child])
        tokens[..., child] = token
        unused.scatter_(-1, token.unsqueeze(-1), 0.0)
    return tokens


def what_is_left(law: Tensor, unused: Tensor) -> Tensor:
    """A law without the tokens that were drawn before, normalised.

    Where nothing is left of it, every token that was not drawn is as likely as any other.

    Args:
        law: ``[..., vocab]``, as it was before anything was drawn.
        unused: the same shape and dtype, 0 at tokens that were drawn and 1 elsewhere.
    """
    left = law * unused
    mass = left.sum(-1, keepdim=True)
    nothing = mass <= 0
    left.addcmul_(unused, nothing.to(left.dtype))
    return left.div_(torch.where(nothing, unused.sum(-1, keepdim=True), mass))


class ChildLaws:
    """The law that each node of a draft was drawn from, its elder siblings given.

    ``node [batch]`` names one node per row. Children drawn independently share their parent's law;
    children drawn without replacement have what their elder siblings left of it; children that
    were not drawn are a point mass each.
    """

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.probs = draft.law.prob(draft.tokens).double()
        self.shrinking = draft.drawn == WITHOUT_REPLACEMENT and draft.shape.children > 1

    def prob(self, node: Tensor) -> Tensor:
        """The probability of the node's own token, ``[batch]`` float64."""
        if self.shrinking:
            return self._own(self._left(node), node)
        return self.probs.gather(1, node.unsqueeze(1)).squeeze(1)

    def residual(self, rows: Tensor, node: Tensor) -> Tensor:
        """``max(0, rows - law)``, not normalised: ``[batch, vocab]``, like ``rows``."""
        if self.shrinking:
            return (rows - self._left(node)).clamp_(min=0)
        return self.draft.law.residual(rows.unsqueeze(1), node.unsqueeze(1)).squeeze(1)

    def judge(self, rows: Tensor, node: Tensor) -> tuple[Tensor, Tensor]:
        """Probability and residual, for the price of one law."""
        if self.shrinking:
            law = self._left(node)
            return self._own(law, node), (rows - law).clamp_(min=0)
        return self.prob(node), self.residual(rows, node)

    def _own(self, law: Tensor, node: Tensor) -> Tensor:
        return law.gather(1, self.draft.tokens.gather(1, node.unsqueeze(1))).squeeze(1).double()

    def _left(self, node: Tensor) -> Tensor:
        """What the elder siblings left of the law: ``[batch, vocab]``."""
        law = self.draft.law.rows(node.unsqueeze(1)).squeeze(1)
        keep = self._not_elder.index_select(0, self._starts + node).to(law.dtype)
        # A product, since a token may occur a second time elsewhere in the tree.
        unused = torch.ones_like(law).scatter_reduce_(1, self.draft.tokens, keep, "prod")
        return what_is_left(law, unused)

    @cached_property
    def _not_elder(self) -> Tensor:
        """False where node j is an elder sibling of node i: ``[batch * width, width]``, by i."""
        parents = self.draft.shape.parents
        nodes = torch.arange(parents.shape[1], device=parents.device)
        same = parents.unsqueeze(2) == parents.unsqueeze(1)
        return (~same | (nodes >= nodes.unsqueeze(1))).flatten(0, 1)

    @cached_property
    def _starts(self) -> Tensor:
        rows, width = self.draft.tokens.shape
        return torch.arange(rows, device=self.draft.tokens.device) * width
