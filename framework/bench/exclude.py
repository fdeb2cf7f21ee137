"""What a sweep leaves out: ``exclude=[{drafter: ngram, policy.gamma: 5}]``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ConfigError, near_match


def exclusions(value: Any) -> list[dict[str, Any]]:
    """The entries of an ``exclude``, as mappings."""
    good = isinstance(value, list) and all(isinstance(item, Mapping) and item for item in value)
    if not good:
        raise ConfigError(
            f"exclude={value!r} is not possible; it lists what to leave out, such as "
            "exclude=[{drafter: ngram, policy.gamma: 5}]."
        )
    return [dict(item) for item in value]


def excluded(
    combos: list[dict[str, Any]], entries: Sequence[Mapping[str, Any]]
) -> tuple[list[dict[str, Any]], list[str]]:
    """What the exclusions leave of the combinations, and a remark on each that matches nothing.

    An entry matches where all of its keys have its value, or one of its list of values.
    """
    keys = list(combos[0]) if combos else []
    remarks = []
    for entry in entries:
        for key in entry:
            if key not in keys:
                hint, axes = near_match(str(key), keys), ", ".join(keys) or "none"
                raise ConfigError(f"exclude names {key!r}, which is no axis; {hint}axes: {axes}.")
        if not any(_matches(combo, entry) for combo in combos):
            remarks.append(f"exclude={dict(entry)!r} matches no cell.")
    left = [combo for combo in combos if not any(_matches(combo, entry) for entry in entries)]
    if not left:
        raise ConfigError("exclude leaves no cell; drop an entry of it.")
    return left, remarks


def _matches(combo: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    return all(
        mark(combo[key]) in [mark(value), *(map(mark, value) if isinstance(value, list) else ())]
        for key, value in entry.items()
    )


def mark(value: object) -> str:
    """A text that is the same for values that mean the same: 1 and 1.0, but not 1 and true."""
    return json.dumps(_unified(value), sort_keys=True)


def _unified(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _unified(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_unified(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
