"""What a policy sees in a replay: the context of a run, and a draft step out of a trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from ..context import Context
from ..errors import ConfigError
from ..records import DraftStep
from ..times.steps import StepTimes
from .stack import Counts, Stack

ABSENT = ("target", "sampler", "noise")


class ReplayContext(Context):
    """A batch of traces. Ids are not known: every token is 0, and only their number means anything.

    There is no target, no sampling and no noise; asking for one ends the replay.

    Attributes:
        stack: all traces of the replay.
        traces: ``[rows]``, which trace each row is.
        at: ``[rows]``, the place where each row stands.
    """

    def __init__(self, stack: Stack, traces: Counts, times: StepTimes, apart: bool) -> None:
        # Not the base's: it would want a target.
        self.apart = apart
        self.stack, self.traces, self.at = stack, traces, np.zeros(len(traces), dtype=np.int64)
        self.tokens = [[0] * count for count in stack.prompts[traces].tolist()]
        self.prompt_lengths = [len(row) for row in self.tokens]
        self.capacity = int((stack.prompts + stack.rooms)[traces].max())
        self.vocab_size = 1
        self.device = torch.device("cpu")
        self.round_index = 0
        self.shared_noise = False
        self.member = None
        self.detailed, self.noted = False, {}
        self.times = lambda: times
        self._go_on = None

    def __getattr__(self, name: str) -> Any:
        if name in ABSENT:
            raise ConfigError(f"the policy asks for context.{name}, which a replay does not have.")
        raise AttributeError(name)

    def take(self, emitted: Counts) -> None:
        """Moves each row on by so many tokens."""
        for row, count in zip(self.tokens, emitted.tolist(), strict=True):
            row.extend([0] * count)
        self.at = self.at + emitted

    def select(self, rows: list[int]) -> None:
        self.tokens = [self.tokens[row] for row in rows]
        self.prompt_lengths = [self.prompt_lengths[row] for row in rows]
        self.traces, self.at = self.traces[rows], self.at[rows]

    def runs(self) -> Counts:
        """How many tokens drafted now would stand: for policies that cheat on purpose."""
        return self.stack.runs[self.traces, self.at]


class ReplayStep(DraftStep):
    """A step that a trace knows: probabilities and the entropy, but no law.

    Attributes:
        ran: whether the entropy was asked for, which in a run computes the law: a drafter's step.
    """

    def __init__(self, position: int, probs: Sequence[Tensor], entropy: Callable[[], Tensor]):
        tokens = [torch.zeros(len(one), dtype=torch.int64) for one in probs]
        super().__init__(position, tokens, probs, _no_law)
        self._entropy, self.ran = entropy, False

    @cached_property
    def entropy(self) -> Tensor:
        self.ran = True
        return self._entropy()


def _no_law() -> NoReturn:
    raise ConfigError(
        "the policy asks for step.law or step.opinion, which a trace does not hold; it has step.probs "
        "and step.entropy."
    )
