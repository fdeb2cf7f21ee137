"""How one request samples: the keys of ``sampling`` and their only defaults. Imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .errors import ConfigError


@dataclass
class SamplingParams:
    """How one request samples.

    Args:
        temperature: 0 is greedy (an exact branch: argmax, first index on a tie, as in plain
            decoding); any positive number divides the logits.
        top_k: keep the k most likely tokens; 0 keeps all. Ties with the k-th are kept.
        top_p: keep the smallest set of tokens whose mass reaches p, in (0, 1].
        min_p: drop tokens less likely than ``min_p`` times the most likely one, in [0, 1].
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        for key in ("temperature", "top_p", "min_p"):
            value = getattr(self, key)
            _check(key, value, type(value) in (int, float), "a number")
        _check(
            "temperature",
            self.temperature,
            0 <= self.temperature < math.inf,
            "a number from 0 (greedy)",
        )
        _check(
            "top_k",
            self.top_k,
            type(self.top_k) is int and 0 <= self.top_k < 2**31,
            "a whole number from 0 (off)",
        )
        _check("top_p", self.top_p, 0 < self.top_p <= 1, "a number above 0 and up to 1 (off)")
        _check("min_p", self.min_p, 0 <= self.min_p <= 1, "a number from 0 (off) to 1")

    @property
    def greedy(self) -> bool:
        """True when no randomness is involved."""
        return self.temperature == 0


def _check(key: str, value: object, ok: bool, possible: str) -> None:
    if not ok:
        raise ConfigError(f"sampling.{key}={value} is not possible; it must be {possible}.")
