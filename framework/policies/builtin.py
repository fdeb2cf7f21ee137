"""What the built-in policies offer: names, configs, factories. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ..checks import check_choice, check_range, check_whole
from ..errors import ConfigError
from ..plugins import hookimpl
from ..specs import CONTRACT_VERSION, PolicySpec
from . import builtin_times, oracle_config, specdecpp_config

if TYPE_CHECKING:
    from ..interfaces import GammaPolicy

MAX_GAMMA = 64
SCOPES = ("request", "batch")
BY = ("batch", "position")
TABLE = "a group of gammas by where they begin, such as {1:8,4:4,16:0}"


@dataclass
class FixedConfig:
    """The same gamma in every round.

    Args:
        gamma: drafted tokens per round; 0 is plain autoregressive decoding.
    """

    gamma: int = 4

    def __post_init__(self) -> None:
        check_whole("policy.gamma", self.gamma, 0, MAX_GAMMA)


@dataclass
class HeuristicConfig:
    """Two more drafted tokens after a round in which all stood, one less after any other.

    Args:
        start: gamma of the first round.
        max_gamma: the most tokens drafted per round.
        scope: ``request``, each request has its own gamma; ``batch``, all have the same.
    """

    start: int = 5
    max_gamma: int = 20
    scope: str = "request"

    def __post_init__(self) -> None:
        check_whole("policy.max_gamma", self.max_gamma, 1, MAX_GAMMA)
        check_whole("policy.start", self.start, 1, self.max_gamma)
        check_choice("policy.scope", self.scope, SCOPES)


@dataclass
class ConfidenceConfig:
    """Stop after a token that the drafter found unlikely.

    Args:
        threshold: a draft ends after a token whose draft probability is below this: the value of
            the first round.
        max_gamma: the most tokens drafted per round.
        aim: accept rate that the threshold is moved to hold.
        step: how far it is moved after a round, before smoothing; 0 keeps it where it is.
        smoothing: weight of the old threshold against the moved one.
        rate_smoothing: weight of the old accept rate against that of the round.
        scope: ``request``, each request has its own threshold; ``batch``, all have the same.
    """

    threshold: float = 0.4
    max_gamma: int = 8
    aim: float = 0.9
    step: float = 0.01
    smoothing: float = 0.9
    rate_smoothing: float = 0.5
    scope: str = "request"

    def __post_init__(self) -> None:
        for key in ("threshold", "aim", "step", "smoothing", "rate_smoothing"):
            check_range(f"policy.{key}", getattr(self, key), 0, 1)
        check_whole("policy.max_gamma", self.max_gamma, 1, MAX_GAMMA)
        check_choice("policy.scope", self.scope, SCOPES)


@dataclass
class EntropyConfig(ConfidenceConfig):
    """Stop before a token about which the drafter is undecided (AdaEDL).

    Args:
        threshold: a draft ends before a token for which ``1 - sqrt(weight * entropy)`` is below
            this; the other keys are those of ``confidence``.
        weight: of the entropy, which is in nats.
    """

    weight: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("policy.weight", self.weight, 0, 1000)


@dataclass
class ScheduleConfig:
    """Gamma by the number of live rows, or by the place in the answer.

    Args:
        by: ``batch``, rows that are live in the round; ``position``, tokens that the answer has.
        gammas: gamma from each number on; null is ``{1: 8, 4: 4, 16: 0}``, for ``batch`` alone.
    """

    by: str = "batch"
    gammas: dict[int, int] | None = field(default=None, metadata={"possible": TABLE})

    def __post_init__(self) -> None:
        check_choice("policy.by", self.by, BY)
        if self.gammas is None and self.by == "batch":
            self.gammas = {1: 8, 4: 4, 16: 0}
        given, first = self.gammas, int(self.by == "batch")
        self.gammas = _whole_keys(given)
        if first not in self.gammas or min(self.gammas) < first:
            raise ConfigError(
                f"policy.gammas={given!r} is not possible with policy.by={self.by}; its first key must "
                f"be {first}."
            )
        for key, gamma in self.gammas.items():
            check_whole(f"policy.gammas.{key}", gamma, 0, MAX_GAMMA)


def _whole_keys(given: object) -> dict[int, Any]:
    """The mapping with keys that JSON holds as text as numbers again."""
    pairs = given.items() if isinstance(given, Mapping) else ()
    keys = {_whole(key): value for key, value in pairs}
    if isinstance(given, Mapping) and None not in keys and len(keys) == len(given):
        return {key: value for key, value in keys.items() if key is not None}
    shown = "null" if given is None else repr(given)
    raise ConfigError(f"policy.gammas={shown} is not possible; it must be {TABLE}.")


def _whole(key: object) -> int | None:
    digits = isinstance(key, str) and key.isascii() and key.isdecimal()
    return int(key) if digits or type(key) is int else None  # type: ignore[call-overload]


def _fixed(config: FixedConfig) -> GammaPolicy:
    from .fixed import Fixed

    return Fixed(config)


def _per_request(config: HeuristicConfig | ConfidenceConfig) -> bool:
    return config.scope == "request"


def _by_position(config: ScheduleConfig) -> bool:
    return config.by == "position"


@hookimpl
def foredraft_policies() -> list[PolicySpec]:
    """The built-in policies."""
    spec, files = partial(PolicySpec, contract=CONTRACT_VERSION), "foredraft.framework.policies."
    return [
        spec("fixed", _fixed, FixedConfig, "the same gamma in every round"),
        spec(
            "heuristic", files + "heuristic:HeuristicSession", HeuristicConfig,
            "two more after success, one less after failure", row_local=_per_request,
        ),
        spec(
            "confidence", files + "confidence:ConfidenceSession", ConfidenceConfig,
            "stop after a token that the drafter found unlikely",
            row_local=_per_request, stops=True,
        ),
        spec(
            "entropy", files + "entropy:EntropySession", EntropyConfig,
            "stop before a token about which the drafter is undecided (AdaEDL)",
            row_local=_per_request, stops=True,
        ),
        spec(
            "schedule", files + "schedule:ScheduleSession", ScheduleConfig,
            "gamma by the number of live rows, or by the place in the answer",
            row_local=_by_position,
        ),
        specdecpp_config.SPEC,
        oracle_config.SPEC,
        *builtin_times.SPECS,
    ]  # fmt: skip
