"""Recursive rejection in a tree: SpecInfer, Miao et al. 2023 (arXiv:2305.09781); for children drawn
without replacement, Jeon et al. 2024 (arXiv:2402.14160) and Sequoia, Chen et al. 2024
(arXiv:2402.12374)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..framework.children import ChildLaws
from ..framework.interfaces import Verifier
from ..framework.records import Trial, Verdict
from ..framework.specs import DRAWN
from ..framework.tree import NONE
from ..framework.verdicts import law_at


class RecursiveVerifier(Verifier):
    """Judges the children of a node one by one, in the order drawn. Lossless.

    What has to be reached is at first the target's law. A child stands with probability ``min(1,
    wanted / draft)``, and the walk goes on among its own children. If it does not stand, the
    wanted law becomes the normalised ``max(0, wanted - draft)`` and the next sibling is judged,
    whose draft law is the same (independent), what is left of it (without replacement) or a
    point mass (deterministic). Where no child stands, or there is none, the next token follows
    the wanted law. In a chain this is token-wise rejection.
    """

    chains = trees = DRAWN

    def verify(self, trial: Trial) -> Verdict:
        walk = _Walk(trial)
        for _ in range(walk.steps):
            walk.step()
        return Verdict(walk.accepted, walk.wanted, walk.accept_probs[:, :-1], walk.path[:, :-1])


class _Walk:
    """One step judges one node of every row: ``node [batch]``, -1 in rows that are done."""

    def __init__(self, trial: Trial) -> None:
        draft, tree = trial.draft, trial.draft.shape
        rows, width = draft.tokens.shape
        self.trial, self.laws = trial, ChildLaws(draft)
        self.steps = min(width, tree.depth * tree.children)
        self.child, self.sibling = tree.first_child(draft.mask), tree.next_sibling(draft.mask)
        self.node = self.child[:, 0]
        self.wanted = trial.target_probs[:, 0]
        self.accepted = torch.zeros_like(self.node)
        # The last column takes what rows without a decision write.
        self.path = self.node.new_full((rows, tree.depth + 1), NONE)
        self.accept_probs = trial.uniforms.new_zeros(rows, width + 1)

    def step(self) -> None:
        live, node = self.node >= 0, self.node.clamp(min=0)
        at = node.unsqueeze(1)
        drafted, left = self.laws.judge(self.wanted, node)
        token = self.trial.draft.tokens.gather(1, at)
        target = self.wanted.gather(1, token).squeeze(1).double()
        yes = live & (self.trial.uniforms.gather(1, at).squeeze(1) * drafted < target)
        self._record(live, yes, node, target / drafted.clamp(min=1e-300))
        self._set_wanted(live, yes, node, left)
        below = self.child.gather(1, at + 1).squeeze(1)
        beside = self.sibling.gather(1, at).squeeze(1)
        self.node = torch.where(yes, below, beside).where(live, NONE)

    def _record(self, live: Tensor, yes: Tensor, node: Tensor, ratio: Tensor) -> None:
        places = node.where(live, self.accept_probs.shape[1] - 1).unsqueeze(1)
        self.accept_probs.scatter_(1, places, ratio.clamp(max=1.0).unsqueeze(1))
        places = self.accepted.where(yes, self.path.shape[1] - 1).unsqueeze(1)
        self.path.scatter_(1, places, node.unsqueeze(1))
        self.accepted = self.accepted + yes

    def _set_wanted(self, live: Tensor, yes: Tensor, node: Tensor, left: Tensor) -> None:
        """The target's law behind an accepted node, else the normalised residual."""
        mass = left.sum(-1)
        none = (mass <= 0) & ~yes  # an empty residual leaves the wanted law as it is
        behind = law_at(self.trial.target_probs, (node + 1).where(yes, 0))
        # Sums of rows of which one counts, which is cheaper than choosing per id.
        left = left / mass.where(~yes & ~none, torch.inf).unsqueeze(1)
        left.addcmul_(behind, yes.to(left.dtype).unsqueeze(1))
        # Choosing shuts out what padding may hold.
        self.wanted = torch.where((live & ~none).unsqueeze(1), left, self.wanted)
