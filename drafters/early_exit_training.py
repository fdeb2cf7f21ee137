"""Training early exits: each guesses the next id from the hidden states behind its own layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from ..framework.checks import check_whole
from ..framework.errors import ConfigError
from ..framework.heads import LMHead
from ..framework.interfaces import Target
from ..framework.training.trainee import Guess, Texts, Trainee
from ..framework.views import final_norm
from .early_exit import KEY, UNTRAINED, check_layered
from .early_exit_net import MOST_RANK, Exits

if TYPE_CHECKING:
    from .builtin import EarlyExitConfig


@dataclass
class EarlyExitShape:
    """New exits.

    Args:
        exits: layers of the target, ascending; all are fitted at once, and none knows of the others.
        rank: of each adapter.
    """

    exits: list[int] = field(default_factory=lambda: [UNTRAINED])
    rank: int = 64

    def __post_init__(self) -> None:
        check_whole("train.shape.rank", self.rank, 1, MOST_RANK)
        if not self.exits or self.exits != sorted(set(self.exits)):
            raise ConfigError(
                f"train.shape.exits={self.exits} is not possible; it must be a list of layers, ascending, "
                "such as [4,8]."
            )


class EarlyExitTrainee(Trainee):
    """New exits, as the untrained one: the target's final norm, and an adapter that adds nothing."""

    Shape = EarlyExitShape

    def __init__(
        self,
        config: EarlyExitConfig,
        target: Target,
        shape: EarlyExitShape,
        ids: Tensor | None = None,
    ) -> None:
        super().__init__(config, target, shape, ids)
        model = check_layered(target, KEY).model
        if config.layers is not None:
            raise ConfigError(
                f"drafter.layers={config.layers} has no effect on a training; write "
                f"train.shape.exits=[{config.layers}]."
            )
        for layer in shape.exits:
            check_whole("train.shape.exits", layer, 1, target.depth - 1)
        whole = LMHead.of(target, "early_exit")
        norm = getattr(model.base_model, final_norm(model, KEY))
        self.head = whole.reduced(ids).frozen()
        self.module = Exits(shape.exits, shape.rank, norm, whole.weight.shape[1])
        self.module.float().to(whole.weight.device)
        self.layers = tuple(shape.exits)

    def guesses(self, texts: Texts) -> Sequence[Guess]:
        """Alternatives for the very next id, one of each exit."""
        return [
            Guess(self.module(texts.hidden[layer], layer), 1, 0, f"layer {layer}")
            for layer in self.layers
        ]

    def logits(self, states: Tensor) -> Tensor:
        return self.head.narrow(states)
