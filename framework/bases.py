"""Bases that keep drafters short: write one method, and the law cannot be misreported."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from .context import Context
from .device import upload
from .interfaces import Drafter, DraftSession, GammaPolicy, PolicySession, Target
from .law import DenseLaw, PointMass
from .opinion import Opinion
from .records import Draft, DraftStep
from .specs import DETERMINISTIC, DraftKind


class TokenSession(DraftSession):
    """Base for deterministic drafters: write ``continuation`` and nothing else."""

    @abstractmethod
    def continuation(self, row: int, gamma: int) -> Sequence[int]:
        """At most ``gamma`` tokens that may follow ``context.tokens[row]``."""

    def propose(self, gammas: list[int]) -> Draft:
        chains = [
            list(self.continuation(row, gamma)) if gamma else [] for row, gamma in enumerate(gammas)
        ]
        return point_mass_draft(chains, self.context.device)


def check_logits(method: str, logits: object, due: tuple[int, ...]) -> Tensor:
    """What an author's method gave, or a ValueError that says what is due."""
    if not isinstance(logits, Tensor):
        raise ValueError(f"{method} gave a {type(logits).__name__}; a tensor {due} is due")
    if tuple(logits.shape) != due:
        raise ValueError(f"{method} gave logits of shape {tuple(logits.shape)}; {due} is due")
    return logits


class StepSession(DraftSession):
    """Base for autoregressive drafters: write ``next_logits`` and nothing else.

    The base draws each token from the very law it reports, through the requests' own sampling.
    While a round is drafted, ``lengths`` says how many tokens each row drafts in it.
    """

    def __init__(self, context: Context, config: Any = None) -> None:
        super().__init__(context, config)
        self.lengths = [0] * context.rows
        self._opinion: Opinion | None = None

    @abstractmethod
    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        """Logits of the next drafted token, ``[batch, vocab]``.

        ``drafted`` holds this round's tokens so far, each ``[batch]`` on the device.
        """

    def drafting(self, position: int) -> list[int]:
        """1 for rows that draft token number ``position`` this round, 0 for rows that are done."""
        return [int(length > position) for length in self.lengths]

    def limits(self, gammas: list[int]) -> list[int]:
        """Hook to draft less than asked, for example past the drafter's own context."""
        return gammas

    def propose(self, gammas: list[int]) -> Draft:
        self.lengths = list(self.limits(gammas))
        drafted: list[Tensor] = []
        probs: list[Tensor] = []
        laws: list[Tensor] = []
        for position in range(max(self.lengths)):
            step = self._step(drafted, probs)
            if not self._goes_on(step):
                break
            laws.append(step.law)
            drafted.append(self._drawn(step.law, position))
            if self.context.asks_policy:
                probs.append(step.prob(drafted[-1]))
            self.context.note(step, drafted[-1], self.lengths)
        if not drafted:
            return empty_draft(self.context)
        return Draft(torch.stack(drafted, 1), self.lengths, DenseLaw(torch.stack(laws, 1)))

    def _step(self, drafted: list[Tensor], probs: list[Tensor]) -> DraftStep:
        think = cache(partial(self._think, drafted))  # runs the drafter once, if at all
        return DraftStep(len(drafted), drafted, probs, lambda: think()[0], lambda: think()[1])

    def _think(self, drafted: list[Tensor]) -> tuple[Tensor, Opinion]:
        """The law, and the opinion (see ``DraftStep``)."""
        self._opinion = None
        law = self._step_law(drafted)
        return law, self._opinion or Opinion(law)

    def _step_law(self, drafted: list[Tensor]) -> Tensor:
        due = (self.context.rows, self.context.vocab_size)
        logits = check_logits("next_logits", self.next_logits(drafted), due)
        law, self._opinion = self.context.thought(logits, drafted)
        return law

    def _drawn(self, law: Tensor, position: int) -> Tensor:
        """Where all rows are greedy, a law made by their sampling is one token, and making noise for it would
        take as long as a small drafter's step. A session that makes laws of its own has no opinion set."""
        if self._opinion is not None and self.context.sampler.all_greedy:
            return law.argmax(-1)
        return self.context.draw(law, position)

    def _goes_on(self, step: DraftStep) -> bool:
        """Whether any row drafts the token of this step; rows that do not end before it."""
        if self.context.asks_policy:
            answers = zip(self.lengths, self.context.go_on(step), strict=True)
            self.lengths = [n if more else min(n, step.position) for n, more in answers]
        return max(self.lengths) > step.position


class ParallelSession(StepSession):
    """Base for drafters that give all positions at once (non-autoregressive ones): write
    ``all_logits`` and nothing else."""

    @abstractmethod
    def all_logits(self, width: int) -> Tensor:
        """Logits of the next ``width`` tokens, ``[batch, width, vocab]``: called once a round, before
        any of them is drawn."""

    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        if not drafted:
            self._logits = self.all_logits(max(self.lengths))
        return self._logits[:, len(drafted)]


class StepDrafter(Drafter):
    """Base for autoregressive drafters that keep nothing between rounds: write ``next_logits``, and
    ``__init__`` where there are weights or tables to load, and nothing else.

    Args:
        config: the drafter's config.
        target: what it drafts for.
    """

    def __init__(self, config: Any, target: Target) -> None:
        self.config = config

    @abstractmethod
    def next_logits(self, context: Context, drafted: list[Tensor]) -> Tensor:
        """Logits of the next drafted token, ``[batch, vocab]``; as in ``StepSession``, from what
        ``context`` shows of the committed ids."""

    def start(self, context: Context) -> DraftSession:
        return _DrafterStepSession(context, self)


class _DrafterStepSession(StepSession):
    """Asks the drafter, which stands in the place of the config."""

    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        logits: Tensor = self.config.next_logits(self.context, drafted)
        return logits


class SessionDrafter(Drafter):
    """A drafter that is nothing but its sessions: ``session(context, config)`` for each batch."""

    def __init__(self, session: type[DraftSession], config: Any, kind: DraftKind) -> None:
        self.session, self.config, self.kind = session, config, kind

    def start(self, context: Context) -> DraftSession:
        return self.session(context, self.config)


class SessionPolicy(GammaPolicy):
    """The same for a policy."""

    def __init__(self, session: type[PolicySession], config: Any, stops: bool = False) -> None:
        self.session, self.config, self.stops = session, config, stops

    def start(self, context: Context) -> PolicySession:
        return self.session(context, self.config)


def empty_draft(context: Context) -> Draft:
    """A draft of nothing: the round is a plain step."""
    return point_mass_draft([[] for _ in range(context.rows)], context.device)


def point_mass_draft(chains: Sequence[Sequence[int]], device: torch.device) -> Draft:
    """Packs host-side chains, one per row, into a deterministic draft."""
    lengths = [len(chain) for chain in chains]
    width = max(lengths, default=0)
    padded = [[*chain, *([0] * (width - len(chain)))] for chain in chains]
    packed = torch.tensor(padded, dtype=torch.int64).reshape(len(chains), width)
    tokens = upload(packed, device)
    return Draft(tokens, lengths, PointMass(tokens), drawn=DETERMINISTIC)
