"""Drafters whose reported law is not the law they drew from, or no law."""

from __future__ import annotations

import torch
from broken_models import Drawn
from planted import Planted
from planting import planter
from torch import Tensor

from foredraft.framework.records import Draft
from foredraft.framework.truncation import top_k, top_p

PLANTED: list[Planted] = []
fault = planter(PLANTED)


def one_hot(tokens: Tensor, like: Tensor) -> Tensor:
    """All mass on each row's token: ``[batch, vocab]``."""
    return torch.nn.functional.one_hot(tokens, like.shape[-1]).to(like)


# --- another law than the one drawn from ------------------------------------------------------


@fault(
    "draws at half the temperature, reports the law at the full one", "reported_law", "joint_law"
)
class Cooler(Drawn):
    def drawn(self, law: Tensor, position: int) -> Tensor:
        return self.context.draw(law**2 / (law**2).sum(-1, keepdim=True), position)


@fault("draws as the request says, reports its law at temperature 1", "reported_law", "joint_law")
class Warmer(Drawn):
    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        self.logits = super().next_logits(drafted)
        return self.logits

    def reported(self, law: Tensor, token: Tensor, position: int) -> Tensor:
        return self.logits.softmax(-1)


@fault("draws from the two likeliest tokens, reports the whole law", "reported_law")
class TopK(Drawn):
    def drawn(self, law: Tensor, position: int) -> Tensor:
        two = torch.full((len(law), 1), 2, device=law.device)
        return self.context.draw(top_k(law.log(), two, 2).softmax(-1), position)


@fault("draws from a nucleus of 0.7, reports the whole law", "reported_law", "joint_law")
class Nucleus(Drawn):
    def drawn(self, law: Tensor, position: int) -> Tensor:
        share = torch.full((len(law), 1), 0.7, dtype=torch.float64, device=law.device)
        return self.context.draw(top_p(law.log(), share).softmax(-1), position)


@fault("takes the likeliest token, reports the law of the softmax", "reported_law", "joint_law")
class Argmax(Drawn):
    def drawn(self, law: Tensor, position: int) -> Tensor:
        return law.argmax(-1)


@fault("draws a token, then reports that it could only be that one", "reported_law")
class OneHot(Drawn):
    def reported(self, law: Tensor, token: Tensor, position: int) -> Tensor:
        return one_hot(token, law)


@fault("raises the drawn token's share in the law it reports", "reported_law", "joint_law")
class Boosted(Drawn):
    def reported(self, law: Tensor, token: Tensor, position: int) -> Tensor:
        return (law + one_hot(token, law)) / 2


@fault(
    "reports the first position's law, a little flatter, for all that follow",
    "reported_law",
    "joint_law",
)
class FirstOnly(Drawn):
    first: Tensor

    def reported(self, law: Tensor, token: Tensor, position: int) -> Tensor:
        self.first = law if position == 0 else 0.95 * self.first + 0.05 / law.shape[-1]
        return self.first


@fault("fills up with id 0 behind its own end id, under the law of real tokens", "reported_law")
class Dummies(Drawn):
    def packed(self, gammas: list[int], tokens: Tensor, laws: Tensor) -> Draft:
        ended = (tokens == 1).cumsum(1) - (tokens == 1).long() > 0
        return super().packed(gammas, tokens.masked_fill(ended, 0), laws)


@fault("writes id 0 where it drew id 1, the end of its own tokenizer", "reported_law")
class OwnEnd(Drawn):
    def drawn(self, law: Tensor, position: int) -> Tensor:
        token = super().drawn(law, position)
        return token.where(token != 1, 0)


@fault("each row reports its neighbour's tokens", "reported_law", "rows_independent", "joint_law")
class TokensMixedUp(Drawn):
    def packed(self, gammas: list[int], tokens: Tensor, laws: Tensor) -> Draft:
        return super().packed(gammas, tokens.roll(1, 0), laws)


@fault("each row reports its neighbour's laws", "reported_law", "rows_independent", "joint_law")
class LawsMixedUp(Drawn):
    def packed(self, gammas: list[int], tokens: Tensor, laws: Tensor) -> Draft:
        return super().packed(gammas, tokens, laws.roll(1, 0))


# --- no law at all ----------------------------------------------------------------------------


@fault("adds 1e-5 to every probability after it has normalised", "well_formed_drafts")
class SumOff(Drawn):
    def reported(self, law: Tensor, token: Tensor, position: int) -> Tensor:
        return law.float() + 1e-5


@fault("normalises a masked law that may be all zeros, which makes it NaN", "well_formed_drafts")
class NotANumber(Drawn):
    def reported(self, law: Tensor, token: Tensor, position: int) -> Tensor:
        likely = law.where(law > 0.5, 0.0)
        return likely / likely.sum(-1, keepdim=True)


@fault("reports zero at the token that it drew", "well_formed_drafts")
class ZeroAtToken(Drawn):
    def reported(self, law: Tensor, token: Tensor, position: int) -> Tensor:
        rest = law * (1 - one_hot(token, law)) + 1e-9 * (1 - one_hot(token, law))
        return rest / rest.sum(-1, keepdim=True)
