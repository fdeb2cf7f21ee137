"""The config of ``policy=oracle``, and its refusal outside a replay. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from ..errors import ConfigError
from ..specs import CONTRACT_VERSION, PolicySpec


@dataclass
class OracleConfig:
    """Draft exactly up to the first rejection; nothing to set."""


def refuse(config: object = None) -> NoReturn:
    """What a live run gets: nobody knows its text yet."""
    raise ConfigError(
        "policy=oracle is not possible in a live run, because it has to know where the first "
        "rejection will be; 'foredraft replay' runs it over recorded traces."
    )


SPEC = PolicySpec(
    "oracle",
    refuse,
    OracleConfig,
    "draft exactly up to the first rejection; replay only",
    contract=CONTRACT_VERSION,
)
