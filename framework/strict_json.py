"""JSON as we read it, wherever it comes from: strictly, so that no two readers can take it for two
things, and so that nothing in it breaks whoever works with it. Imports no torch.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NoReturn

from .errors import InputError

DEPTH = 60  # levels of nesting; what walks them calls itself
LARGEST = 2**1000  # of whole numbers; a float can hold it


def read_object(data: bytes | str, where: str, hint: str = "") -> dict[str, Any]:
    """One JSON object: UTF-8, no key twice, no NaN, infinity or number that no float can hold, no half
    characters, and nested ``DEPTH`` levels at most.

    Args:
        where: what a refusal calls it, ``line 3 of questions.jsonl`` for example.
        hint: what a refusal adds where it is JSON, but no object.

    Raises:
        InputError: it is anything else.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_whole,
        )
        if isinstance(value, dict):
            _check_depth(value)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{where} is not UTF-8 text.") from None
    except UnicodeEncodeError:
        raise InputError(f"{where} holds half of a character (a lone surrogate).") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not valid JSON: {brief(error)}.") from None
    if not isinstance(value, dict):
        raise InputError(f"{where} is not a JSON object{hint}.")
    return value


def brief(error: Exception) -> str:
    """What an error says, as a part of a sentence."""
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = Counter(name for name, _ in pairs)
        twice = next(name for name, count in names.items() if count > 1)
        raise ValueError(f"the key {_short(twice)!r} is there twice")
    return found


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEPTH):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [item for items in inner for item in items if type(item) in (dict, list)]
        if not level:
            return
    raise ValueError(f"it is nested more than {DEPTH} levels deep")


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _finite(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(f"{_short(word)} is too large")
    return number


def _whole(word: str) -> int:
    # The interpreter refuses thousands of digits itself, and tells programmers what to do about it.
    if len(word) > 400 or abs(number := int(word)) >= LARGEST:
        raise ValueError(f"{_short(word)} is too large")
    return number


def _short(word: str) -> str:
    return word if len(word) <= 40 else f"{word[:40]}..."
