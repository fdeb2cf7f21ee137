"""What a drafter tells ``foredraft train``: its network, and what that guesses of the target's answers.

A drafter's spec names the class under ``trainee``. The trainer gives it batches of texts with the
target's hidden states, asks for guesses, and compares each with the target's own law of the same token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from ..interfaces import Target
from ..trained import Card, write_trained


@dataclass(frozen=True)
class Texts:
    """Prompts with the target's answers, padded on the right.

    Args:
        ids: ``[rows, width]`` int64.
        answered: ``[rows, width]`` bool: ids that the target chose; the others are prompt or padding.
        hidden: by layer, ``[rows, width, size]``: the target's hidden states behind each id.
    """

    ids: Tensor
    answered: Tensor
    hidden: dict[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Guess:
    """What a drafter says of ids further on.

    Args:
        states: ``[rows, width, size]``; those at place t are of the id at place ``t + ahead``, and
            ``Trainee.logits`` makes a guess of them. Only some places are asked for.
        ahead: from 1, the very next id.
        position: where in a draft it is made, from 0.
        label: what reports call it, where several are made for one position; empty: by its position.
    """

    states: Tensor
    ahead: int
    position: int
    label: str = ""

    @property
    def name(self) -> str:
        """What reports call it."""
        return self.label or str(self.position + 1)


class Trainee(ABC):
    """A drafter that can be trained.

    Args:
        config: the drafter's config.
        target: what it is trained for; its own weights stay as they are.
        shape: an object of ``Shape``: what the new network is to be like.
        ids: the target's ids that it is to draft, ascending; None: all.

    Attributes:
        Shape: the dataclass behind ``train.shape``, with a default for every field.
        module: the network; all of its parameters are trained.
        layers: of the target, whose hidden states ``guesses`` reads.
    """

    Shape: ClassVar[type]
    module: nn.Module
    layers: tuple[int, ...] = ()

    def __init__(self, config: Any, target: Target, shape: Any, ids: Tensor | None = None) -> None:
        self.config, self.target, self.shape, self.ids = config, target, shape, ids

    @abstractmethod
    def guesses(self, texts: Texts) -> Sequence[Guess]:
        """What it guesses of a batch, with gradients."""

    @abstractmethod
    def logits(self, states: Tensor) -> Tensor:
        """``[n, size]`` of a guess to logits ``[n, ids]``: of the target's ids, or of ``ids`` alone."""

    def extra(self, texts: Texts) -> Tensor | None:
        """A further loss, a scalar; None where there is none."""
        return None

    def described(self) -> dict[str, Any]:
        """What the card says of the network: its shape, and how many ids it drafts if not all."""
        return {**asdict(self.shape), "vocabulary": None if self.ids is None else len(self.ids)}

    def write(self, folder: Path, card: Card) -> None:
        """Writes what the drafter's config will name."""
        write_trained(folder, self.tensors(), card)

    def tensors(self) -> dict[str, Tensor]:
        """What is written."""
        found = {name: value.detach() for name, value in self.module.state_dict().items()}
        return found if self.ids is None else {**found, "ids": self.ids}
