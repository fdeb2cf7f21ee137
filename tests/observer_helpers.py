"""What the tests of observers share: one that keeps what it hears, and engines it listens to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from foredraft.framework import Answer, Engine, Observer, RunSummary
from foredraft.framework.api import engine_from
from foredraft.framework.config import as_dict, compose

TABLE = (
    "target=table", "target.eos=0", "drafter=ngram", "policy.gamma=3", "sampling.temperature=1",
    "max_new_tokens=16",
)  # fmt: skip
PROMPTS = [[place % 8, 1, 2][: 1 + place % 3] for place in range(7)]
MOMENTS = ("run_started", "round_done", "request_done", "run_done")


class Recorder(Observer):
    """Keeps (moment, record)."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.closed = 0

    def run_started(self, run: Any) -> None:
        self.heard.append(("run_started", run))

    def round_done(self, outcome: Any) -> None:
        self.heard.append(("round_done", outcome))

    def request_done(self, request: Any) -> None:
        self.heard.append(("request_done", request))

    def run_done(self, summary: Any) -> None:
        self.heard.append(("run_done", summary))

    def close(self) -> None:
        self.closed += 1

    def of(self, moment: str) -> list[Any]:
        """The records of one moment."""
        return [record for name, record in self.heard if name == moment]

    @property
    def summary(self) -> RunSummary:
        """The only run's."""
        (found,) = self.of("run_done")
        assert isinstance(found, RunSummary)
        return found


def table_engine(*observers: Observer, size: int = 3, more: Sequence[str] = ()) -> Engine:
    """A sampled table, three rows at a time."""
    return engine_from(_config(f"runtime.batch_size={size}", *more), observers=observers)


@cache
def _config(*more: str) -> dict[str, Any]:
    return as_dict(compose([*TABLE, *more]))


def answers_for(engine: Engine, prompts: Sequence[list[int]] = PROMPTS[:3]) -> list[Answer]:
    """Answers to be filled by ``engine.run``."""
    return [Answer(engine.request(prompt, index)) for index, prompt in enumerate(prompts)]
