"""Wall time by phase. On a CUDA device the numbers are host times: a phase that only launches
kernels is short, and the wait shows where the host reads.

All of it is read off ``now``. A simulation can keep its own work off that clock (``hidden``), and put
on it what it stands for (``book``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .metrics import PHASES


class _Off(threading.local):
    """Seconds by which a thread's clock is behind wall time."""

    seconds = 0.0


_off = _Off()


def now() -> float:
    """Seconds of this thread's clock: wall time less what was hidden, plus what was booked."""
    return time.perf_counter() - _off.seconds


@contextmanager
def hidden() -> Iterator[None]:
    """The block's time is in no phase, and in none of the sums over phases."""
    begin = now()
    try:
        yield
    finally:
        _off.seconds += now() - begin


def book(seconds: float) -> None:
    """Adds time that did not pass to whatever phase is running."""
    _off.seconds -= seconds


class Clock:
    """Splits the time between two ``lap`` calls into phases; what no phase claims is ``other``."""

    def __init__(self) -> None:
        self._spent = dict.fromkeys(PHASES, 0.0)
        self._since = now()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Books the block's time on ``name``."""
        begin = now()
        try:
            yield
        finally:
            self._spent[name] += now() - begin

    def lap(self) -> dict[str, float]:
        """Seconds by phase since the last lap, ``other`` included, and starts the next lap."""
        at = now()
        spent = self._spent
        spent["other"] = max(0.0, at - self._since - sum(spent.values()))
        self._spent, self._since = dict.fromkeys(PHASES, 0.0), at
        return spent
