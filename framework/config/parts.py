"""A part as a config has it: its name, and the values of its own dataclass."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError
from ..plugins import registry
from ..specs import PartSpec
from .values import read_record


@dataclass(frozen=True)
class Part:
    """A chosen part: its spec and its own config object."""

    kind: str
    spec: PartSpec
    config: Any


def part(kind: str, values: object, key: str | None = None) -> Part:
    """Reads ``{name: ..., values}``: a part of the config, or one nested in another's config."""
    key = key or kind
    if not isinstance(values, Mapping) or not isinstance(values.get("name"), str):
        known = ", ".join(registry().names(kind))
        raise ConfigError(
            f"{key}={values!r} names no {kind}; it must have a 'name', which a preset gets from "
            f"'defaults: [<name>, _self_]'; known: {known}."
        )
    rest = {name: value for name, value in values.items() if name != "name"}
    return named_part(kind, values["name"], rest, key)


def named_part(kind: str, name: str, values: object, key: str) -> Part:
    """Reads the values of the part of that name, which were found under ``key``."""
    spec = registry().get(kind, name)

    def elsewhere(name: str) -> str:
        return _owners(kind, name, spec)

    owner = f"{kind} {spec.name!r}"
    return Part(kind, spec, read_record(spec.config, values, key, owner, elsewhere))


def _owners(kind: str, key: str, chosen: PartSpec) -> str:
    """Which other parts of the kind have a key of this name."""
    others = [registry().get(kind, name) for name in registry().names(kind)]
    fields = {o.name: {f.name for f in dataclasses.fields(o.config)} for o in others if o != chosen}
    owners = [f"{name!r}" for name, keys in fields.items() if key in keys]
    return f"it is one of {kind} {', '.join(owners)}; " if owners else ""
