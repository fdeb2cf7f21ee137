"""Block verification: Sun et al. 2024 (arXiv:2403.10444), Algorithm 2."""

from __future__ import annotations

import torch
from torch import Tensor

from ..framework.interfaces import Verifier
from ..framework.records import Trial, Verdict
from ..framework.verdicts import law_at, token_probs


class BlockVerifier(Verifier):
    """Judges a chain as a whole. Lossless, and never accepts less than token-wise rejection.

    With weights ``w_0 = 1``, ``w_i = min(1, w_{i-1} target / draft)`` and residual masses
    ``S_i = sum(max(0, w_i target - draft))``, the first i tokens stand with probability
    ``h_i = S_i / (S_i + 1 - w_i)``, or ``w_i`` where they are the whole draft. The largest i
    that stands counts, whatever became of shorter ones. The next token follows the normalised
    ``max(0, w_i target - draft)``, or the target's law behind a whole draft.
    """

    def verify(self, trial: Trial) -> Verdict:
        draft, target_probs = trial.draft, trial.target_probs
        rows, width = draft.tokens.shape
        if width == 0:
            none = torch.zeros(rows, dtype=torch.int64, device=target_probs.device)
            return Verdict(none, target_probs[:, 0], trial.uniforms)
        drafted = draft.law.prob(draft.tokens).double()
        weights = _weights(token_probs(target_probs, draft.tokens).double(), drafted)
        before = torch.cat([torch.ones_like(weights[:, :1]), weights[:, :-1]], 1)
        scaled = before.to(target_probs.dtype).unsqueeze(-1) * target_probs[:, :width]
        residual = draft.law.residual(scaled)
        mass = residual.sum(-1)
        accept_probs = _accept_probs(weights, mass.double(), draft.mask)
        stands = trial.uniforms < accept_probs
        accepted = (stands * torch.arange(1, width + 1, device=stands.device)).amax(-1)
        return Verdict(accepted, _next_law(trial, residual, mass, accepted), accept_probs)


def _weights(target: Tensor, drafted: Tensor) -> Tensor:
    """``w_1 .. w_width`` of ``[batch, width]`` probabilities.

    A sum that is held back at 0 whenever it would rise above it: what it lost is its running
    maximum. Logarithms of impossible tokens are -inf, and stay so.
    """
    total = (target.log() - drafted.clamp(min=1e-300).log()).cumsum(-1)
    return (total - total.cummax(-1).values.clamp(min=0)).exp()


def _accept_probs(weights: Tensor, mass: Tensor, real: Tensor) -> Tensor:
    """``h_1 .. h_width``; ``mass[:, i]`` is S_i. 0 at padding."""
    behind = mass.roll(-1, 1)  # behind the last token comes padding, or nothing
    total = behind + (1 - weights)
    partial = torch.where(total > 0, behind / total.clamp(min=1e-300), 1.0)
    last = real & ~torch.cat([real[:, 1:], torch.zeros_like(real[:, :1])], 1)
    return torch.where(last, weights, partial).where(real, 0.0)


def _next_law(trial: Trial, residual: Tensor, mass: Tensor, accepted: Tensor) -> Tensor:
    """The residual behind the accepted tokens, or the target's law where there is none."""
    at = accepted.clamp(max=residual.shape[1] - 1)
    left = mass.gather(1, at.unsqueeze(1))
    rejected = (accepted < trial.draft.mask.sum(-1)).unsqueeze(1) & (left > 0)
    tiny = torch.finfo(left.dtype).tiny
    return (law_at(residual, at) / left.clamp(min=tiny)).where(
        rejected, law_at(trial.target_probs, accepted)
    )
