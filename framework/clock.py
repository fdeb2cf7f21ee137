"""Wall time by phase. On a CUDA device the numbers are host times: a phase that only launches
kernels is short, and the wait shows where the host reads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from .metrics import PHASES


class Clock:
    """Splits the time between two ``lap`` calls into phases; what no phase claims is ``other``."""

    def __init__(self) -> None:
        self._spent = dict.fromkeys(PHASES, 0.0)
        self._since = time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Books the block's time on ``name``."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._spent[name] += time.perf_counter() - begin

    def lap(self) -> dict[str, float]:
        """Seconds by phase since the last lap, ``other`` included, and starts the next lap."""
        now = time.perf_counter()
        spent = self._spent
        spent["other"] = max(0.0, now - self._since - sum(spent.values()))
        self._spent, self._since = dict.fromkeys(PHASES, 0.0), now
        return spent
