"""Policies for a replay, by name as in a config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ..errors import ConfigError
from ..interfaces import GammaPolicy
from ..pairing import check_policy
from ..specs import DETERMINISTIC, DraftKind, PolicySpec
from ..traces import DenseTrace


@dataclass(frozen=True)
class Choice:
    """A policy to replay.

    Args:
        name: what tables call it.
        policy: the policy.
        together: whether its rows can share a session although each is a run of its own.
        stops: whether it is nothing without being asked before each token.
    """

    name: str
    policy: GammaPolicy
    together: bool = False
    stops: bool = False

    def check(self, traces: Sequence[DenseTrace]) -> None:
        """Refuses it for drafts that it cannot end."""
        for trace in traces:
            kind = DraftKind(str(trace.about.get("drawn", DraftKind().drawn)))
            if kind.drawn == DETERMINISTIC:
                drafter = str(trace.about.get("drafter", "of this trace"))
                check_policy(self.stops, self.name, drafter, kind)


def choose(
    name: str, values: Mapping[str, Any] | None = None, batch: int = 1, live: bool = False
) -> Choice:
    """Builds the installed policy ``name`` with ``values`` for its config.

    Args:
        batch: rows that will decode together.
        live: leave the config as it is, for a run with a clock.

    Raises:
        ConfigError: an unknown name, key or value.
    """
    from ..config import part

    return from_part(part("policy", {"name": name, **(values or {})}), batch, live)


def from_part(chosen: Any, batch: int = 1, live: bool = False) -> Choice:
    """Builds what a config chose (``config.Part``)."""
    from ..factories import make_part
    from ..policies.oracle import Oracle

    spec = chosen.spec
    config = chosen.config if live else settled(chosen.config, batch)
    if not isinstance(spec, PolicySpec):
        raise ConfigError(f"{spec.name!r} is no policy.")
    # The name is refused in live runs by its own factory.
    policy = Oracle() if spec.name == "oracle" else make_part(spec, config)
    local = spec.ability("row_local", config) or policy.keeps_apart
    together = local and spec.ability("repeatable", config)
    return Choice(spec.name, policy, together, spec.ability("stops", config))


def settled(config: Any, batch: int) -> Any:
    """A config with what a replay knows: its clock shows what the table of times says, so there is
    nothing to correct (``frozen``); and rows that are runs of their own have a batch of 1."""
    known = {"frozen": (False, True)} | ({"batch": (None, 1)} if batch == 1 else {})
    names = {f.name for f in fields(config)}
    changed = {
        name: value
        for name, (unset, value) in known.items()
        if name in names and getattr(config, name) is unset
    }
    return replace(config, **changed) if changed else config
