"""Exact match: a drafted token stands if it is the target's most likely one."""

from __future__ import annotations

from torch import Tensor

from ..framework.interfaces import Draft, Verdict, Verifier
from ..framework.verdicts import law_at, leading


class GreedyVerifier(Verifier):
    """The rule for temperature 0. It reads no draft law and needs no noise.

    The law that the loop hands over is one-hot there, so what follows the accepted tokens is the
    target's own token, whether a draft was rejected or all stood.
    """

    greedy_only = True

    def verify(self, draft: Draft, target_probs: Tensor, uniforms: Tensor) -> Verdict:
        best = target_probs[:, : draft.width].argmax(-1)
        matches = (draft.tokens == best) & draft.mask
        accepted = leading(matches)
        return Verdict(accepted, law_at(target_probs, accepted), matches.double())
