"""From a spec to a built part: its factory called, and a session class made into a part."""

from __future__ import annotations

import importlib
from typing import Any

from . import interfaces
from .bases import SessionDrafter, SessionPolicy
from .errors import ForedraftError, PluginFault
from .interfaces import DraftSession, PolicySession
from .specs import DrafterSpec, ObserverSpec, PartSpec, PolicySpec, TargetSpec, VerifierSpec

DUE: dict[type[PartSpec], type[Any]] = {
    TargetSpec: interfaces.Target,
    DrafterSpec: interfaces.Drafter,
    VerifierSpec: interfaces.Verifier,
    PolicySpec: interfaces.GammaPolicy,
    ObserverSpec: interfaces.Observer,
}


def make_part(spec: PartSpec, config: Any, *arguments: object, label: str = "") -> Any:
    """What the factory of ``spec`` makes of ``config``.

    Args:
        arguments: what else factories of this kind get: the built target, for drafters.
        label: what the part is called in messages.

    Raises:
        ForedraftError: what the factory refused, in its own words.
        PluginFault: it raised something else, or made something else than such a part.
    """
    label = label or repr(spec.name)
    due = next(part for schema, part in DUE.items() if isinstance(spec, schema))
    try:
        made = _called(spec, config, *arguments)
    except ForedraftError:
        raise
    except Exception as error:
        text = " ".join(str(error).split()).rstrip(".")
        raise PluginFault(f"{label} could not be built: {type(error).__name__}: {text}.") from error
    if not isinstance(made, due):
        shown = type(made).__name__
        raise PluginFault(f"the factory of {label} gave a {shown}; it must give a {due.__name__}.")
    return made


def _called(spec: PartSpec, config: Any, *arguments: object) -> Any:
    factory = resolved(spec)
    if isinstance(factory, type) and issubclass(factory, DraftSession):
        assert isinstance(spec, DrafterSpec)
        return SessionDrafter(factory, config, spec.kind_of(config))
    if isinstance(factory, type) and issubclass(factory, PolicySession):
        assert isinstance(spec, PolicySpec)
        return SessionPolicy(factory, config, spec.ability("stops", config))
    return factory(config, *arguments)


def resolved(spec: PartSpec) -> Any:
    """The factory itself, imported if the spec names it by text."""
    return imported(spec.factory)


def imported(named: Any) -> Any:
    """What text, ``"package.module:Class"``, names; anything else as it is."""
    if not isinstance(named, str):
        return named
    module, _, name = named.partition(":")
    return getattr(importlib.import_module(module), name)
