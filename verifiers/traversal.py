"""Traversal verification of a tree, from the leaves to the root: Weng et al. 2025
(arXiv:2505.12398)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..framework.children import ChildLaws
from ..framework.interfaces import Verifier
from ..framework.records import Trial, Verdict
from ..framework.specs import DRAWN
from ..framework.tree import NONE
from ..framework.verdicts import law_at


class TraversalVerifier(Verifier):
    """Judges whole paths, from the leaves on. Lossless; on average it accepts no less than recursive
    rejection.

    The root has weight 1, a node the weight ``min(1, parent's weight * target / draft)``. The
    first leaf in the order drawn stands, with its whole path, with its weight as probability. If
    it does not, it is taken away, and its parent's target law becomes the normalised
    ``residual = max(0, weight * target - draft)``, its weight ``S / (S + 1 - weight)`` with S the
    residual's sum; siblings that follow are weighed against the new law. A parent whose children
    have all gone is a leaf itself; where nothing stands, the root's law gives the next token. In
    a chain this is block verification.
    """

    chains = trees = DRAWN

    def verify(self, trial: Trial) -> Verdict:
        walk = _Walk(trial)
        for visit in walk.visits():
            walk.visit(visit)
        return walk.verdict()


class _Visit(NamedTuple):
    """What a step needs to know of its node; columns ``[batch, 1]``."""

    node: Tensor
    row: Tensor  # its law row
    uniform: Tensor
    parent: Tensor  # the parent's law row
    slot: Tensor  # where the parent's law is kept
    eldest: Tensor  # 1.0 for an eldest child
    later: Tensor  # 1.0 for the others
    sibling: Tensor  # the next one, 0 if there is none
    token: Tensor  # the sibling's
    run: Tensor  # the sibling's law row, -1 if there is none


class _Walk:
    """Visits each node once, after all its descendants and its elder siblings, as if none of those
    had stood. What the verdict needs is not written any more once one has.

    Of ``weights [batch, width + 1]``, one per law row, those on the way to the next leaf are
    right. A parent's law is kept times its weight in ``kept``: for every level, that of the only
    parent there whose children are being visited, so that no more rows are copied than change. A
    last one takes what is to be forgotten.
    """

    def __init__(self, trial: Trial) -> None:
        draft, tree, probs = trial.draft, trial.draft.shape, trial.target_probs
        self.trial, self.tree, self.laws = trial, tree, ChildLaws(draft)
        self.child, self.order = tree.first_child(draft.mask), tree.leaf_to_root(draft.mask)
        self.levels = torch.nn.functional.pad(tree.depths + 1, (1, 0)).clamp(max=tree.depth)
        self.kept = probs.new_zeros(len(probs) * (tree.depth + 1), probs.shape[-1])
        self.slots = torch.arange(len(probs), device=probs.device) * (tree.depth + 1)
        self.spare = self.slots + tree.depth
        self.done = torch.zeros_like(self.slots, dtype=torch.bool).unsqueeze(1)
        self.seen = [trial.uniforms.new_zeros(len(probs), 0)]  # weights of the nodes visited
        nodes = torch.arange(draft.width, device=probs.device)
        self.is_eldest = self.child.gather(1, tree.contexts) == nodes
        self.top, self.climb, self.cap = _runs(trial, self.laws.probs, self.is_eldest)
        self.weights = torch.minimum(self.cap, self.climb).exp()

    def visits(self) -> list[_Visit]:
        draft, parents = self.trial.draft, self.tree.contexts
        slots = self.slots.unsqueeze(1) + self.levels.gather(1, parents)
        slots = slots.where(draft.mask, self.spare.unsqueeze(1))
        eldest, later = self.is_eldest.double(), (~self.is_eldest).to(self.kept.dtype)
        found = self.tree.next_sibling(draft.mask)
        sibling, run = found.clamp(min=0), (found + 1).where(found >= 0, -1)
        token = draft.tokens.gather(1, sibling)
        columns = (self.trial.uniforms, parents, slots, eldest, later, sibling, token, run)
        ordered = [self.order, self.order + 1, *(x.gather(1, self.order) for x in columns)]
        steps = zip(*(column.unsqueeze(-1).unbind(1) for column in ordered), strict=True)
        return [_Visit(*step) for step in steps]

    def visit(self, visit: _Visit) -> None:
        """The node is a leaf by now. It stands, or goes and takes its part of the parent's law."""
        weight = self.weights.gather(1, visit.row)
        self.seen.append(weight)
        self.done = self.done | (visit.uniform < weight)
        weight = self.weights.gather(1, visit.parent)
        left = self.laws.residual(self._law(visit, weight), visit.node.squeeze(1))
        mass = left.sum(-1, keepdim=True).double()
        # 0 if target and draft are equal, in which case the node stood.
        total = (mass + (1 - weight)).clamp(min=1e-30)
        left = (left / total.to(left.dtype)).to(self.kept.dtype)  # draft laws may be wider
        # Without a host read no row can be left out: it goes where none is read.
        slot = torch.where(self.done.squeeze(1), self.spare, visit.slot.squeeze(1))
        self.kept.index_copy_(0, slot, left)
        self.weights.scatter_(1, visit.parent, mass / total)
        self._enter(visit, left)

    def _law(self, visit: _Visit, weight: Tensor) -> Tensor:
        """The parent's law times its weight, without what its children so far took of it."""
        fresh = law_at(self.trial.target_probs, visit.parent.squeeze(1))
        fresh.mul_((weight * visit.eldest).to(fresh.dtype))
        kept = self.kept.index_select(0, visit.slot.squeeze(1))
        return fresh.addcmul_(kept, visit.later)

    def _enter(self, visit: _Visit, law: Tensor) -> None:
        """Weights of the next sibling and of its eldest child, the eldest child of that, ..."""
        drafted = self.laws.prob(visit.sibling.squeeze(1)).unsqueeze(1).clamp(min=1e-300)
        weight = (law.gather(1, visit.token).double() / drafted).log().clamp(max=0.0)
        weights = torch.minimum(self.cap, self.climb + weight).exp()
        self.weights = weights.where(self.top == visit.run, self.weights)

    def verdict(self) -> Verdict:
        weights, draft = torch.cat(self.seen, 1), self.trial.draft
        real = draft.mask.gather(1, self.order)
        stands = (self.trial.uniforms.gather(1, self.order) < weights) & real
        steps = torch.arange(draft.width, device=weights.device)
        first = steps.where(stands, draft.width)
        first = torch.nn.functional.pad(first, (0, 1), value=draft.width).amin(1, keepdim=True)
        weights = weights.where(real & (steps <= first), 0.0)
        accept_probs = torch.zeros_like(weights).scatter_(1, self.order, weights)
        # The root, law row 0, comes after all nodes.
        end = torch.nn.functional.pad(self.order + 1, (0, 1)).gather(1, first).squeeze(1)
        accepted = self.levels.gather(1, end.unsqueeze(1)).squeeze(1)
        return Verdict(accepted, self._next_law(end, accepted), accept_probs, self._path(end))

    def _next_law(self, end: Tensor, level: Tensor) -> Tensor:
        """The target's law, or what the children left of it where there were any."""
        kept = self.kept.index_select(0, self.slots + level)
        mass = kept.sum(-1, keepdim=True)
        touched = (self.child.gather(1, end.unsqueeze(1)) >= 0) & (mass > 0)
        target = law_at(self.trial.target_probs, end)
        return torch.where(touched, kept / mass.where(mass > 0, 1.0), target)

    def _path(self, end: Tensor) -> Tensor:
        root = torch.full((len(end), 1, self.tree.depth), NONE, device=end.device)
        paths = torch.cat([root, self.tree.paths()], 1)
        return paths[torch.arange(len(end), device=end.device), end]


def _runs(trial: Trial, drafted: Tensor, is_eldest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """How weights go from a node to its eldest child, the eldest child of that, and so on.

    Returns for each law row: the row ``top`` in which its run of eldest children starts, and two
    logarithms that give its weight, ``exp(min(cap, climb + log(weight of top)))``.
    """
    draft, probs, contexts = trial.draft, trial.target_probs, trial.draft.shape.contexts
    places = contexts * probs.shape[-1] + draft.tokens
    target = probs.flatten(1).gather(1, places).double()
    ratio = (target / drafted.clamp(min=1e-300)).log()
    top = torch.arange(draft.width + 1, device=probs.device).repeat(len(probs), 1)
    own, climb = top[:, 1:].clone(), torch.zeros_like(top, dtype=torch.float64)
    cap = climb.clone()
    for _ in range(min(draft.depth, draft.width)):  # each time, one more level is right
        above = [x.gather(1, contexts) for x in (top, climb, cap)]
        top[:, 1:] = above[0].where(is_eldest, own)
        climb[:, 1:] = (above[1] + ratio).where(is_eldest, 0.0)
        cap[:, 1:] = (above[2] + ratio).clamp(max=0.0).where(is_eldest, 0.0)
    return top, climb, cap
