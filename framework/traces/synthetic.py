"""Dense traces without a model: texts whose acceptance follows a process that is known.

How a text is made. A drafter that reads ids alone drafts the same token for a place of a fixed text
in whichever round it gets there, given the right tokens before it. So there is *one* draw per place:
either the drafter knows the text's token there or it does not. Rounds of any one policy then see
independent draws, as the paper's formulas want (Leviathan et al. 2023, section 3.1), and different
policies see the same text, as comparing them wants.

1. The process gives the rate of each place, ``alpha``.
2. Each place gets an own rate, ``Beta(k alpha, k (1 - alpha))`` with ``k = concentration``: texts
   have easy and hard places. Its mean is ``alpha``.
3. The place is known with its own rate: over a place's draws, with ``alpha``.
4. The confidence is the own rate with probability ``insight``, else that of a place drawn afresh:
   ``insight`` is its correlation with the own rate, 0 says nothing.
5. The entropy is that of a law with the confidence on one token and the rest spread evenly over
   ``TAIL`` others.
6. The overlap is 1 or 0, known or not, as under greedy decoding; with ``greedy=False`` the own rate.

Imports no torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from ..checks import check_range, check_whole
from ..errors import ConfigError
from .dense import DenseTrace

TAIL = 50
Floats = NDArray[np.float64]


class Process(ABC):
    """A rate for each place of an endless text. A trace is cut out of it at a random start."""

    @property
    @abstractmethod
    def cycle(self) -> int:
        """Places after which it repeats itself."""

    @abstractmethod
    def rates(self, places: NDArray[np.int64]) -> Floats:
        """The rate at each place, the same shape."""


@dataclass(frozen=True)
class Iid(Process):
    """The same rate everywhere: the paper's assumption."""

    alpha: float = 0.7

    def __post_init__(self) -> None:
        check_range("alpha", self.alpha, 0, 1)

    @property
    def cycle(self) -> int:
        return 1

    def rates(self, places: NDArray[np.int64]) -> Floats:
        return np.full(places.shape, self.alpha)


@dataclass(frozen=True)
class Drifting(Process):
    """A rate that goes up and down between two values, as a sine.

    Args:
        period: places from one top to the next.
    """

    low: float = 0.3
    high: float = 0.9
    period: int = 2000

    def __post_init__(self) -> None:
        check_range("low", self.low, 0, 1)
        check_range("high", self.high, self.low, 1)
        check_whole("period", self.period, 2, 1 << 31)

    @property
    def cycle(self) -> int:
        return self.period

    def rates(self, places: NDArray[np.int64]) -> Floats:
        wave = np.sin(2 * np.pi * (places % self.period) / self.period)
        return (self.high + self.low) / 2 + (self.high - self.low) / 2 * wave


@dataclass(frozen=True)
class TwoState(Process):
    """Two rates (or more) that take turns, each for so many places."""

    alphas: tuple[float, ...] = (0.9, 0.3)
    lengths: tuple[int, ...] = (400, 400)

    def __post_init__(self) -> None:
        if len(self.alphas) != len(self.lengths) or not self.alphas:
            raise ConfigError(
                f"lengths={list(self.lengths)} is not possible; there must be one per rate of "
                f"alphas={list(self.alphas)}."
            )
        for alpha, length in zip(self.alphas, self.lengths, strict=True):
            check_range("alphas", alpha, 0, 1)
            check_whole("lengths", length, 1, 1 << 31)

    @property
    def cycle(self) -> int:
        return sum(self.lengths)

    def rates(self, places: NDArray[np.int64]) -> Floats:
        ends = np.cumsum(self.lengths)
        return np.asarray(self.alphas)[np.searchsorted(ends, places % self.cycle, side="right")]


PROCESSES: dict[str, type[Process]] = {"iid": Iid, "drifting": Drifting, "two_state": TwoState}
NAMES = {kind: name for name, kind in PROCESSES.items()}


def synthetic_traces(
    process: Process,
    texts: int = 50,
    places: int = 2000,
    gamma_max: int = 16,
    seed: int = 0,
    concentration: float = 4.0,
    insight: float = 0.7,
    greedy: bool = True,
) -> list[DenseTrace]:
    """Texts of ``places`` tokens, made as the module says. Equal arguments give equal traces."""
    for key, count in (("texts", texts), ("places", places)):
        check_whole(key, count, 1, 10_000_000)
    check_whole("gamma_max", gamma_max, 1, 256)
    check_range("concentration", concentration, 1e-3, 1e9)
    check_range("insight", insight, 0, 1)
    noise = np.random.default_rng(seed)
    starts = noise.integers(process.cycle, size=texts)
    long = places + gamma_max - 1
    alphas = process.rates(starts[:, None] + np.arange(long))
    own = _own_rates(noise, alphas, concentration)
    known = noise.random(alphas.shape) < own
    fresh = noise.random(alphas.shape) >= insight
    confidence = np.where(fresh, _own_rates(noise, alphas, concentration), own)
    overlap = known if greedy else own
    lengths = np.full(places, gamma_max)
    about = {"process": NAMES[type(process)], **asdict(process), "seed": seed}  # type: ignore[call-overload]
    found = []
    for i, start in enumerate(starts):
        lines = {
            "accepts": known[i],
            "overlaps": overlap[i],
            "confidences": confidence[i],
            "entropies": spread_entropy(confidence[i]),
        }
        arrays = {name: _windows(line, gamma_max) for name, line in lines.items()}
        own_about = {**about, "request": i, "start": int(start)}
        found.append(DenseTrace(**arrays, lengths=lengths, about=own_about))
    return found


def alphas_of(trace: DenseTrace) -> Floats | None:
    """``[T]``, the rate of each place of a synthetic trace; None for one of a real text."""
    if trace.about.get("process") not in PROCESSES:
        return None
    start = int(trace.about["start"])
    return process_of(trace.about).rates(start + np.arange(trace.places))


def process_of(about: Mapping[str, Any]) -> Process:
    """The process that a synthetic trace was made by."""
    kind = PROCESSES[about["process"]]
    values = {name: about[name] for name in kind.__dataclass_fields__}  # type: ignore[attr-defined]
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def spread_entropy(confidence: ArrayLike) -> Floats:
    """In nats, of a law with ``confidence`` on one token and the rest evenly on ``TAIL`` others."""
    top = np.clip(np.asarray(confidence, dtype=np.float64), 1e-12, 1 - 1e-12)
    return -(top * np.log(top) + (1 - top) * np.log((1 - top) / TAIL))


def _own_rates(noise: np.random.Generator, alphas: Floats, concentration: float) -> Floats:
    safe = np.clip(alphas, 1e-9, 1 - 1e-9)
    return noise.beta(concentration * safe, concentration * (1 - safe))


def _windows(line: NDArray[Any], most: int) -> NDArray[Any]:
    """``[places + most - 1] -> [places, most]``: a view, row t begins at place t."""
    kept = line if line.dtype == np.bool_ else line.astype(np.float32)
    return sliding_window_view(kept, most)
