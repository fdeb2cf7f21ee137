"""Stop after a token that the drafter itself found unlikely."""

from __future__ import annotations

from torch import Tensor

from ..records import DraftStep
from .threshold import ThresholdSession


class ConfidenceSession(ThresholdSession):
    """Ends a draft after a token whose draft probability was below the threshold (transformers'
    ``assistant_confidence_threshold``; Zhang et al. 2023, arXiv:2309.08168). The token itself stays
    in the draft: dropping it for its value would change the law of the answer."""

    def score(self, step: DraftStep) -> Tensor | None:
        return step.probs[-1] if step.probs else None
