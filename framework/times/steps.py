"""What a step costs: what policies that aim at tokens per second reckon with. Imports no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float64]


class StepTimes(ABC):
    """Seconds of a target's forward and of a draft."""

    @abstractmethod
    def target(self, batch: int, widths: Sequence[int], context: int) -> Seconds:
        """Of one forward of ``batch`` rows with so many tokens each, behind ``context`` ids: one
        number per width. Width 1 is a plain step, gamma + 1 verifies gamma tokens."""

    @abstractmethod
    def draft(self, batch: int, gammas: Sequence[int]) -> Seconds:
        """Of drafting so many tokens in each of ``batch`` rows: one number per gamma."""


class Constant(StepTimes):
    """The paper's assumption (Leviathan et al. 2023, section 3.4): a forward takes the same time
    whatever its width.

    Args:
        c: seconds per drafted token, when a target's step takes 1.
    """

    def __init__(self, c: float) -> None:
        self.c = c

    def target(self, batch: int, widths: Sequence[int], context: int) -> Seconds:
        return np.ones(len(widths))

    def draft(self, batch: int, gammas: Sequence[int]) -> Seconds:
        return self.c * np.asarray(gammas, dtype=np.float64)


FLAT = Constant(0.05)
