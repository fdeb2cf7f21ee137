"""The records that plugin hooks yield. This module imports neither torch nor transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CONTRACT_VERSION = 1


@dataclass(frozen=True)
class PartSpec:
    """One part that a plugin offers.

    Args:
        name: what the config names; lower case, digits and underscores.
        factory: called with the config object (and, for drafters, the built target) when the
            part is chosen; it imports its class inside, so that listing stays light.
        config: a dataclass with defaults for every field: the only place of defaults.
        summary: one line for ``foredraft plugins``.
        contract: the version of the contract the part was written for.
    """

    name: str
    factory: Callable[..., Any]
    config: type
    summary: str = ""
    contract: int = CONTRACT_VERSION


@dataclass(frozen=True)
class TargetSpec(PartSpec):
    """A kind of target. ``factory(config) -> Target``."""


@dataclass(frozen=True)
class DrafterSpec(PartSpec):
    """A drafter. ``factory(config, target) -> Drafter``.

    Args:
        deterministic: its drafts are point masses (no draft law to misreport).
        host_reads: device-to-host reads per drafted token (0 for most).
    """

    deterministic: bool = False
    host_reads: int = 0


@dataclass(frozen=True)
class VerifierSpec(PartSpec):
    """A verification rule. ``factory(config) -> Verifier``.

    Args:
        lossless: the output law is exactly the target's.
        greedy_only: refuses to be built with a temperature above 0.
    """

    lossless: bool = True
    greedy_only: bool = False


@dataclass(frozen=True)
class PolicySpec(PartSpec):
    """A draft-length policy. ``factory(config) -> GammaPolicy``."""
