"""From a spec to a built part: its factory called, and a session class made into a part."""

from __future__ import annotations

import importlib
from typing import Any

from .bases import SessionDrafter, SessionPolicy
from .interfaces import DraftSession, PolicySession
from .specs import DrafterSpec, PartSpec


def make_part(spec: PartSpec, config: Any, *arguments: object) -> Any:
    """What the factory of ``spec`` makes of ``config``.

    Args:
        arguments: what else factories of this kind get: the built target, for drafters.
    """
    factory = resolved(spec)
    if isinstance(factory, type) and issubclass(factory, DraftSession):
        assert isinstance(spec, DrafterSpec)
        return SessionDrafter(factory, config, spec.kind_of(config))
    if isinstance(factory, type) and issubclass(factory, PolicySession):
        return SessionPolicy(factory, config)
    return factory(config, *arguments)


def resolved(spec: PartSpec) -> Any:
    """The factory itself, imported if the spec names it by text."""
    if not isinstance(spec.factory, str):
        return spec.factory
    module, _, name = spec.factory.partition(":")
    return getattr(importlib.import_module(module), name)
