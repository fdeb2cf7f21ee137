"""Typical acceptance, which changes the law: Medusa, Cai et al. 2024 (arXiv:2401.10774)."""

from __future__ import annotations

import torch

from ..framework.checks import check_range
from ..framework.interfaces import Verifier
from ..framework.records import Trial, Verdict
from ..framework.specs import DRAWN
from ..framework.verdicts import law_at, longest_path


class TypicalVerifier(Verifier):
    """A node stands if ``target > min(epsilon, delta * exp(-entropy(target)))``.

    The longest path of standing nodes is accepted; the target's law behind it gives the next
    token. Draft laws are not read. Greedy rows accept the likeliest token alone.

    Args:
        epsilon: a token at least this likely always stands; from 0 to 1.
        delta: how much less likely than typical a token may be; from 0 to 1.
    """

    lossless = False
    chains = trees = DRAWN

    def __init__(self, epsilon: float = 0.09, delta: float = 0.3) -> None:
        check_range("verifier.epsilon", epsilon, 0.0, 1.0)
        check_range("verifier.delta", delta, 0.0, 1.0)
        self.epsilon, self.delta = epsilon, delta

    def verify(self, trial: Trial) -> Verdict:
        draft, laws = trial.draft, trial.target_probs
        contexts, vocab = draft.shape.contexts, laws.shape[-1]
        entropy = torch.special.entr(laws).sum(-1)
        bounds = (self.delta * (-entropy).exp()).clamp(max=self.epsilon).gather(1, contexts)
        # One flat gather: laws are not copied per node.
        probs = laws.flatten(1).gather(1, contexts * vocab + draft.tokens)
        stands = (probs > bounds) & draft.mask
        accepted, path, end = longest_path(draft, stands)
        return Verdict(accepted, law_at(laws, end), stands.double(), path)
