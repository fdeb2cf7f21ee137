"""What a race comes down to: a sentence, the figures behind it, and how every cell stood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from . import choosing
from .interval import Interval
from .readings import Side
from .stats import geometric


@dataclass(frozen=True)
class Standing:
    """How a cell stands in the race.

    Args:
        units: of the race, with a time.
        speedup: over the fastest plain decoding, on these units; the interval holds alone.
        out: why it is out; empty if it is not.
    """

    cell: str
    units: int
    speedup: Interval
    out: str = ""


@dataclass(frozen=True)
class Answer:
    """What to do.

    Args:
        speculate: whether the interval of ``measured`` lies above 1.
        cell: the winner of the race; None if no cell was left.
        measured: its speed-up on the units held out, over the fastest plain decoding there.
        base: the plain decodings that it is over; two if they are about equally fast.
        says: one sentence.
    """

    speculate: bool
    cell: str | None
    measured: Interval
    base: Sequence[str]
    says: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def speedup(side: Side, plain: Sequence[Side], groups: Sequence[str]) -> tuple[Interval, list[str]]:
    """A cell over the fastest plain decoding, each half of the units with what was fastest on the
    other, and which that was."""
    base = choosing.fastest(plain, groups)
    (found,) = geometric(np.log(base.seconds) - np.log(side.seconds))
    return found, list(base.ids)


def measured(cell: str, found: Interval, base: Sequence[str]) -> Answer:
    """What the winner's figures on the units held out say."""
    over = f"{' and '.join(base)} on {found.units} units that it was not chosen on"
    text = f"{found.text()} times the speed of {over}"
    if found.bounds is None:
        why = f"could not be measured on units that it was not chosen on ({found.how})"
        says = f"do not speculate: the winner, {cell}, {why}"
    elif found.differs() > 0:
        says = f"speculate: {cell} has {text}"
    elif found.differs() < 0:
        says = f"do not speculate: even the winner, {cell}, is slower, {text}"
    else:
        says = f"do not speculate: the winner, {cell}, has {text}, an interval that holds 1"
    return Answer(found.differs() > 0, cell, found, base, says)


def nobody(out: Mapping[str, str], cells: int) -> Answer:
    """When no cell is left, or none has a time."""
    if len(out) < cells:
        why = "no run of the cells left could be timed; see whether other work takes the cores"
    elif all(reason.startswith("failed") for reason in out.values()):
        why = "every cell failed"
    else:
        why = "no cell is left, because each is slower than another arm, failed, or changes the output"
    return Answer(False, None, Interval(), [], f"do not speculate: {why}")
