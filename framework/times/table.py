"""Measured step times: a table on disk, and what it says between its lines. Imports no torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..files import write_json
from .steps import Seconds, StepTimes

FORMAT = "foredraft times 1"
MOST = 1 << 31


@dataclass(frozen=True)
class BatchTimes:
    """What was measured with so many rows.

    Args:
        batch: the number of rows.
        contexts: ids in the cache, ascending.
        widths: tokens per row of a target step, ascending, from 1.
        target: seconds, ``[len(contexts)][len(widths)]``.
        gammas: drafted tokens, ascending, from 1.
        draft: seconds to draft them.
    """

    batch: int
    contexts: tuple[int, ...]
    widths: tuple[int, ...]
    target: tuple[tuple[float, ...], ...]
    gammas: tuple[int, ...] = ()
    draft: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("contexts", "widths", "gammas"):
            _check_ascending(name, getattr(self, name), name != "contexts")
        if not self.contexts or not self.widths or self.widths[0] != 1:
            raise InputError("a table of step times needs a context and widths from 1.")
        if not 1 <= self.batch <= MOST:
            raise InputError(f"batch={self.batch} is not possible in a table of step times.")
        if {len(line) for line in self.target} != {len(self.widths)} or len(self.target) != len(
            self.contexts
        ):
            raise InputError(
                "target of a table of step times needs a number per context and width."
            )
        if len(self.draft) != len(self.gammas):
            raise InputError("draft of a table of step times needs a number per gamma.")
        _check_seconds("target", [x for line in self.target for x in line], zero=False)
        _check_seconds("draft", self.draft, zero=True)

    def step(self, widths: Sequence[int], context: int) -> Seconds:
        """Between contexts linear, outside as at the nearest."""
        lines = np.stack([_line(self.widths, line, widths) for line in self.target])
        place = np.interp(context, self.contexts, np.arange(len(self.contexts)))
        low = int(place)
        high = min(low + 1, len(lines) - 1)
        between: Seconds = lines[low] + (place - low) * (lines[high] - lines[low])
        return between

    def drafting(self, gammas: Sequence[int]) -> Seconds:
        """0 tokens take no time."""
        return _line((0, *self.gammas), (0.0, *self.draft), gammas)


class TimeTable(StepTimes):
    """Measured times.

    Between measured widths, batches and contexts it is linear. Beyond the widest step, the longest
    draft and the largest batch it goes on with the last slope, or stays level if that fell; below
    the smallest batch, and outside the contexts, it is as at the nearest.

    Args:
        sizes: at least one, in any order.
        about: what was measured, on what, when; fits into JSON.
    """

    def __init__(self, sizes: Sequence[BatchTimes], about: Mapping[str, Any] | None = None) -> None:
        self.sizes = sorted(sizes, key=lambda one: one.batch)
        self.about = dict(about or {})
        _check_ascending("batch", [one.batch for one in self.sizes], True)
        if not self.sizes:
            raise InputError("a table of step times needs at least one batch size.")

    def target(self, batch: int, widths: Sequence[int], context: int) -> Seconds:
        return self._at(batch, [one.step(widths, context) for one in self.sizes])

    def draft(self, batch: int, gammas: Sequence[int]) -> Seconds:
        return self._at(batch, [one.drafting(gammas) for one in self.sizes])

    def _at(self, batch: int, lines: list[Seconds]) -> Seconds:
        batches = [one.batch for one in self.sizes]
        columns = np.stack(lines, 1)
        return np.array([_line(batches, column, [batch])[0] for column in columns])

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"format": FORMAT, "about": self.about, "sizes": [asdict(s) for s in self.sizes]}

    def save(self, path: str | Path) -> None:
        """Writes JSON, whole or not at all.

        Raises:
            InputError: it cannot be written.
        """
        write_json(path, self.as_dict())

    @classmethod
    def load(cls, path: str | Path) -> TimeTable:
        """Reads what ``save`` wrote.

        Raises:
            InputError: it is missing, damaged or something else.
        """
        try:
            text = Path(path).expanduser().read_text("utf-8")
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise InputError(f"{path} cannot be read: {reason}.") from None
        try:
            return cls.from_dict(json.loads(text))
        except (ValueError, TypeError, KeyError, RecursionError, InputError) as error:
            reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            if isinstance(error, KeyError):
                reason = f"{reason} is missing"
            raise InputError(
                f"{path} is no table of step times of this version: {reason}."
            ) from None

    @classmethod
    def from_dict(cls, values: Any) -> TimeTable:
        """The reverse of ``as_dict``; every number is checked."""
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT!r}")
        if not isinstance(values["about"], dict) or not isinstance(values["sizes"], list):
            raise ValueError("about is no group of keys, or sizes is no list")
        return cls([_size(one) for one in values["sizes"]], values["about"])


def _size(values: Any) -> BatchTimes:
    if not isinstance(values, dict):
        raise ValueError("a size is no group of keys")
    numbers = {key: values[key] for key in ("contexts", "widths", "gammas")}
    for name, found in {**numbers, "batch": [values["batch"]]}.items():
        if not isinstance(found, list) or any(type(n) is not int for n in found):
            raise ValueError(f"{name} must be whole numbers")
    lines = values["target"]
    if not isinstance(lines, list) or not all(
        isinstance(x, list) for x in [*lines, values["draft"]]
    ):
        raise ValueError("target and draft must be lists of numbers")
    return BatchTimes(
        values["batch"],
        tuple(numbers["contexts"]),
        tuple(numbers["widths"]),
        tuple(tuple(line) for line in lines),
        tuple(numbers["gammas"]),
        tuple(values["draft"]),
    )


def _line(places: Sequence[int], seconds: Any, wanted: Sequence[int]) -> Seconds:
    """Linear between places, level before them, and behind them with the last slope or level."""
    at, known = np.asarray(places, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    asked = np.asarray(wanted, dtype=np.float64)
    slope = 0.0 if len(at) < 2 else max(0.0, float((known[-1] - known[-2]) / (at[-1] - at[-2])))
    beyond: Seconds = np.interp(asked, at, known) + slope * np.maximum(asked - at[-1], 0)
    return beyond


def _check_ascending(name: str, numbers: Sequence[int], positive: bool) -> None:
    if any(not (1 if positive else 0) <= n <= MOST for n in numbers):
        raise InputError(
            f"{name}={list(numbers)} of a table of step times must be from {int(positive)}."
        )
    if list(numbers) != sorted(set(numbers)):
        raise InputError(f"{name}={list(numbers)} of a table of step times must ascend.")


def _check_seconds(name: str, seconds: Sequence[float], zero: bool) -> None:
    for value in seconds:
        fits = type(value) in (int, float) and math.isfinite(value) and 0 <= value <= 1e9
        if not fits or (value == 0 and not zero):
            raise InputError(
                f"{name} of a table of step times holds {value!r}; it must be seconds."
            )
