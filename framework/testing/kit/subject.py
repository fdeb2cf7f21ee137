"""The part that is checked: its spec and config, and how it is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...config import part
from ...config.values import read_record
from ...errors import ConfigError
from ...factories import make_part
from ...interfaces import Target
from ...plugins import registry
from ...plugins.registry import KINDS
from ...specs import DrafterSpec, PartSpec


@dataclass(frozen=True)
class Subject:
    """A part under test.

    Args:
        kind: drafter, verifier or policy.
        spec: what its plugin yields.
        config: an object of ``spec.config``.
        seed: of everything that is random in the checks.
        target: what drafters are built for, in place of the kit's tiny targets.
        plugin: module that yields the spec, if it is installed as a plugin.
    """

    kind: str
    spec: PartSpec
    config: Any
    seed: int = 0
    target: Target | None = None
    plugin: str | None = None

    @property
    def name(self) -> str:
        """What a config calls it."""
        return self.spec.name

    def build(self, *arguments: object) -> Any:
        """A new part; ``arguments`` is the built target, for drafters."""
        return make_part(self.spec, self.config, *arguments)


def subject_of(
    kind: str,
    part_or_name: PartSpec | str,
    values: Mapping[str, Any] | None = None,
    seed: int = 0,
    target: Target | None = None,
) -> Subject:
    """A part by its name or its spec, with some values of its config.

    Raises:
        ConfigError: for an unknown name, kind, key or value.
    """
    if kind not in ("drafter", "verifier", "policy"):
        raise ConfigError(f"checks are for a drafter, a verifier or a policy, not for {kind!r}.")
    if isinstance(part_or_name, str):
        found = part(kind, {"name": part_or_name, **(values or {})})
        source = registry().find(kind, part_or_name).source
        return Subject(kind, found.spec, found.config, seed, target, source.module)
    if not isinstance(part_or_name, KINDS[kind]):
        raise ConfigError(f"{part_or_name!r} is no {KINDS[kind].__name__} and no name of a {kind}.")
    label = f"{kind} {part_or_name.name!r}"
    config = read_record(part_or_name.config, values or {}, kind, label)
    return Subject(kind, part_or_name, config, seed, target)


def declared(subject: Subject) -> DrafterSpec:
    """The spec of a drafter, typed."""
    assert isinstance(subject.spec, DrafterSpec)
    return subject.spec
