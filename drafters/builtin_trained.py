"""The drafters that are trained or fitted for their target: names, configs, factories. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ..framework.errors import ConfigError
from ..framework.growth import TreeConfig, grown
from ..framework.specs import CONTRACT_VERSION, DrafterSpec

if TYPE_CHECKING:
    from ..framework.interfaces import Drafter, Target


@dataclass
class MedusaConfig(TreeConfig):
    """Heads on the target's last hidden state, each guessing one token further ahead.

    Args:
        path: folder that ``foredraft train`` has written.
    """

    path: str | None = None


@dataclass
class EagleConfig(TreeConfig):
    """One decoder layer that goes on from the target's hidden states, run once per drafted token.

    Args:
        path: folder that ``foredraft train`` has written, or one of an EAGLE, EAGLE-3 or speculators
            checkpoint, or the hub's id of one.
    """

    path: str | None = None


def _eagle(config: EagleConfig, target: Target) -> Drafter:
    from .eagle import Eagle

    return Eagle.from_config(config, target)


@dataclass
class LayerSkipConfig:
    """The target without some of its layers.

    Args:
        skip: the layers that are left out, counted from 1, ascending.
        path: a file from ``foredraft fit drafter=layer_skip`` that names them, in place of ``skip``.
    """

    skip: list[int] = field(default_factory=list)
    path: str | None = None

    def __post_init__(self) -> None:
        if self.path is not None and self.skip:
            raise ConfigError(
                f"drafter.skip={self.skip} is not possible beside drafter.path={self.path}, which names "
                "the layers."
            )


def _layer_skip(config: LayerSkipConfig, target: Target) -> Drafter:
    from .layer_skip import LayerSkip

    return LayerSkip(config, target)


def _medusa(config: MedusaConfig, target: Target) -> Drafter:
    from .medusa import Medusa

    return Medusa.from_config(config, target)


def trained_drafters() -> list[DrafterSpec]:
    """What ``builtin.py`` offers of these."""
    spec = partial(DrafterSpec, contract=CONTRACT_VERSION)
    return [
        spec(
            "eagle", _eagle, EagleConfig,
            "a decoder layer on the target's hidden states, called once per token", kind=grown,
            trainee="foredraft.drafters.eagle_training:EagleTrainee",
        ),
        spec(
            "layer_skip", _layer_skip, LayerSkipConfig,
            "the target without some of its layers, on its cache",
        ),
        spec(
            "medusa", _medusa, MedusaConfig,
            "heads on the target's last hidden state, called once a round", kind=grown,
            trainee="foredraft.drafters.medusa_training:MedusaTrainee",
        ),
    ]  # fmt: skip
