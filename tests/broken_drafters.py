"""Broken drafters, each with one fault and the checks of the conformance kit that notice it.

Here are those that break the form of the contract; the others have files of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import broken_draws
import broken_laws
import broken_rows
import broken_states
import torch
from broken_models import Bigram, BranchingAlike, Copier, Drawn
from planted import Planted
from planting import CHOSEN, HEALTHY, planter
from torch import Tensor

from foredraft.framework.bases import point_mass_draft
from foredraft.framework.device import upload
from foredraft.framework.law import DenseLaw, PointMass
from foredraft.framework.records import Draft
from foredraft.framework.specs import INDEPENDENT, DraftKind

__all__ = ["HEALTHY", "PLANTED"]

PLANTED: list[Planted] = []
fault = planter(PLANTED)


@dataclass
class Distance:
    """A setting that is changed when it is read.

    Args:
        distance: how far back to look; kept less one.
    """

    distance: int = 3

    def __post_init__(self) -> None:
        self.distance -= 1


@fault("its config counts from 0 where its keys count from 1", "config_round_trip", config=Distance)
class ShiftingConfig(Copier):
    pass


@fault("declares that its tokens are chosen, and draws them", "declared_kind", kind=CHOSEN)
class DeclaresChosen(Drawn):
    pass


@fault("declares that its tokens are drawn, and chooses them", "declared_kind", kind=DraftKind())
class DeclaresDrawn(Copier):
    pass


@fault("declares chains, and drafts trees", "declared_kind", kind=DraftKind(INDEPENDENT))
class DeclaresChains(BranchingAlike):
    pass


@fault("drafts one token more than it was asked for", "at_most_gamma")
class OneMore(Drawn):
    def propose(self, gammas: list[int]) -> Draft:
        return super().propose([gamma + 1 if gamma else 0 for gamma in gammas])


@fault("drafts at least one token, also for rows with gamma 0", "at_most_gamma")
class AtLeastOne(Bigram):
    def limits(self, gammas: list[int]) -> list[int]:
        return [max(1, gamma) for gamma in gammas]


@fault("drafts for every row as much as for the one with the most", "at_most_gamma")
class LargestGamma(Copier):
    def propose(self, gammas: list[int]) -> Draft:
        return super().propose([max(gammas)] * len(gammas))


@fault("packs ids as int32", "well_formed_drafts")
class Int32(Drawn):
    def packed(self, gammas: list[int], tokens: Tensor, laws: Tensor) -> Draft:
        draft = super().packed(gammas, tokens, laws)
        return Draft(tokens.int(), draft.lengths, draft.law)


@fault("gives tokens without a batch dimension when there is one position", "well_formed_drafts")
class Squeezed(Drawn):
    def packed(self, gammas: list[int], tokens: Tensor, laws: Tensor) -> Draft:
        draft = super().packed(gammas, tokens, laws)
        return Draft(draft.tokens.squeeze(1), draft.lengths, draft.law)


@fault("pads drafts beyond the longest one", "well_formed_drafts")
class TooWide(Copier):
    def propose(self, gammas: list[int]) -> Draft:
        draft = super().propose(gammas)
        wide = point_mass_draft([[0] * (max(gammas) + 1)] * len(gammas), self.context.device)
        tokens = torch.cat([draft.tokens, wide.tokens[:, draft.width :]], 1)
        return Draft(tokens, draft.lengths, PointMass(tokens))


# --- vocabularies -----------------------------------------------------------------------------


class Padded(Bigram):
    """A model whose matrix is padded to a round number: two rows belong to no id."""

    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        logits = super().next_logits(
            [token.clamp(max=self.context.vocab_size - 1) for token in drafted]
        )
        return torch.nn.functional.pad(logits, (0, 2), value=0.0)


@fault("returns the laws of a padded vocabulary as they are", "well_formed_drafts")
class PaddedLaws(Padded):
    pass


@fault(
    "draws from a padded vocabulary, so that ids beyond the target's come up", "well_formed_drafts"
)
class PaddedIds(Padded, Drawn):
    def reported(self, law: Tensor, token: Tensor, position: int) -> Tensor:
        return law[:, :-2] / law[:, :-2].sum(-1, keepdim=True)

    def packed(self, gammas: list[int], tokens: Tensor, laws: Tensor) -> Draft:
        return Draft(tokens, list(gammas), DenseLaw(laws))


@fault("cuts the law of a padded vocabulary and does not normalise it", "well_formed_drafts")
class CutLaws(Padded, Drawn):
    def drawn(self, law: Tensor, position: int) -> Tensor:
        return self.context.draw(law[:, :-2], position)

    def reported(self, law: Tensor, token: Tensor, position: int) -> Tensor:
        return law[:, :-2]


@fault("drafts id -1 where it has found nothing", "well_formed_drafts")
class MinusOne(Copier):
    def propose(self, gammas: list[int]) -> Draft:
        chains = [list(self.continuation(row, g)) if g else [] for row, g in enumerate(gammas)]
        filled = [chain + [-1] * (g - len(chain)) for chain, g in zip(chains, gammas, strict=True)]
        return point_mass_draft(filled, self.context.device)


@fault("drafts an id equal to the vocabulary's size, its mark for unknown", "well_formed_drafts")
class OneBeyond(MinusOne):
    def propose(self, gammas: list[int]) -> Draft:
        draft = super().propose(gammas)
        tokens = draft.tokens.where(draft.tokens >= 0, self.context.vocab_size)
        return point_mass_draft(
            [row[:n] for row, n in zip(tokens.tolist(), draft.lengths, strict=True)], tokens.device
        )


@fault("knows the five ids it was trained on, and no others", "other_vocabulary")
class FixedVocabulary(Bigram):
    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        trained = torch.eye(5, dtype=torch.float64).roll(1, 1)
        newest = drafted[-1] if drafted else self.committed()
        return upload(trained, newest.device)[newest]


for module in (broken_laws, broken_draws, broken_states, broken_rows):
    PLANTED += module.PLANTED
