"""Token-wise rejection: Leviathan, Kalman, Matias 2023 (arXiv:2211.17192), Algorithm 1."""

from __future__ import annotations

from torch import Tensor

from ..framework.interfaces import Draft, Verdict, Verifier
from ..framework.verdicts import correction_law, leading, token_probs


class TokenVerifier(Verifier):
    """Token i stands with probability ``min(1, target / draft)``; the first that does not is
    replaced by a draw from the normalised residual ``max(0, target - draft)``. Lossless."""

    def verify(self, draft: Draft, target_probs: Tensor, uniforms: Tensor) -> Verdict:
        target = token_probs(target_probs, draft.tokens).double()
        drafted = draft.law.prob(draft.tokens).double()
        stands = (uniforms * drafted < target) & draft.mask
        accepted = leading(stands)
        accept_probs = (target / drafted.clamp(min=1e-300)).clamp(max=1.0)
        return Verdict(accepted, correction_law(draft, target_probs, accepted), accept_probs)
