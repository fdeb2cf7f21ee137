"""The drafters that are trained for their target: names, configs, factories. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

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
            "medusa", _medusa, MedusaConfig,
            "heads on the target's last hidden state, called once a round", kind=grown,
            trainee="foredraft.drafters.medusa_training:MedusaTrainee",
        ),
    ]  # fmt: skip
