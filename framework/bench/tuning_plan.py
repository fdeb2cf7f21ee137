"""What a race runs when: which units it is run on, which are held out, and when it looks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..config.values import read_record
from ..errors import ForedraftError, InputError
from .choosing import halves
from .folder import RACE
from .plan import Unit
from .tuning_race import FEWEST, schedule

if TYPE_CHECKING:
    from ..training.answers import Answered
    from .tasks import BenchPrompt

Grouped = TypeVar("Grouped", "Unit", "Answered", "BenchPrompt")
SHARE = 0.6  # of the minutes, for the race; what it leaves is for the units held out


@dataclass
class TunePlan:
    """The block ``tune`` of a race's ``run.json``.

    Args:
        minutes: for all of it.
        race: the units to choose on, in order.
        held_out: the units to measure the winner on; none of them is in ``race``.
        looks: after how many units of the race a look is taken; after each repeat of the whole,
            there is one more.
        preset: the name of the preset in the folder.
    """

    minutes: float
    race: list[int]
    held_out: list[int]
    looks: list[int]
    preset: str = "tuned"


def planned(units: Sequence[Unit], seed: int, minutes: float, preset: str) -> TunePlan:
    """Splits the units of every group in halves.

    Raises:
        InputError: there are too few.
    """
    groups = [unit.group for unit in units]
    first = halves(groups, seed)
    race = in_turns([unit for unit, chosen in zip(units, first, strict=True) if chosen])
    held = in_turns([unit for unit, chosen in zip(units, first, strict=True) if not chosen])
    if min(len(race), len(held)) < FEWEST:
        raise InputError(
            f"a race needs {2 * FEWEST} units, {FEWEST} to choose on and as many to measure the "
            f"winner on, and the task gives {len(units)}; give more prompts, or a smaller "
            "runtime.batch_size."
        )
    looks = schedule(len(race), len(set(groups)))
    return TunePlan(minutes, [u.index for u in race], [u.index for u in held], looks, preset)


def stored_plan(manifest: Mapping[str, Any], where: object) -> TunePlan:
    """The plan of a race that is there already.

    Raises:
        InputError: the folder is of no race, or was changed by hand.
    """
    if RACE not in manifest:
        raise InputError(f"{where} holds a sweep of foredraft bench, not a race.")
    try:
        plan: TunePlan = read_record(TunePlan, manifest[RACE], RACE)
    except ForedraftError as error:
        raise InputError(f"{where} was changed by hand: {error}") from None
    every = [*plan.race, *plan.held_out]
    if sorted(every) != list(range(len(manifest["units"]))) or plan.looks[-1:] != [len(plan.race)]:
        raise InputError(f"{where} was changed by hand: tune does not split its units.")
    return plan


def in_turns(items: Sequence[Grouped]) -> list[Grouped]:
    """The groups one after the other, so that any part of a race has about the same of each."""
    groups: dict[str, list[Grouped]] = {}
    for item in items:
        groups.setdefault(item.group, []).append(item)
    turns = itertools.zip_longest(*groups.values())
    return [item for turn in turns for item in turn if item is not None]
