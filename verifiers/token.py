"""Token-wise rejection: Leviathan, Kalman, Matias 2023 (arXiv:2211.17192), Algorithm 1."""

from __future__ import annotations

from ..framework.interfaces import Verifier
from ..framework.records import Trial, Verdict
from ..framework.verdicts import correction_law, leading, token_probs


class TokenVerifier(Verifier):
    """Token i stands with probability ``min(1, target / draft)``; the first that does not is
    replaced by a draw from the normalised residual ``max(0, target - draft)``. Lossless."""

    def verify(self, trial: Trial) -> Verdict:
        draft = trial.draft
        target = token_probs(trial.target_probs, draft.tokens).double()
        drafted = draft.law.prob(draft.tokens).double()
        stands = (trial.uniforms * drafted < target) & draft.mask
        accepted = leading(stands)
        accept_probs = (target / drafted.clamp(min=1e-300)).clamp(max=1.0).where(draft.mask, 0.0)
        return Verdict(accepted, correction_law(draft, trial.target_probs, accepted), accept_probs)
