"""Training Medusa's heads: each guesses the id that lies one further on than the head before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from ..framework.checks import check_whole
from ..framework.heads import LMHead
from ..framework.interfaces import Target
from ..framework.training.trainee import Guess, Texts, Trainee
from .medusa_net import MOST_HEADS, MedusaHeads

if TYPE_CHECKING:
    from .builtin_trained import MedusaConfig


@dataclass
class MedusaShape:
    """New heads.

    Args:
        heads: how many, and so how many tokens they draft.
    """

    heads: int = 4

    def __post_init__(self) -> None:
        check_whole("train.shape.heads", self.heads, 1, MOST_HEADS)


class MedusaTrainee(Trainee):
    """New heads, as the identity: each begins as a guess of the very next id."""

    Shape = MedusaShape

    def __init__(
        self, config: MedusaConfig, target: Target, shape: MedusaShape, ids: Tensor | None = None
    ) -> None:
        super().__init__(config, target, shape, ids)
        self.head = LMHead.of(target, "medusa").reduced(ids).frozen()
        self.module = MedusaHeads(shape.heads, self.head.weight.shape[1])
        self.module.to(self.head.weight.device)
        self.layers = (target.depth,)

    def guesses(self, texts: Texts) -> Sequence[Guess]:
        """Head k, from 0, at place t: the hidden state there knows id t and foresees id t + 1, which is
        committed by the time it drafts; the head guesses id t + 2 + k."""
        states = self.module(texts.hidden[self.layers[0]], self.shape.heads)
        return [Guess(states[..., k, :], ahead=k + 2, position=k) for k in range(self.shape.heads)]

    def logits(self, states: Tensor) -> Tensor:
        return self.head.narrow(states)
