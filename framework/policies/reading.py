"""A request's own policy, as calls and lines of prompts write it. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping

from ..config.parts import Part, part
from ..errors import InputError
from ..plugins import registry


def policy_part(value: object) -> Part:
    """Reads ``"heuristic"`` or ``{"name": "heuristic", "start": 3}``.

    Raises:
        InputError: it is neither.
        ConfigError: there is no such policy, or no such value of it.
    """
    values = {"name": value} if isinstance(value, str) else value
    if isinstance(values, Mapping) and isinstance(values.get("name"), str):
        return part("policy", values)
    known = ", ".join(registry().names("policy"))
    raise InputError(
        f"policy={value!r} is not possible; it must be the name of a policy, or "
        f'{{"name": ..., and its values}}; known: {known}.'
    )
