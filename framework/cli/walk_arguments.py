"""What ``record`` and ``score`` have in common: own keys beside overrides, engines, requests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checks import check_whole
from ..config import as_dict, compose
from ..errors import ConfigError, InputError
from ..files import file_to_write
from .arguments import Arguments, parse
from .prompts import Item

if TYPE_CHECKING:
    from ..engine import Engine
    from ..interfaces import Target
    from ..requests import Request


@dataclass(frozen=True)
class Words:
    """A command line, taken apart.

    Args:
        own: the command's own keys and their texts.
        rest: what ``foredraft generate`` would understand.
    """

    own: dict[str, str]
    rest: Arguments

    def whole(self, key: str, default: int, least: int, most: int) -> int:
        """The whole number of one of the own keys."""
        text = self.own.get(key)
        if text is None:
            return default
        value = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else text
        check_whole(key, value, least, most)
        return int(value)

    def file(self, key: str) -> Path | None:
        """The file of ``key=``, which can be written as far as one can tell."""
        text = self.own.get(key, self.rest.texts.get(key))
        return None if text is None else file_to_write(text, key)

    def config(self, *overrides: str) -> dict[str, Any]:
        """The composed config, with more overrides behind those given."""
        composed = compose([*self.rest.overrides, *overrides], self.rest.config_dir)
        return as_dict(self.rest.over(as_dict(composed)))

    def first(self) -> dict[str, Any]:
        """The config with the first of the drafters that ``drafter=A,B`` names."""
        return self.config(f"drafter={self.own['drafter'].split(',')[0]}")

    def engines(self, drafters: Sequence[str]) -> Iterable[tuple[str, Engine]]:
        """One engine per drafter, all on one target, which is loaded once. All configs are checked
        before anything is loaded."""
        from ..api import engine_from

        configs = [self.config(f"drafter={name}") for name in drafters]
        for config in configs:
            check_walk(config)
        target: Target | None = None
        for name, config in zip(drafters, configs, strict=True):
            engine = engine_from(config, target, same_target=target is not None)
            target = engine.parts.target
            yield name, engine


def check_walk(config: dict[str, Any]) -> None:
    """Checks a whole config, and refuses drafters that a walk would flatter: it lets no drafted token
    stand, and yet shows what the target says behind it, which those would draft next."""
    from ..config import to_objects

    spec, own = (getattr(to_objects(config).drafter, name) for name in ("spec", "config"))
    if spec.ability("learns", own):
        raise ConfigError(
            f"drafter={spec.name} learns from the target's guesses behind drafted tokens, which would show "
            "it each text a token early here; measure it live, by foredraft generate."
        )


def take(command: str, argv: Sequence[str], keys: Sequence[str]) -> Words:
    """Takes a command line apart.

    Raises:
        ConfigError: an own key without a value or given twice, an option that has no meaning here.
    """
    own: dict[str, str] = {}
    others: list[str] = []
    for word in argv:
        key, equals, value = word.partition("=")
        if not equals or key not in keys:
            others.append(word)
            continue
        if not value or key in own:
            raise ConfigError(f"{key}= needs one value; it is given once.")
        own[key] = value
    rest = parse(others)
    for option, given in (("-m", rest.multirun), ("--cfg", rest.show_config)):
        if given:
            raise ConfigError(f"foredraft {command} does not take {option}.")
    return Words(own, rest)


def requests(engine: Engine, items: Sequence[Item]) -> list[Request]:
    """A request for each prompt; of a conversation, its first turn."""
    return [_request(engine, item) for item in items]


def _request(engine: Engine, item: Item) -> Request:
    asked = item.asked(0)
    try:
        return engine.request(asked, index=item.first)
    except (ConfigError, InputError) as error:
        raise InputError(f"{item.where}: {error}" if item.where else str(error)) from error


def batches(values: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    """Consecutive pieces of at most ``size``."""
    return (values[begin : begin + size] for begin in range(0, len(values), size))
