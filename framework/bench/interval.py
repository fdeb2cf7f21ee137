"""A value with its bounds, or with the reason why it has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

FEWEST = 3  # units that an interval needs
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A value with its bounds.

    Args:
        value: None when no unit gave one.
        low, high: None when there are too few units to say.
        units: how many the value is from.
        how: ``t``, ``bootstrap-t``, or why there are no bounds.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    units: int = 0
    how: str = "no units"

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Low and high, if there are any."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    def differs(self, other: float = 1.0) -> int:
        """1 if the whole interval is above ``other``, -1 if below, 0 if it cannot be told."""
        if self.bounds is None:
            return 0
        return int(self.bounds[0] > other) - int(self.bounds[1] < other)

    def map(self, change: Callable[[float], float]) -> Interval:
        """The same interval on another scale; ``change`` must be increasing."""
        found = [None if x is None else float(change(x)) for x in (self.value, self.low, self.high)]
        return replace(self, value=found[0], low=found[1], high=found[2])

    def text(self, digits: int = 2) -> str:
        """``1.83 [1.71, 1.96]``; without bounds the value alone; ``-`` without a value."""
        if self.value is None:
            return "-"
        bounds = self.bounds
        span = f" [{bounds[0]:.{digits}f}, {bounds[1]:.{digits}f}]" if bounds else ""
        return f"{self.value:.{digits}f}{span}"


def too_few(units: int) -> str:
    """Why there is no interval."""
    return f"{units} unit{'s' * (units != 1)}, an interval needs {FEWEST}"
