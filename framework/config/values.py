"""From a composed config to typed values: one check for every path that a value can come by.

Overrides, YAML files, presets and sweeps all end in the same plain tree, which is read here against
the dataclasses' type hints. Nothing is converted on the way but a whole number to a float, so that
``'3'``, ``True`` and ``1.9`` are refused where 3 is wanted.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Union

from ..errors import ConfigError, ForedraftError, near_match

_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    type(None): "null",
}
# YAML reads these words as text; the command line reads them as numbers.
_FLOAT_WORDS = {"inf", "+inf", "-inf", "nan"}
_UNFIT = object()
# Options of other libraries that people try, and what does their job here.
ABROAD = {
    "num_beams": "beam search is not offered, samples=N gives several answers; ",
    "num_return_sequences": "samples=N gives several answers; ",
    "do_sample": "sampling.temperature=0 is greedy and anything above samples; ",
    "max_length": "max_new_tokens counts the answer alone; ",
    "eos_token_id": "stop_ids=[...] adds ids that end an answer; ",
    "bad_words_ids": "sampling.bad_words=[[...]] bans sequences of ids; ",
    "num_assistant_tokens": "policy.gamma is the draft's length; ",
    "prompt_lookup_num_tokens": "drafter=prompt_lookup with policy.gamma does that; ",
}


def read_record(
    schema: type,
    values: object,
    key: str,
    owner: str = "",
    elsewhere: Callable[[str], str] = lambda name: "",
) -> Any:
    """Builds ``schema`` from a mapping, refusing unknown keys and values of another type.

    Args:
        schema: a dataclass. A field whose ``metadata`` has ``possible`` is refused in those words.
        values: the mapping found under ``key``.
        key: where it was found; empty at the top.
        owner: what the keys belong to, for the message.
        elsewhere: says where an unknown key would belong, for the message.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{key or 'the config'}={values!r} is not possible; it must be a group of keys."
        )
    hints = typing.get_type_hints(schema)
    names = [field.name for field in dataclasses.fields(schema) if field.init]
    for name in values:
        if name not in names:
            raise ConfigError(
                _unknown_key(str(name), names, key, owner or key, elsewhere(str(name)))
            )
    words = {field.name: field.metadata.get("possible", "") for field in dataclasses.fields(schema)}
    known = {
        name: _read_or_refuse(value, hints[name], _join(key, name), words[name])
        for name, value in values.items()
    }
    try:
        with under(key, schema):
            return schema(**known)
    except ForedraftError:
        raise
    except (ValueError, TypeError, AssertionError) as error:
        text = " ".join(str(error).split()).rstrip(".")
        raise ConfigError(
            f"the values of {key or 'the config'} are not possible: {text}."
        ) from error


@contextmanager
def under(key: str, schema: type) -> Iterator[None]:
    """Lets refusals name the key as it was given.

    A part refuses its own values as those of a chosen one, ``drafter.order``. Nested in another
    part's config it was found under ``key``, and its value is ``drafter.drafters[1].order``.
    """
    try:
        yield
    except ForedraftError as error:
        group = re.split(r"\W", key)[0]
        if key == group:
            raise
        names = "|".join(field.name for field in dataclasses.fields(schema))
        text = re.sub(rf"(?<![\w.]){group}\.(?=(?:{names})\b)", lambda _: f"{key}.", str(error))
        raise type(error)(text) from error.__cause__


def _read_or_refuse(value: object, hint: Any, key: str, possible: str = "") -> Any:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return read_record(hint, value, key)
    result = _read(value, hint, key)
    if result is _UNFIT:
        shown = "null" if value is None else repr(value)
        described = _describe(hint)
        if "text" in described and isinstance(value, int | float):
            described += " (in quotes it would be text)"
        raise ConfigError(f"{key}={shown} is not possible; it must be {possible or described}.")
    return result


def _read(value: Any, hint: Any, key: str) -> Any:
    """The value as the hint wants it, or ``_UNFIT``."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or isinstance(hint, typing.TypeVar):
        return value
    if origin in (Union, types.UnionType):
        fitting = (_read(value, option, key) for option in arguments)
        return next((result for result in fitting if result is not _UNFIT), _UNFIT)
    if (origin or hint) in (list, tuple) or getattr(origin, "__name__", "") == "Sequence":
        return _read_list(value, origin or hint, arguments, key)
    if (origin or hint) is dict:
        return _read_dict(value, arguments, key)
    return _read_scalar(value, hint, key)


def _read_scalar(value: Any, hint: Any, key: str) -> Any:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint.__members__.get(value, _UNFIT) if isinstance(value, str) else _UNFIT
    if hint is Path:
        return Path(value) if isinstance(value, str | Path) else _UNFIT
    if hint is float:
        word = isinstance(value, str) and value.lower() in _FLOAT_WORDS
        whole = type(value) is int and abs(value) < 2**1000  # what a float can hold
        return float(value) if word or whole or type(value) is float else _UNFIT
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return read_record(hint, value, key)
    # An exact test: a bool is an int to isinstance.
    return value if type(value) is hint else _UNFIT


def _read_list(value: Any, kind: Any, arguments: tuple[Any, ...], key: str) -> Any:
    if not isinstance(value, list | tuple):
        return _UNFIT
    fixed = kind is tuple and arguments and arguments[-1] is not Ellipsis
    if fixed and len(arguments) != len(value):
        return _UNFIT
    hints = arguments if fixed else (arguments[:1] or (Any,)) * len(value)
    items = [
        _read(item, hint, f"{key}.{i}")
        for i, (item, hint) in enumerate(zip(value, hints, strict=True))
    ]
    if any(item is _UNFIT for item in items):
        return _UNFIT
    return tuple(items) if kind is tuple else items


def _read_dict(value: Any, arguments: tuple[Any, ...], key: str) -> Any:
    if not isinstance(value, Mapping):
        return _UNFIT
    key_hint, hint = arguments or (Any, Any)
    items = {_read_key(k, key_hint): _read(v, hint, f"{key}.{k}") for k, v in value.items()}
    if len(items) < len(value):  # 5 and '5'
        return _UNFIT
    return _UNFIT if any(_UNFIT in pair for pair in items.items()) else items


def _read_key(key: Any, hint: Any) -> Any:
    """JSON has text for keys only: a whole number may be written in it."""
    digits = isinstance(key, str) and key.isascii() and key.isdecimal()
    return int(key) if hint is int and digits else _read(key, hint, "")


def _describe(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_describe(option) for option in arguments)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "one of " + ", ".join(hint.__members__)
    if (origin or hint) is dict:
        return "a group of keys"
    if origin is not None:
        inner = [_describe(option) for option in arguments if option is not Ellipsis]
        return f"a list, such as [a,b], and each item {', then '.join(inner or ['any value'])}"
    return _WORDS.get(hint, f"a {getattr(hint, '__name__', hint)}")


def _unknown_key(name: str, names: list[str], key: str, owner: str, elsewhere: str) -> str:
    owner = f" of {owner}" if owner else ""
    hint = ABROAD.get(name, "") or elsewhere or near_match(name, names)
    keys = ", ".join(names) or "none"
    return f"{_join(key, name)} is not a key{owner}; {hint}keys: {keys}."


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
