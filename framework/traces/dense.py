"""Dense traces: what a drafter would have drafted at every place of a fixed text, and what became of
it. With one, any gamma policy can be run over the text without a model (``replaying``).

A trace fits a text that does not depend on the drafts: a greedy one, or one sampled with the noise
that drafter and target share (``verifier=coupled``). Imports no torch.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..files import written_whole

FORMAT = "foredraft-traces-1"
NUMBERS = ("overlaps", "confidences", "entropies")
ARRAYS = ("accepts", *NUMBERS, "lengths")


@dataclass(frozen=True, eq=False)
class DenseTrace:
    """One text. ``T`` tokens of answer, ``G`` the most tokens drafted at a place. Read-only.

    Args:
        accepts: ``[T, G]`` bool; at place t (behind t tokens of the answer) drafted token i is the
            text's token t + i. Those behind the first that is not count for nothing.
        overlaps: ``[T, G]`` float32, ``sum(min(target, draft))`` there.
        confidences: ``[T, G]`` float32, the drafted token's probability in its draft law.
        entropies: ``[T, G]`` float32, of that law, in nats.
        lengths: ``[T]``, tokens drafted at each place when all ``G`` were asked for.
        about: plain values, kept as JSON. Replay reads three: ``prompt_tokens`` (default 1);
            ``room``, the most tokens the answer could have held (default ``T``; more if it ended by
            itself); ``drawn``, how tokens were drawn (``specs.DRAWN``).

    Raises:
        InputError: shapes that do not fit, numbers out of range.
    """

    accepts: NDArray[np.bool_]
    overlaps: NDArray[np.float32]
    confidences: NDArray[np.float32]
    entropies: NDArray[np.float32]
    lengths: NDArray[np.int64]
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kinds = {"accepts": np.bool_, "lengths": np.int64}
        for name in ARRAYS:
            array = np.asarray(getattr(self, name))
            if name == "lengths" and array.dtype.kind not in "iu":
                raise InputError(f"a trace's lengths are {array.dtype}; whole numbers are due.")
            if name == "accepts" and array.dtype != np.bool_:
                raise InputError(f"a trace's accepts are {array.dtype}; bool is due.")
            array = array.astype(kinds.get(name, np.float32), copy=False).view()
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        _check_shapes(self)
        _check_numbers(self)

    @property
    def places(self) -> int:
        """``T``, tokens of the answer."""
        return int(self.accepts.shape[0])

    @property
    def most(self) -> int:
        """``G``, the most tokens drafted at a place."""
        return int(self.accepts.shape[1])

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return int(self.about.get("prompt_tokens", 1))

    @property
    def room(self) -> int:
        """The most tokens that the answer could have held."""
        return int(self.about.get("room", self.places))

    @cached_property
    def runs(self) -> NDArray[np.int64]:
        """``[T]``, how many tokens drafted at each place stand before the first that does not."""
        drafted = np.arange(self.most) < self.lengths[:, None]
        left = np.arange(self.places, 0, -1)
        stand = np.logical_and.accumulate(self.accepts & drafted, axis=1).sum(1)
        runs: NDArray[np.int64] = np.minimum(stand, left)
        return runs


def write_traces(path: str | Path, traces: Sequence[DenseTrace]) -> None:
    """Writes a compressed ``.npz``, whole or not at all. ``about`` has to fit into JSON."""
    if not traces:
        raise InputError(f"{path} would hold no trace; at least one is needed.")
    arrays = {f"{name}_{i}": getattr(t, name) for i, t in enumerate(traces) for name in ARRAYS}
    text = {"format": FORMAT, "traces": [dict(trace.about) for trace in traces]}
    arrays["about"] = np.frombuffer(json.dumps(text, allow_nan=False).encode(), dtype=np.uint8)
    with written_whole(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_traces(path: str | Path) -> list[DenseTrace]:
    """Reads what ``write_traces`` wrote. Nothing in the file is ever run.

    Raises:
        InputError: the file is missing, damaged, or something else.
    """
    place = Path(path).expanduser()
    try:
        if place.is_file() and not zipfile.is_zipfile(place):
            raise ValueError("it is no archive, or was cut short")
        with np.load(place, allow_pickle=False) as file:
            return _traces(path, file)
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError, EOFError, AttributeError, zlib.error) as error:
        raise _foreign(path, error) from None
    except (zipfile.BadZipFile, RecursionError, NotImplementedError) as error:
        raise _foreign(path, error) from None


def _traces(path: str | Path, file: Any) -> list[DenseTrace]:
    meta = json.loads(bytes(file["about"]).decode())
    if meta["format"] != FORMAT or not all(isinstance(one, dict) for one in meta["traces"]):
        raise ValueError(f"its format is not {FORMAT}")
    found = []
    for i, about in enumerate(meta["traces"]):
        try:
            arrays = {name: file[f"{name}_{i}"] for name in ARRAYS}
            found.append(DenseTrace(**arrays, about=about))
        except InputError as error:
            raise InputError(f"trace {i} of {path} is damaged: {error}") from None
    if not found:
        raise InputError(f"{path} holds no trace.")
    return found


def _foreign(path: str | Path, error: Exception) -> InputError:
    reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return InputError(f"{path} is no whole file of dense traces of this version: {reason}.")


def _check_shapes(trace: DenseTrace) -> None:
    due = trace.accepts.shape
    if trace.accepts.ndim != 2 or 0 in due:
        raise InputError(f"a trace's accepts have the shape {due}; [places, most] is due.")
    for name in NUMBERS:
        if getattr(trace, name).shape != due:
            raise InputError(
                f"a trace's {name} have the shape {getattr(trace, name).shape}; {due} is due."
            )
    if trace.lengths.shape != due[:1]:
        raise InputError(
            f"a trace's lengths have the shape {trace.lengths.shape}; {due[:1]} is due."
        )


def _check_numbers(trace: DenseTrace) -> None:
    if trace.lengths.min() < 0 or trace.lengths.max() > trace.most:
        worst = trace.lengths.min() if trace.lengths.min() < 0 else trace.lengths.max()
        raise InputError(f"a trace's lengths hold {worst}; they must be from 0 to {trace.most}.")
    limits = {"overlaps": 1.001, "confidences": 1.001, "entropies": 1e6}  # sums of float32 laws
    for name, high in limits.items():
        values = getattr(trace, name)
        if not (values.min() >= 0 and values.max() <= high):  # also true for NaN
            raise InputError(f"a trace's {name} must be numbers from 0 to {high:.6g}.")
    for name, low in (("prompt_tokens", 0), ("room", trace.places)):
        value = trace.about.get(name, low)
        if type(value) is not int or not low <= value <= 1 << 31:
            raise InputError(f"a trace's {name}={value!r} must be a whole number from {low}.")
