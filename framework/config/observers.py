"""The observers of a config: ``observers=[a,b]`` lists them, ``observer.a.key`` sets a value of one.

They are not a group, of which one option is chosen; any number can listen. The tree holds only
the values that were given: defaults are in their dataclasses, and what is not listed has no values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import ConfigError
from ..plugins import registry
from .parts import Part, named_part


def read_observers(names: Sequence[str], values: object) -> tuple[Part, ...]:
    """The listed observers, in that order, each with its config.

    Args:
        names: the key ``observers``.
        values: what was found under ``observer``: a mapping of names to mappings.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"observer={values!r} is not possible; observers are listed, such as "
            "observers=[jsonl], and observer.jsonl.<key> sets a value of one."
        )
    for name, given in values.items():
        if name not in names:
            raise _not_listed(str(name), given, names)
    return tuple(named_part("observer", n, values.get(n, {}), f"observer.{n}") for n in names)


def _not_listed(name: str, given: object, names: Sequence[str]) -> ConfigError:
    """A value that would have no effect; an unknown name is refused as such."""
    registry().get("observer", name)
    key, value = f"observer.{name}", given
    if isinstance(given, Mapping) and given:
        first = next(iter(given))
        key, value = f"{key}.{first}", given[first]
    listed = ",".join([*names, name])
    return ConfigError(
        f"{key}={value!r} would have no effect, because observers does not list {name!r}; write "
        f"observers=[{listed}], or leave the value away."
    )
