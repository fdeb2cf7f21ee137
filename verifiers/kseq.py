"""K-SEQ: SpecTr, Sun et al. 2023 (arXiv:2310.15141), Algorithm 2."""

from __future__ import annotations

import torch
from torch import Tensor

from ..framework.interfaces import Verifier
from ..framework.records import Trial, Verdict
from ..framework.specs import INDEPENDENT
from ..framework.verdicts import law_at

# Halvings of [1, k]. Any factor above the root is lossless and accepts hardly less.
STEPS = 24


class KSeqVerifier(Verifier):
    """Judges k children drawn independently from one law by one common factor. Lossless.

    With ``beta = sum(min(draft, target / factor))`` and the smallest factor in [1, k] for which
    ``1 - (1 - beta)**k <= factor * beta``, each child stands with probability ``min(1, target /
    (factor * draft))``; the first that stands counts, and the walk goes on among its children.
    Where none stands, the next token follows the normalised ``target - min(draft, target /
    factor) * (1 - (1 - beta)**k) / beta``. With one child the factor is 1 and the rule is
    token-wise rejection.
    """

    trees = (INDEPENDENT,)

    def verify(self, trial: Trial) -> Verdict:
        walk = _Walk(trial)
        for _ in range(min(trial.draft.depth, trial.draft.width)):
            walk.step()
        return Verdict(walk.accepted, walk.next_law(), walk.accept_probs, walk.path)


class _Walk:
    """One step judges the children behind one law row of every batch row: ``at [batch]``."""

    def __init__(self, trial: Trial) -> None:
        draft, probs, tree = trial.draft, trial.target_probs, trial.draft.shape
        self.trial, self.children = trial, tree.children
        self.eldest = tree.first_child(draft.mask)
        self.contexts = tree.contexts.where(draft.mask, -1)
        places = tree.contexts * probs.shape[-1] + draft.tokens
        self.target = probs.flatten(1).gather(1, places).double()
        self.drafted = draft.law.prob(draft.tokens).double()
        self.nodes = torch.arange(draft.width, device=probs.device)
        self.at = self.eldest.new_zeros(len(self.eldest))
        self.accepted, self.stopped = self.at, self.at > 0
        self.factor = self.share = trial.uniforms.new_ones(len(self.at))
        self.accept_probs = torch.zeros_like(trial.uniforms)
        self.path = self.at.new_full((len(self.at), tree.depth), -1)

    def step(self) -> None:
        family = (self.contexts == self.at.unsqueeze(1)) & ~self.stopped.unsqueeze(1)
        self._solve(family.sum(1))
        bound = self.factor.unsqueeze(1) * self.drafted
        stands = family & (self.trial.uniforms * bound < self.target)
        width = len(self.nodes)
        first = self.nodes.where(stands, width).amin(1)  # where none stands, all were judged
        ratio = (self.target / bound.clamp(min=1e-300)).clamp(max=1.0)
        judged = family & (self.nodes <= first.unsqueeze(1))
        self.accept_probs = ratio.where(judged, self.accept_probs)
        self._move(first < width, first)

    def _solve(self, count: Tensor) -> None:
        """The factor of rows that have not stopped, and what their residual takes of
        ``min(draft, target / factor)``."""
        row, node = law_at(self.trial.target_probs, self.at), self._eldest()
        law, count = self.trial.draft.law, count.clamp(min=1).double()
        if self.children > 1:
            factor, beta = _smallest_factor(row, law.rows(node).squeeze(1), count)
            share = _any_of(beta, count) / beta.clamp(min=1e-300)
            share = share.where(count > 1, 1.0)
        else:
            factor = share = torch.ones_like(count)
        self.factor = self.factor.where(self.stopped, factor)
        self.share = self.share.where(self.stopped, share)

    def _move(self, yes: Tensor, node: Tensor) -> None:
        depths = torch.arange(self.path.shape[1], device=node.device)
        here = (depths == self.accepted.unsqueeze(1)) & yes.unsqueeze(1)
        self.path = node.unsqueeze(1).where(here, self.path)
        self.accepted = self.accepted + yes
        self.at = (node + 1).where(yes, self.at)
        self.stopped = self.stopped | ~yes

    def _eldest(self) -> Tensor:
        return self.eldest.gather(1, self.at.unsqueeze(1)).clamp(min=0)

    def next_law(self) -> Tensor:
        """The residual where children were judged and none stood, or the target's law."""
        row = law_at(self.trial.target_probs, self.at)
        if len(self.nodes) == 0:
            return row
        factor, share = (x.to(row.dtype).unsqueeze(1) for x in (self.factor, self.share))
        left = self.trial.draft.law.residual((row / factor).unsqueeze(1), self._eldest())
        # target - share * min(draft, target / factor), without a difference of near equals
        left = row * (1 - share / factor).clamp(min=0) + share * left.squeeze(1)
        mass = left.sum(-1, keepdim=True)
        judged = self.eldest.gather(1, self.at.unsqueeze(1)) >= 0
        return (left / mass.where(mass > 0, 1.0)).where(judged & (mass > 0), row)


def _smallest_factor(target: Tensor, draft: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """The factor by halving [1, count], and its beta; ``[batch]`` float64. The upper end is kept,
    for which the rule is a law."""
    low, high = torch.ones_like(count), count
    middle = low  # the lower end itself may do, as where both laws agree
    for _ in range(STEPS):
        beta = _beta(target, draft, middle)
        valid = _any_of(beta, count) <= middle * beta
        low, high = torch.where(valid, low, middle), torch.where(valid, middle, high)
        middle = (low + high) / 2
    return high, _beta(target, draft, high)


def _beta(target: Tensor, draft: Tensor, factor: Tensor) -> Tensor:
    scaled = target / factor.to(target.dtype).unsqueeze(1)
    return torch.minimum(scaled, draft).sum(-1).double()


def _any_of(beta: Tensor, count: Tensor) -> Tensor:
    """``1 - (1 - beta)**count``, to full precision also for small beta."""
    return -torch.expm1(count * torch.log1p(-beta.clamp(max=1.0)))
