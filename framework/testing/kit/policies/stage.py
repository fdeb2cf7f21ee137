"""What stands around a policy in its checks: a table target, drafters of four kinds, requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .....verifiers.token import TokenVerifier
from ....context import Context
from ....decoding import Parts
from ....interfaces import Drafter, GammaPolicy, Verifier
from ....params import SamplingParams
from ....records import Draft
from ....requests import Request
from ....targets.table import TableSession, TableTarget
from ...laws import random_table
from ...tables import TableDraftSession

# What the drafter is to the target: ``close`` (some tokens stand), ``same`` (all of them do),
# ``wrong`` (none does), ``none`` (it never drafts anything).
DRAFTERS = ("close", "same", "wrong", "none")
ORDER = 2


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Stage:
    """A target and a drafter, both tables over the two newest tokens; float64, on the CPU.

    Args:
        seed: of both tables.
        drafter: one of ``DRAFTERS``.
        vocab: tokens that occur; there is one more, which the target never gives.
        most: the drafter drafts no more than this; None: as many as it is asked for.
        forward, propose: called before each forward and each draft, to fail or to pass the time.
        verifier: what judges the drafts.
    """

    seed: int = 0
    drafter: str = "close"
    vocab: int = 4
    most: int | None = None
    forward: Callable[[], None] = _nothing
    propose: Callable[[], None] = _nothing
    verifier: Verifier = field(default_factory=TokenVerifier)

    def parts(self, policy: GammaPolicy, name: str) -> Parts:
        """The four parts, with the policy under its name."""
        target = HookedTarget(self.target_table(), self.forward)
        most = 0 if self.drafter == "none" else self.most
        drafter = HookedDrafter(TableTarget(self.draft_table(), ORDER), most, self.propose)
        names = {kind: "of the kit" for kind in ("target", "drafter", "verifier")}
        return Parts(target, drafter, self.verifier, policy, {**names, "policy": name})

    def target_table(self) -> Tensor:
        """``[(vocab + 2) ** 2, vocab + 1]``; the last token has probability zero."""
        return torch.nn.functional.pad(_laws(self.seed, self.vocab), (0, 1))

    def draft_table(self) -> Tensor:
        """The same shape; see ``DRAFTERS``."""
        target = self.target_table()
        if self.drafter == "wrong":
            return torch.eye(self.vocab + 1, dtype=torch.float64)[-1].expand(target.shape)
        if self.drafter == "same":
            return target
        other = torch.nn.functional.pad(_laws(self.seed + 1000, self.vocab), (0, 1))
        return 0.5 * target + 0.5 * other


def _laws(seed: int, vocab: int) -> Tensor:
    return random_table(seed, vocab, zeros=0.1, laws=(vocab + 2) ** ORDER)


def requests(
    rows: int,
    tokens: int | Sequence[int],
    temperatures: Sequence[float] = (1.0,),
    stop_ids: tuple[int, ...] = (),
    seed: int = 0,
) -> list[Request]:
    """Requests with prompts of one to three ids, of whom neighbours differ.

    Args:
        tokens: the most that each answer may hold, or one number for each of them.
        temperatures: taken in turn.
    """
    counts = [tokens] * rows if isinstance(tokens, int) else list(tokens)
    return [
        Request(
            [(row + at) % 3 for at in range(1 + row % 3)],
            counts[row],
            SamplingParams(temperature=temperatures[row % len(temperatures)]),
            seed=seed,
            index=row,
            stop_ids=stop_ids,
        )
        for row in range(rows)
    ]


class HookedTarget(TableTarget):
    """A table target that calls ``hook`` before each forward."""

    def __init__(self, probs: Tensor, hook: Callable[[], None]) -> None:
        super().__init__(probs, ORDER)
        self.hook = hook

    def start(self, rows: int, capacity: int) -> TableSession:
        return _HookedTargetSession(self, rows, capacity)


class _HookedTargetSession(TableSession):
    def forward(self, *given: object, **named: object) -> Tensor:
        assert isinstance(self.target, HookedTarget)
        self.target.hook()
        return super().forward(*given, **named)  # type: ignore[arg-type]


class HookedDrafter(Drafter):
    """A table drafter that drafts at most ``most`` tokens, one by one."""

    def __init__(self, table: TableTarget, most: int | None, hook: Callable[[], None]) -> None:
        self.table, self.most, self.hook = table, most, hook

    def start(self, context: Context) -> _HookedDraftSession:
        return _HookedDraftSession(self, context)


class _HookedDraftSession(TableDraftSession):
    def __init__(self, drafter: HookedDrafter, context: Context) -> None:
        super().__init__(drafter.table, context)
        self.drafter = drafter

    def limits(self, gammas: list[int]) -> list[int]:
        most = self.drafter.most
        return gammas if most is None else [min(gamma, most) for gamma in gammas]

    def propose(self, gammas: list[int]) -> Draft:
        self.drafter.hook()
        return super().propose(gammas)
