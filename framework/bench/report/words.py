"""Numbers, names and foreign text as words for a reader."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from .data import Cell, Choice, Interval, Page

UNKNOWN = "–"
DRAWN = ("drafter", "policy.gamma")  # the choices that figures draw as lines and axes
BASELINES = {
    "plain": "plain decoding",
    "again": "plain decoding again",
    "generate": "transformers generate",
    "generate_lookup": "transformers prompt lookup",
    "generate_assisted": "transformers assistant",
}
# What would turn text round, hide it or break the encoding: shown by name, never sent as it is.
_TURNING = re.compile("[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")
_C1 = re.compile("[\x80-\x9f\ud800-\udfff\ufffe\uffff]")


def clean(text: str) -> str:
    """Text in which every character can be seen: control characters as their pictures, characters
    that turn or join text by number. Line feeds and tabs stay."""
    text = text.replace("\r\n", "\n")
    text = _CONTROL.sub(lambda found: _picture(found[0]), text)
    text = _C1.sub("\ufffd", text)
    return _TURNING.sub(lambda found: f"‹U+{ord(found[0]):04X}›", text)


def _picture(character: str) -> str:
    return "\u2421" if character == "\x7f" else chr(0x2400 + ord(character))


def one_line(text: str) -> str:
    """Clean text on one line."""
    return clean(text).replace("\n", "⏎").replace("\t", "⇥")


def cut(text: str, most: int) -> str:
    """The start of a text, and how much of it is missing."""
    if len(text) <= most:
        return text
    return f"{text[:most]} … {len(text) - most:,} more characters"


def known(value: float | None) -> float | None:
    """The number, or None for one that is missing or not finite."""
    return value if value is not None and math.isfinite(value) else None


def number(value: float | None, digits: int = 2) -> str:
    """``1.42``; ``–`` if it is not known."""
    found = known(value)
    return UNKNOWN if found is None else f"{found:.{digits}f}"


def times(value: float | None) -> str:
    """``1.42x``"""
    return UNKNOWN if known(value) is None else f"{number(value)}x"


def bounds(interval: Interval | None) -> str:
    """``[1.31, 1.53]``, or nothing."""
    if interval is None or known(interval.low) is None or known(interval.high) is None:
        return ""
    return f"[{number(interval.low)}, {number(interval.high)}]"


def spoken(interval: Interval | None) -> str:
    """``1.42x [1.31, 1.53]``"""
    if interval is None:
        return UNKNOWN
    return f"{times(interval.value)} {bounds(interval)}".strip()


def choice(value: Choice) -> str:
    """A config value as one would write it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else one_line(str(value))


def is_setting(cell: Cell) -> bool:
    """Whether the cell is no baseline."""
    return cell.kind == "engine"


def settings(page: Page) -> list[Cell]:
    """The cells that are no baselines."""
    return [cell for cell in page.cells if is_setting(cell)]


def other_choices(cell: Cell) -> str:
    """What varies beside drafter and gamma: ``temperature 0``. One panel of a figure for each."""
    found = [(key, value) for key, value in cell.choices.items() if key not in DRAWN]
    return ", ".join(f"{short(key)} {choice(value)}" for key, value in found)


def label(cell: Cell) -> str:
    """``prompt_lookup, gamma 3, temperature 0``"""
    name = BASELINES.get(cell.kind) or one_line(cell.drafter) or one_line(cell.id)
    words = [name, _gamma(cell) if is_setting(cell) else "", other_choices(cell)]
    return ", ".join(word for word in words if word)


def named(cell: Cell) -> str:
    """Drafter and gamma alone: ``prompt_lookup with gamma 3``."""
    gamma = _gamma(cell)
    return f"{one_line(cell.drafter)} with {gamma}" if gamma else one_line(cell.drafter)


def phrase(cell: Cell) -> str:
    """The same for a sentence: ``prompt_lookup with gamma 3, temperature 0``."""
    name, _, rest = label(cell).partition(", ")
    return f"{name} with {rest}" if rest else name


def _gamma(cell: Cell) -> str:
    if "policy.gamma" not in cell.choices and cell.gamma is None:
        return ""
    return f"gamma {choice(cell.choices.get('policy.gamma', cell.gamma))}"


def short(key: str) -> str:
    """The last word of a config key."""
    return one_line(key.rpartition(".")[2] or key)


def in_order(values: Iterable[str]) -> list[str]:
    """Each value once, in the order of appearance."""
    return list(dict.fromkeys(values))


def tied(text: str) -> str:
    """A number is not parted from the word before it at the end of a line."""
    return re.sub(r" (?=\d)", "\u00a0", text)


def count(amount: int, one: str, more: str = "") -> str:
    """``1 setting``, ``24 settings``"""
    return f"{amount:,} {one if amount == 1 else more or one + 's'}"


def listed(words: Sequence[str]) -> str:
    """``a, b and c``"""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"
