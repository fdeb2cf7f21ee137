"""Synthetic: the target's own law, worsened to a set alpha, at a set cost.

For studies of verifiers and policies at an alpha and a c of choice. With p the target's law, the one
that the target's token would be drawn from, and r the least likely id under it, the draft law is
``(1 - e) p + e [r]``. Its overlap ``sum(min(p, draft))`` (Leviathan et al. 2023, Theorem 3.5) is
``1 - e (1 - p(r))``, and e is chosen so that this is alpha.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..framework.bases import StepSession
from ..framework.cache import pad
from ..framework.clock import book, hidden, now
from ..framework.context import Context
from ..framework.device import upload
from ..framework.interfaces import Drafter, Target
from ..framework.records import Draft, Round
from ..framework.tree import Branches
from .cascade import behind

if TYPE_CHECKING:
    from .builtin import SyntheticConfig

WARM_UP, STEPS = 2, 5


class Synthetic(Drafter):
    """Runs the target, on a cache of its own, to draft for the target.

    What that takes is kept off the clock; ``cost`` plain steps per drafted token are booked in its
    place, without waiting. Only times by phase show it, therefore: the wall time of such a run is of
    no use.
    """

    def __init__(self, config: SyntheticConfig, target: Target) -> None:
        self.target, self.alpha = target, config.alpha
        step = plain_step(target) if config.step_seconds is None else config.step_seconds
        self.seconds = config.cost * step

    def start(self, context: Context) -> SyntheticSession:
        return SyntheticSession(self, context)

    def session_bytes(self, rows: int, capacity: int) -> int:
        return self.target.session_bytes(rows, capacity)


class SyntheticSession(StepSession):
    """A second session of the target. It is fed the round's tokens anew at each position, since
    targets promise no more than to score what follows the committed ids."""

    def __init__(self, drafter: Synthetic, context: Context) -> None:
        super().__init__(context)
        self.alpha, self.seconds = drafter.alpha, drafter.seconds
        with hidden():
            self.oracle = drafter.target.start(context.rows, context.capacity)
            self.oracle.prefill([row[:-1] for row in context.tokens])
        self.kept = [len(row) - 1 for row in context.tokens]  # ids in its cache
        self._missing: list[int] = []  # fed in the last forward: committed ids, per row
        self._fed = 0  # and drafted ones

    def propose(self, gammas: list[int]) -> Draft:
        begin = now()
        draft = super().propose(gammas)
        book(max(0.0, draft.width * self.seconds - (now() - begin)))
        return draft

    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        """The target's own logits behind the drafted tokens."""
        rows = zip(self.context.tokens, self.kept, strict=True)
        missing = [row[kept:] for row, kept in rows]
        self._missing, self._fed = [len(row) for row in missing], len(drafted)
        counts = [
            n + min(len(drafted), m) for n, m in zip(self._missing, self.lengths, strict=True)
        ]
        tokens, first = (
            pad(missing, self.context.device),
            upload(self._missing, self.context.device),
        )
        if drafted:
            tokens = behind(tokens, first, torch.stack(drafted, 1))[:, : max(counts)]
        logits = self.oracle.forward(tokens, counts)
        last = upload(counts, logits.device) - 1
        return logits[torch.arange(len(counts), device=logits.device), last]

    def observe(self, outcome: Round) -> None:
        if self._missing:
            stood = [min(row.accepted, self._fed) for row in outcome.rows]
            counts = [n + more for n, more in zip(self._missing, stood, strict=True)]
            with hidden():
                self.oracle.advance([list(range(count)) for count in counts])
            self.kept = [kept + count for kept, count in zip(self.kept, counts, strict=True)]
        self._missing = []

    def select(self, rows: list[int]) -> None:
        self.oracle.select(rows)
        self.kept = [self.kept[row] for row in rows]

    def _step_law(self, drafted: list[Tensor]) -> Tensor:
        with hidden():
            law = worsened(self._target_law(self.next_logits(drafted), drafted), self.alpha)
            _wait(law.device)
        return law

    def _target_law(self, logits: Tensor, drafted: list[Tensor]) -> Tensor:
        """What the target's next token would be drawn from, whatever ``sampling.draft`` says."""
        sampler, context, branches = self.context.sampler, self.context, None
        if sampler.reads_prefix:
            none = torch.zeros(context.rows, 0, dtype=torch.int64, device=context.device)
            tokens = torch.stack(drafted, 1) if drafted else none
            at = torch.full((context.rows, 1), len(drafted) - 1, device=context.device)
            branches = Branches.chain(tokens, at)
        controlled = sampler.controlled(logits.unsqueeze(1), context.tokens, branches)
        return sampler.law(controlled).nan_to_num_(nan=0.0).squeeze(1)


def worsened(target_probs: Tensor, alpha: float) -> Tensor:
    """Laws ``[batch, vocab]`` whose overlap with the target's is alpha, or as near as can be: it is
    never below the probability of the least likely id."""
    least, at = target_probs.min(-1, keepdim=True)
    noise = ((1 - alpha) / (1 - least).clamp(min=1e-12)).clamp(max=1.0)
    # Behind bans that allow nothing there is no law to keep; any will do.
    noise = noise.where(target_probs.sum(-1, keepdim=True) > 0, 1.0)
    return (target_probs * (1 - noise)).scatter_add(-1, at, noise)


def plain_step(target: Target) -> float:
    """Seconds of one plain step of one row, behind a handful of ids: the median of some."""
    session = target.start(1, WARM_UP + STEPS + 2)
    found = []
    with torch.inference_mode():
        session.prefill([[0]])
        for _ in range(WARM_UP + STEPS):
            begin = time.perf_counter()
            session.forward(torch.zeros(1, 1, dtype=torch.int64, device=target.device), [1])
            _wait(target.device)
            found.append(time.perf_counter() - begin)
            session.advance([[0]])
    return median(found[WARM_UP:])


def _wait(device: torch.device) -> None:
    """Lets work on a GPU end here, so that nobody else's time has it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
