"""Acceptance over the course of an answer: what is kept of each round, and its sum over stretches of tokens.

A row of a record has it as ``by_round``: for each round drafted, reached and accepted tokens, as
``framework/metrics.py`` defines them. Rounds and accepted tokens before a round say where in the answer
it began. Rows that drafted nothing have none of it, and so have records of earlier versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .interval import FEWEST, Interval
from .stats import Ratios

if TYPE_CHECKING:
    from ..records import RowOutcome
    from .readings import Side

STRETCHES = 8
Numbers = NDArray[np.float64]
Begun = list[int]  # where a round began, how many it reached, how many it accepted


@dataclass(frozen=True)
class Stretch:
    """Rounds that began within some tokens of the answer.

    Args:
        first, last: the tokens, from 1, both inside.
        rate: accepted over reached, with an interval over units.
    """

    first: int
    last: int
    rate: Interval


def by_round(rows: Iterable[RowOutcome]) -> dict[int, list[list[int]]]:
    """By request: drafted, reached and accepted of each round; nothing of one that never drafted."""
    found: dict[int, list[list[int]]] = {}
    for row in rows:
        counts = [len(row.drafted), len(row.overlaps), row.accepted]
        found.setdefault(row.request, []).append(counts)
    return {request: each for request, each in found.items() if any(one[0] for one in each)}


def begun(rows: Iterable[Mapping[str, Any]]) -> list[Begun]:
    """The rounds of some rows that tried a drafted token. A round gives its accepted tokens and one
    more."""
    found: list[Begun] = []
    for row in rows:
        place = 0
        for _, reached, accepted in row.get("by_round") or ():
            if reached:
                found.append([place, reached, accepted])
            place += accepted + 1
    return found


def course(side: Side, longest: int) -> list[Stretch]:
    """What a cell accepted along its answers.

    Args:
        longest: tokens of the longest answer of all cells, which is cut into ``STRETCHES``.

    Later stretches hold the prompts with long answers alone. One with fewer prompts than an interval
    needs is left out; of a sweep with fewer, one that not all of them reach.
    """
    each = -(-longest // STRETCHES)
    if not each or not any(side.rounds.values()):
        return []
    reached, accepted = _summed(side.rounds, len(side.seconds), each)
    rates = Ratios(accepted, reached).intervals()
    fewest = min(FEWEST, max(rate.units for rate in rates))
    return [
        Stretch(at * each + 1, (at + 1) * each, rate.map(lambda x: min(max(x, 0.0), 1.0)))
        for at, rate in enumerate(rates)
        if rate.value is not None and rate.units >= fewest
    ]


def _summed(
    rounds: Mapping[int, Sequence[Begun]], units: int, each: int
) -> tuple[Numbers, Numbers]:
    """Reached and accepted, ``[units, STRETCHES]``; NaN where a unit has no round."""
    counts = np.zeros((2, units, STRETCHES))
    for unit, found in rounds.items():
        if found:
            place, *told = np.asarray(found).T
            at = np.minimum(place // each, STRETCHES - 1)
            for kind, values in enumerate(told):
                np.add.at(counts[kind, unit], at, values)
    counts[:, counts[0] == 0] = np.nan
    return counts[0], counts[1]
