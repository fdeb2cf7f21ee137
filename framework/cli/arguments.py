"""The arguments of ``foredraft generate``: texts as typed, options, and overrides for Hydra.

Hydra's grammar would turn ``true`` into a truth value and choke on commas, quotes and braces, so
texts are taken out before it sees them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import ConfigError, InputError, near_match

TEXTS = ("prompt", "prompts", "out", "output")
OPTIONS = ("-m", "--multirun", "--config-dir", "--cfg", "-h", "--help")


@dataclass
class Arguments:
    """A command line, taken apart.

    Args:
        overrides: ``key=value`` for Hydra.
        texts: prompt, prompts, out and output, as typed.
        stop: stop strings, as typed; empty when none was given.
        multirun: run every combination of the values that overrides list.
        config_dir: a folder with presets of the user's own.
        show_config: print the composed config and stop.
        help: print what can be set and stop.
    """

    overrides: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    stop: list[str] = field(default_factory=list)
    multirun: bool = False
    config_dir: str | None = None
    show_config: bool = False
    help: bool = False

    def over(self, config: dict[str, Any]) -> dict[str, Any]:
        """The config with the typed texts in it."""
        return {**config, **self.texts, **({"stop": self.stop} if self.stop else {})}


def parse(argv: Sequence[str]) -> Arguments:
    """Takes a command line apart; refuses what is said twice or cannot be told."""
    found, words = Arguments(), iter(argv)
    for word in words:
        key, equals, value = word.partition("=")
        if key == "--config-dir":
            found.config_dir = folder_of(word, words, found.config_dir)
        elif word.startswith("-"):
            _set_option(found, word)
        elif not equals:
            raise ConfigError(
                f"{word!r} is not key=value; a prompt is given as prompt={_shortened(word)!r}."
            )
        elif key == "stop":
            found.stop.append(_checked(key, value))
        elif key in TEXTS:
            _set_text(found, key, value)
        else:
            found.overrides.append(word)
    _check_together(found.texts)
    return found


def folder_of(word: str, left: Iterator[str], known: str | None) -> str:
    """The folder of ``--config-dir``, typed as one word or as two.

    Args:
        left: the words behind it.
        known: the folder that was given before.
    """
    _, equals, value = word.partition("=")
    folder = value if equals else next(left, "")
    if not folder or known is not None:
        raise ConfigError("--config-dir needs one folder; it is given once.")
    return folder


def _set_option(found: Arguments, word: str) -> None:
    if word in ("-m", "--multirun"):
        found.multirun = True
    elif word == "--cfg":
        found.show_config = True
    elif word in ("-h", "--help"):
        found.help = True
    else:
        known = [*OPTIONS, "--trace"]
        raise ConfigError(
            f"unknown option {_shortened(word)!r}; {near_match(word, known)}options: "
            f"{', '.join(known)}."
        )


def _set_text(found: Arguments, key: str, value: str) -> None:
    if key in found.texts:
        raise ConfigError(f"{key}= is given twice; give it once.{_many(key)}")
    found.texts[key] = _checked(key, value)


def _checked(key: str, value: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{key}= is not valid UTF-8 text.") from None
    if not (value.strip() if key in TEXTS else value):
        raise InputError(f"{key} is empty; give some text, or leave {key}= away.")
    return value


def _check_together(texts: dict[str, str]) -> None:
    if "prompt" in texts and "prompts" in texts:
        raise ConfigError("prompt= and prompts= are both given; give one of them.")
    if "out" in texts and texts.get("output") == "text":
        raise ConfigError("output=text cannot be with out=, which holds JSON lines; drop one.")


def _many(key: str) -> str:
    return " Several prompts go into a file, prompts=FILE." if key == "prompt" else ""


def _shortened(word: str) -> str:
    return word if len(word) <= 60 else f"{word[:57]}..."
