"""Which arms of a race leave before its first look, because there is no time to take all of them there.

Sequential halving (Karnin, Koren and Somekh 2013, *Almost optimal exploration in multi-armed bandits*,
ICML) for races with too many arms for their minutes: while the first look is further off than the time
reaches, the slower half leaves. That is a guess, not a test: the fastest arm can be among them, so it is
done only where there would be no look otherwise. Numbers alone; imports no torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any

AFTER = (1, 2, 4)  # units
MARGIN = 0.9  # of the time; the rest builds the arms and warms them up


def stages(first: int) -> list[int]:
    """After how many units, before the first look, arms may have to leave."""
    return [units for units in AFTER if units < first]


class Pace:
    """How long the arms of a race take.

    Args:
        records: runs of the sweep; those of ``units`` in its first repeat count, so that a race that
            goes on later decides as it did.

    Attributes:
        spent: seconds of these runs.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]], units: Collection[int]) -> None:
        self.spent = 0.0
        self._seconds: dict[str, list[float]] = {}
        self._tokens: dict[str, int] = {}
        for record in records:
            if record["unit"] in units and not record["repeat"]:
                cell, made = record["cell"], sum(len(row["ids"]) for row in record["rows"])
                self.spent += record["seconds"]
                self._seconds.setdefault(cell, []).append(record["seconds"])
                self._tokens[cell] = self._tokens.get(cell, 0) + made

    def reaches(self, arms: Iterable[str], units: int, seconds: float) -> bool:
        """Whether these arms can run so many units more before the race has taken so long."""
        means = (sum(runs) / len(runs) for arm in arms if (runs := self._seconds.get(arm)))
        return self.spent + units * sum(means) <= MARGIN * seconds

    def slower_half(self, arms: Sequence[str]) -> list[str]:
        """The half of the arms with more seconds per token; those that did not run are the slowest."""
        ranked = sorted(arms, key=self._per_token)
        return ranked[(len(arms) + 1) // 2 :]

    def _per_token(self, arm: str) -> float:
        tokens = self._tokens.get(arm, 0)
        return sum(self._seconds[arm]) / tokens if tokens else inf
