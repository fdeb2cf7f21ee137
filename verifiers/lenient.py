"""Lenient rejection, which changes the law: Leviathan et al. 2023 (arXiv:2211.17192), A.5."""

from __future__ import annotations

import torch
from torch import Tensor

from ..framework.checks import check_range
from ..framework.interfaces import Verifier
from ..framework.records import Trial, Verdict
from ..framework.verdicts import correction_law, leading, token_probs


class LenientVerifier(Verifier):
    """A token stands with probability ``min(1, target / (lenience * draft))``.

    No token gets more than ``target / lenience``. The paper does not say what follows a rejection;
    here it is a draw from the normalised ``max(0, target - draft)``, as without lenience. Greedy
    rows accept a token that is at least ``lenience`` times as likely as the likeliest one, both
    at temperature 1, and correct to the likeliest.

    Args:
        lenience: from 0, which accepts everything, to 1, which is the token-wise rule (with
            greedy rows, but for ties).
    """

    lossless = False

    def __init__(self, lenience: float) -> None:
        check_range("verifier.lenience", lenience, 0.0, 1.0)
        self.lenience = lenience

    def verify(self, trial: Trial) -> Verdict:
        draft = trial.draft
        likely = self._greedy(trial).double()
        accept_probs = torch.where(trial.greedy.unsqueeze(1), likely, self._sampled(trial))
        accept_probs = accept_probs.where(draft.mask, 0.0)
        # What a control bans is no matter of lenience.
        allowed = token_probs(trial.logits, draft.tokens) > -torch.inf
        accept_probs = accept_probs.where(allowed, 0.0)
        accepted = leading(trial.uniforms < accept_probs)
        return Verdict(accepted, correction_law(draft, trial.target_probs, accepted), accept_probs)

    def _sampled(self, trial: Trial) -> Tensor:
        tokens = trial.draft.tokens
        bound = self.lenience * trial.draft.law.prob(tokens).double()
        ratio = token_probs(trial.target_probs, tokens).double() / bound.clamp(min=1e-300)
        return ratio.clamp(max=1.0) if self.lenience > 0 else torch.ones_like(ratio)

    def _greedy(self, trial: Trial) -> Tensor:
        best = trial.logits[:, : trial.draft.width].amax(-1)
        behind = token_probs(trial.logits, trial.draft.tokens) - best
        return behind.exp() >= self.lenience
