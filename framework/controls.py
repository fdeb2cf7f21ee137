"""Controls: what changes a row's logits with an eye to its text, before temperature and truncation.

A control is asked for a law's logits at several places at once: behind the committed ids and
behind each drafted node. At each it has to do what plain decoding would have done there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import Tensor

from .tree import Branches

Committed = Sequence[Sequence[int]]


class Control(ABC):
    """One control for a batch; rows whose requests do not use it pass unchanged.

    Attributes:
        host_reads: device-to-host reads it needs per call (0 for what runs on the device).
    """

    host_reads: int = 0

    @abstractmethod
    def apply(self, logits: Tensor, committed: Committed, branches: Branches) -> Tensor:
        """``logits [batch, places, vocab]`` (float32 or float64) -> the same shape, not in place.

        Args:
            committed: each row's committed ids, prompt and answer. They only ever grow; a control
                that keeps counts catches up from them and takes nothing else for committed.
            branches: the drafted nodes so far, and behind which of them each place lies. Drafted
                tokens may be rejected later: nothing about them may be kept.
        """

    @abstractmethod
    def select(self, rows: list[int]) -> None:
        """Keeps the given rows, in that (ascending) order."""
