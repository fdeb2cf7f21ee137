"""Drafters whose draft depends on what was drawn, or whose noise is not the request's."""

from __future__ import annotations

import torch
from broken_models import Branching, Drawn
from planted import Planted
from planting import planter
from torch import Tensor

from foredraft.framework.context import Context
from foredraft.framework.device import upload
from foredraft.framework.interfaces import Drafter, DraftSession, Target
from foredraft.framework.law import DenseLaw
from foredraft.framework.noise import Stream, draw
from foredraft.framework.records import Draft
from foredraft.framework.tree import Tree

PLANTED: list[Planted] = []
fault = planter(PLANTED)


# --- drafts that depend on what was drawn -----------------------------------------------------


@fault("drops a drawn token that was unlikely, and all behind it", "causal_stopping", "joint_law")
class DropsUnlikely(Drawn):
    def kept(self, gammas: list[int], tokens: Tensor, probs: Tensor) -> list[int]:
        sure = (probs > 0.3).long().cumprod(1).sum(1).tolist()
        return [min(gamma, n) for gamma, n in zip(gammas, sure, strict=True)]


@fault("drops id 1, the end of its own tokenizer, in place of drafting it", "causal_stopping")
class DropsOwnEnd(Drawn):
    ends: frozenset[int] = frozenset({1})

    def kept(self, gammas: list[int], tokens: Tensor, probs: Tensor) -> list[int]:
        rows = zip(tokens.tolist(), gammas, strict=True)
        return [next((i for i in range(n) if row[i] in self.ends), n) for row, n in rows]


@fault("never drafts the target's end id: it drops it when it has drawn it", "causal_stopping")
class DropsEnd(Drafter):
    def __init__(self, config: object, target: Target) -> None:
        self.ends = target.eos_ids

    def start(self, context: Context) -> DraftSession:
        session = DropsOwnEnd(context)
        session.ends = self.ends
        return session


@fault("drops a token that its draft holds already, and all behind it", "causal_stopping")
class DropsRepeats(Drawn):
    def kept(self, gammas: list[int], tokens: Tensor, probs: Tensor) -> list[int]:
        rows = zip(tokens.tolist(), gammas, strict=True)
        return [next((i for i in range(n) if row[i] in row[:i]), n) for row, n in rows]


@fault(
    "makes room in a full batch by dropping the tokens that came out unlikely", "causal_stopping"
)
class MakesRoom(Drawn):
    def kept(self, gammas: list[int], tokens: Tensor, probs: Tensor) -> list[int]:
        paths = probs.cumprod(1)
        least = paths.flatten().sort(descending=True).values[: -(-paths.numel() * 2 // 3)][-1]
        fits = (paths >= least).long().sum(1).tolist()
        return [min(gamma, n) for gamma, n in zip(gammas, fits, strict=True)]


@fault("puts drawn children in the order of their probability", "reported_law", "joint_law")
class Sorted(Branching):
    def propose(self, gammas: list[int]) -> Draft:
        draft = super().propose(gammas)
        if draft.tree is None:
            return draft
        tokens, probs = draft.tokens.clone(), draft.law.prob(draft.tokens)
        for left in range(0, draft.width, 2):  # two children to each node
            swap = probs[:, left] < probs[:, left + 1]
            pair = tokens[:, left : left + 2]
            if left == 0:  # their own children would have to move with them
                swap &= upload(draft.lengths, swap.device) == 2
            tokens[:, left : left + 2] = pair.flip(1).where(swap.unsqueeze(1), pair)
        return Draft(tokens, draft.lengths, draft.law, draft.tree, draft.drawn)


@fault("keeps the four drawn nodes that came out likeliest", "reported_law")
class Pruned(Branching):
    def propose(self, gammas: list[int]) -> Draft:
        draft = super().propose(gammas)
        if draft.tree is None:
            return draft
        probs, parents, law = draft.law.prob(draft.tokens), draft.tree.parents, draft.law
        above = probs.gather(1, parents.clamp(min=0)).where(parents >= 0, 1.0)
        paths = (probs * above).masked_fill(~draft.mask, -1.0)
        kept = paths.argsort(1, descending=True)[:, :4].sort(1).values
        old = parents.gather(1, kept).unsqueeze(2)
        new = (kept.unsqueeze(1) == old).long().argmax(2).where(old[..., 0] >= 0, -1)
        assert isinstance(law, DenseLaw) and law.index is not None
        law = DenseLaw(law.probs, law.index.gather(1, kept))
        lengths = [min(n, 4) for n in draft.lengths]
        tokens = draft.tokens.gather(1, kept)
        return Draft(tokens, lengths, law, Tree(new, draft.depth, 2), draft.drawn)


# --- noise ------------------------------------------------------------------------------------


@fault("draws with noise that is the same in every round", "reported_law", "joint_law")
class SameNoise(Drawn):
    def drawn(self, law: Tensor, position: int) -> Tensor:
        return draw(law, self.context.noise.uniform(Stream.DRAFT, 0, position, 1)[:, 0])


@fault("draws with the noise that accepts", "joint_law")
class AcceptNoise(Drawn):
    def drawn(self, law: Tensor, position: int) -> Tensor:
        at = self.context.round_index
        return draw(law, self.context.noise.uniform(Stream.ACCEPT, at, position, 1)[:, 0])


@fault("draws from torch's global generator", "seeds")
class GlobalNoise(Drawn):
    def drawn(self, law: Tensor, position: int) -> Tensor:
        return torch.multinomial(law, 1).squeeze(1)


@fault("seeds torch's global generator, to be repeatable", "seeds")
class GlobalSeed(Drawn):
    def drawn(self, law: Tensor, position: int) -> Tensor:
        torch.manual_seed(position)
        return torch.multinomial(law, 1).squeeze(1)
