"""From overrides to plain objects: ``compose``, then ``to_objects``; ``config/build.py`` goes on.

Names are resolved when they are first used: reading a part that is nested in another one's config,
as every listing does, needs neither Hydra nor a whole config.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..params import SamplingParams
    from .composing import Parts, as_dict, compose, expand_sweep, to_objects
    from .parts import Part, part
    from .schema import RunConfig, RuntimeConfig

_HOMES = {
    "Part": ".parts",
    "Parts": ".composing",
    "RunConfig": ".schema",
    "RuntimeConfig": ".schema",
    "SamplingParams": "..params",
    "as_dict": ".composing",
    "compose": ".composing",
    "expand_sweep": ".composing",
    "part": ".parts",
    "to_objects": ".composing",
}

__all__ = [
    "Part",
    "Parts",
    "RunConfig",
    "RuntimeConfig",
    "SamplingParams",
    "as_dict",
    "compose",
    "expand_sweep",
    "part",
    "to_objects",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name], __package__), name)
