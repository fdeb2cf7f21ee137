"""Overrides: ``key=value`` text, checked before Hydra gets it, and sweeps over several values."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    ChoiceSweep,
    Override,
    OverrideType,
    Quote,
    QuotedString,
    Transformer,
)

from ..errors import ConfigError, near_match
from ..plugins import registry
from ..plugins.registry import CHOSEN
from .safety import check_key, check_value

GROUPS = (*CHOSEN, "sampling", "runtime", "experiment", "local")
BY_HAND = ("prompt", "prompts", "out", "grammar", "task.file", "bench.dir", "bench.resume")
LISTENING = ("observers", "observer")
MAX_RUNS = 10_000


def parse(text: object) -> Override:
    """Parses one ``key=value`` and refuses what no config may do."""
    if not isinstance(text, str):
        raise ConfigError(f"the override {text!r} is not possible; it must be 'key=value' text.")
    try:
        override = OverridesParser.create().parse_override(text.strip())
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"the override {text!r} cannot be read ({reason}); it must be 'key=value', with quotes "
            "around a value that holds spaces or signs."
        ) from error
    key, where = override.key_or_group, f"the override {text!r}"
    check_key(key if override.package is None else f"{key}@{override.package}", where)
    value = override.value()
    check_value(value.list if isinstance(value, ChoiceSweep) else value, where)
    if override.type is not OverrideType.CHANGE or override.package is not None:
        raise ConfigError(
            f"{where} is not possible; every key is there already: write 'key=value'."
        )
    if not re.fullmatch(r"[A-Za-z]\w*(\.\w+)*", key):
        raise ConfigError(f"{where} has the key {key!r}, which is not a key.")
    return override


def argument(text: str, loader: ConfigLoader, groups: Sequence[str] = GROUPS) -> str | None:
    """The checked override as Hydra gets it, or None for one that says nothing."""
    override = parse(text)
    key, value = override.key_or_group, override.value()
    if override.is_sweep_override():
        raise ConfigError(f"{text!r} lists several values; add -m to run each of them.")
    if key not in groups:
        if key.split(".")[0] in CHOSEN and key.endswith(".name") and key.count(".") == 1:
            kind = key.split(".")[0]
            raise ConfigError(f"{text!r} is not possible; choose a {kind} by '{kind}=...'.")
        # Forced, so that a misspelt key is found by our own check, which names the near match.
        return f"++{text.strip()}"
    if value is None and key in ("experiment", "local"):
        return None
    check_option(key, value, loader)
    return text.strip()


def check_option(group: str, value: object, loader: ConfigLoader) -> None:
    """Refuses a group option that does not exist, without loading or importing anything."""
    known = options(group, loader)
    if isinstance(value, str) and registry().fault(group, value):
        raise ConfigError(registry().fault(group, value))
    if isinstance(value, str) and value in known:
        return
    if isinstance(value, str) and re.fullmatch(r"\w+(/\w+)+", value):
        folder, _, name = value.rpartition("/")
        if name in options(f"{group}/{folder}", loader):
            return
    if group not in CHOSEN:
        hint = near_match(str(value), known)
        raise ConfigError(f"unknown {group} {str(value)!r}; {hint}known: {', '.join(known)}.")
    raise registry().unknown(group, "null" if value is None else value, known)


def check_by_hand(config: object, given: Sequence[str], key: str = "") -> None:
    """Refuses what only the command line may say when a file has said it.

    These run code that comes with a model, read a file into the results, write a file, or send
    records somewhere.
    """
    if isinstance(config, Mapping):
        for name, value in config.items():
            check_by_hand(value, given, f"{key}.{name}" if key else str(name))
    elif isinstance(config, list):
        for index, value in enumerate(config):
            check_by_hand(value, given, f"{key}.{index}")
    elif config and _is_by_hand(key):
        # Choosing an option of a group (target=mine) says nothing about the keys that come with it.
        keys = [name for name in given if name not in GROUPS]
        if not any(key == name or key.startswith(f"{name}.") for name in keys):
            raise ConfigError(
                f"{key}={config!r} is set by a config file; only an override may set it."
            )


def _is_by_hand(key: str) -> bool:
    return key in BY_HAND or key.split(".")[0] in LISTENING or key.endswith(".trust_remote_code")


def options(group: str, loader: ConfigLoader) -> list[str]:
    """The options of a group, wherever they come from."""
    return sorted(loader.get_group_options(group, results_filter=ObjectType.CONFIG))


def product(overrides: Sequence[str], loader: ConfigLoader) -> list[list[str]]:
    """All combinations of the values that the overrides list."""
    axes = [_values(text, loader) for text in overrides]
    total = 1
    for axis in axes:
        total *= len(axis)
        if total > MAX_RUNS:
            raise ConfigError(f"the sweep has more than {MAX_RUNS} runs; list fewer values.")
    return [list(row) for row in itertools.product(*axes)]


def _values(text: str, loader: ConfigLoader) -> list[str]:
    override = parse(text)
    key = override.key_or_group
    if not override.is_sweep_override():
        return [text.strip()]
    if not override.is_discrete_sweep():
        raise ConfigError(
            f"{text!r} has no end of values; list them, or use range(start,stop,step)."
        )
    override.config_loader = loader
    values = list(itertools.islice(override.sweep_iterator(), MAX_RUNS + 1))
    if len(values) > MAX_RUNS:
        raise ConfigError(f"{text!r} has more than {MAX_RUNS} values; list fewer.")
    if not values and key not in GROUPS:
        raise ConfigError(f"{text!r} is not possible; glob() is for {', '.join(GROUPS)}.")
    if not values:
        raise ConfigError(f"{text!r} matches nothing; known: {', '.join(options(key, loader))}.")
    return [f"{key}={encoded(value)}" for value in values]


def encoded(value: Any) -> str:
    """A value as text that parses to the same value and type."""
    return str(Transformer.str(_quoted(value)))


def _quoted(value: Any) -> Any:
    # choice('3',4) forgets the quotes, and 3 must not turn into a number on the way.
    if isinstance(value, list):
        return [_quoted(item) for item in value]
    if isinstance(value, dict):
        return {key: _quoted(item) for key, item in value.items()}
    plain = not isinstance(value, str) or re.fullmatch(r"[A-Za-z_][\w/-]*", value)
    if plain and str(value).lower() not in ("true", "false", "null", "inf", "nan"):
        return value
    return QuotedString(value, Quote.single) if isinstance(value, str) else value
