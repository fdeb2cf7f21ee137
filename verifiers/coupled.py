"""Coupled sampling: Daliri, Musco, Suresh 2024 (arXiv:2408.07978), with Gumbel noise."""

from __future__ import annotations

from ..framework.interfaces import Verifier
from ..framework.records import Trial, Verdict
from ..framework.verdicts import law_at, leading


class CoupledVerifier(Verifier):
    """Drafter and target draw with one Gumbel noise per position; a token stands if they agree.

    The target's token is ``argmax(log target + noise)`` at every position, so the text is a
    function of the seed and the target alone: every drafter, gamma and policy gives the same
    tokens. Drafts agree with probability ``(1 - TV) / (1 + TV)`` or more, where token-wise
    rejection accepts ``1 - TV``.
    """

    shared_noise = True

    def verify(self, trial: Trial) -> Verdict:
        draft = trial.draft
        # An impossible token has logarithm -inf; on equal scores the first one is taken.
        tokens = (trial.target_probs.double().log() + trial.gumbel()).argmax(-1)
        matches = (draft.tokens == tokens[:, : draft.width]) & draft.mask
        accepted = leading(matches)
        token = tokens.gather(1, accepted.unsqueeze(1)).squeeze(1)
        law = law_at(trial.target_probs, accepted)
        return Verdict(accepted, law, matches.double(), token=token)
