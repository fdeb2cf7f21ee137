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


def _medusa(config: MedusaConfig, target: Target) -> Drafter:
    from .medusa import Medusa

    return Medusa.from_config(config, target)


def trained_drafters() -> list[DrafterSpec]:
    """What ``builtin.py`` offers of these."""
    spec = partial(DrafterSpec, contract=CONTRACT_VERSION)
    return [
        spec(
            "medusa", _medusa, MedusaConfig,
            "heads on the target's last hidden state, called once a round", kind=grown,
            trainee="foredraft.drafters.medusa_training:MedusaTrainee",
        ),
    ]  # fmt: skip
