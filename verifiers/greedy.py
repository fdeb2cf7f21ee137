"""Exact match: a drafted token stands if it is the target's most likely one."""

from __future__ import annotations

from ..framework.interfaces import Verifier
from ..framework.records import Trial, Verdict
from ..framework.specs import DRAWN
from ..framework.verdicts import law_at, longest_path


class GreedyVerifier(Verifier):
    """The rule for temperature 0. It reads no draft law and needs no noise.

    The law that the loop hands over is one-hot there, so what follows the accepted tokens is the
    target's own token, whether a draft was rejected or all stood.
    """

    greedy_only = True
    chains = trees = DRAWN

    def verify(self, trial: Trial) -> Verdict:
        draft = trial.draft
        best = trial.target_probs.argmax(-1).gather(1, draft.shape.contexts)
        matches = (draft.tokens == best) & draft.mask
        accepted, path, end = longest_path(draft, matches)
        return Verdict(accepted, law_at(trial.target_probs, end), matches.double(), path)
