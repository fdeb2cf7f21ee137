"""Every error that Foredraft raises on purpose: one sentence, one base class."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ForedraftError(Exception):
    """Base class. The message is one sentence that names the key, the value and what is possible."""


class ConfigError(ForedraftError):
    """A config value or a pairing of parts that cannot be honoured."""


class InputError(ForedraftError):
    """A prompt, a file or a model folder that cannot be used."""


class PluginFault(ForedraftError):
    """A plugin broke its contract; the message names the plugin."""


def near_match(word: str, known: Iterable[str]) -> str:
    """Returns ``"did you mean 'x'? "`` for the closest known word, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}? " if close else ""
