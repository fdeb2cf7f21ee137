"""What the drafters made of other drafters offer: names, configs, factories. Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from omegaconf import OmegaConf

from ..framework.checks import check_whole
from ..framework.errors import ConfigError
from ..framework.plugins import registry
from ..framework.specs import CONTRACT_VERSION, DETERMINISTIC, INDEPENDENT, DrafterSpec, DraftKind
from ..framework.targets.builtin import CausalLMConfig as TargetModelConfig

if TYPE_CHECKING:
    from ..framework.config import Part
    from ..framework.interfaces import Drafter, Target

SHAPE = "the name of a drafter, or {name: ..., and its values}"
LIST = "a list of drafters, such as [prompt_lookup,{name:ngram,order:2}]"
OUTERMOST = "one_of"  # a policy chooses a member of the whole run's drafter


@dataclass
class FirstOfConfig:
    """Several drafters, asked in turn.

    Args:
        drafters: names, or {name: ..., values}; the first that has a draft for a row serves it.
            Chains only.
    """

    drafters: list[Any] = field(
        default_factory=lambda: ["prompt_lookup", "ngram"], metadata={"possible": LIST}
    )

    def __post_init__(self) -> None:
        if not isinstance(self.drafters, list | tuple) or not self.drafters:
            raise ConfigError(
                f"drafter.drafters={self.drafters!r} is not possible; it must be {LIST}."
            )
        self.drafters = [written(member) for member in self.members]

    @cached_property
    def members(self) -> list[Part]:
        """The drafters, read."""
        return [nested(one, f"drafter.drafters[{i}]") for i, one in enumerate(self.drafters)]

    @property
    def kind(self) -> DraftKind:
        """Drawn, if any member draws: a chosen token is one drawn from a law that allows no other."""
        drawn = any(kind_of(member).drawn != DETERMINISTIC for member in self.members)
        return DraftKind(INDEPENDENT if drawn else DETERMINISTIC)


@dataclass
class OneOfConfig(FirstOfConfig):
    """Several drafters, one of which drafts a round, as the policy says.

    Args:
        drafters: names, or {name: ..., values}. Chains only.
        start_with: place in the list, from 0, of the one that drafts when the policy does not say.
    """

    start_with: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("drafter.start_with", self.start_with, 0, len(self.drafters) - 1)


@dataclass
class CascadeConfig(TargetModelConfig):
    """A small transformer that is itself drafted for; fields of the model as for ``causal_lm``.

    Args:
        drafter: what drafts for the model: a name, or {name: ..., values}. Chains only.
    """

    group: ClassVar[str] = "drafter"
    growth: ClassVar[None] = None  # a chain

    drafter: Any = "prompt_lookup"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device_map is not None:
            raise ConfigError("drafter.device_map is not possible; set drafter.device.")
        self.drafter = written(self.inner)

    @cached_property
    def inner(self) -> Part:
        """The drafter's drafter, read."""
        return nested(self.drafter, "drafter.drafter")


def nested(value: object, key: str) -> Part:
    """Reads a drafter of chains that is found in another one's config, under ``key``."""
    from ..framework.config import part

    values = {"name": value} if isinstance(value, str) else value
    if not isinstance(values, Mapping) or not isinstance(values.get("name"), str):
        known = ", ".join(registry().names("drafter"))
        raise ConfigError(f"{key}={value!r} is not possible; it must be {SHAPE}; known: {known}.")
    name, names = values["name"], registry().names("drafter")
    if name not in names and not registry().fault("drafter", name):
        raise ConfigError(f"{key} is an {registry().unknown('drafter', name, names)}")
    found = part("drafter", values, key)
    if found.spec.name == OUTERMOST:
        raise ConfigError(
            f"{key}={OUTERMOST} is not possible; a policy chooses among the members of the run's own "
            f"drafter, drafter={OUTERMOST}."
        )
    if kind_of(found).tree:
        raise ConfigError(
            f"{key}={found.spec.name} drafts trees here, which cannot be part of another drafter; set "
            "it to draft chains."
        )
    return found


def written(found: Part) -> dict[str, Any]:
    """The part as plain values, defaults included."""
    values: Any = OmegaConf.to_container(OmegaConf.structured(found.config), enum_to_str=True)
    names = [one.name for one in dataclasses.fields(found.config) if one.init]
    return {"name": found.spec.name, **{name: values[name] for name in names}}


def kind_of(found: Part) -> DraftKind:
    """What its drafts look like."""
    assert isinstance(found.spec, DrafterSpec)
    return found.spec.kind_of(found.config)


def learns(found: Part) -> bool:
    """Whether its drafts depend on more than the committed ids."""
    return bool(found.spec.ability("learns", found.config))


def reads(found: Part) -> int:
    """Its device-to-host reads per token."""
    return int(found.spec.ability("host_reads", found.config))


def _first_of(config: FirstOfConfig, target: Target) -> Drafter:
    from .first_of import FirstOf
    from .members import make_members

    return FirstOf(make_members(config.members, "drafter.drafters[{}]", target))


def _one_of(config: OneOfConfig, target: Target) -> Drafter:
    from .members import make_members
    from .one_of import OneOf

    members = make_members(config.members, "drafter.drafters[{}]", target)
    return OneOf(members, config.start_with)


def _cascade(config: CascadeConfig, target: Target) -> Drafter:
    from .cascade import Cascade

    return Cascade.from_config(config, target)


def _kind(config: FirstOfConfig) -> DraftKind:
    return config.kind


def _reads(config: FirstOfConfig) -> int:
    return sum(map(reads, config.members))


def _learns(config: FirstOfConfig) -> bool:
    return any(map(learns, config.members))


def nested_drafters() -> list[DrafterSpec]:
    """Drafters whose configs hold others."""
    spec = partial(DrafterSpec, contract=CONTRACT_VERSION)
    return [
        spec(
            "first_of", _first_of, FirstOfConfig,
            "several drafters in turn: the first that has a draft", kind=_kind,
            host_reads=_reads, learns=_learns,
        ),
        spec(
            "one_of", _one_of, OneOfConfig,
            "several drafters: the one that the policy chooses", kind=_kind, host_reads=_reads,
            learns=_learns,
        ),
        spec(
            "cascade", _cascade, CascadeConfig,
            "a small transformer with a drafter of its own",
            host_reads=lambda config: 1 + reads(config.inner),
            learns=lambda config: learns(config.inner),
        ),
    ]  # fmt: skip
