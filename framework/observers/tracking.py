"""What the trackers share: records as figures, each with a step. TensorBoard, MLflow, wandb."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..interfaces import Observer
from ..metrics import Metrics

if TYPE_CHECKING:
    from ..observing import RequestRecord, RoundRecord, RunRecord, RunSummary


class Tracker(Observer):
    """Figures of every so many rounds, of each request, and of the whole run.

    Args:
        every: rounds that are taken together to one point.
    """

    def __init__(self, every: int) -> None:
        self.every, self._open = every, False

    def begin(self, run: RunRecord) -> None:
        """A run begins."""
        raise NotImplementedError

    def log(self, group: str, step: int, figures: dict[str, float]) -> None:
        """Figures of ``round`` (the step counts the run's rounds) or ``request`` (its number)."""
        raise NotImplementedError

    def end(self, summary: RunSummary | None) -> None:
        """The run ends; None: nothing is known of how, because writing it down has failed."""
        raise NotImplementedError

    def run_started(self, run: RunRecord) -> None:
        self.close()
        self._window, self._open = Window(self.every), True
        self.begin(run)

    def round_done(self, outcome: RoundRecord) -> None:
        self._window.add(outcome)
        if self._window.full:
            self._log_rounds()

    def request_done(self, request: RequestRecord) -> None:
        self.log("request", request.number, with_rate(figures_of(request.metrics)))

    def run_done(self, summary: RunSummary) -> None:
        if not self._window.empty:
            self._log_rounds()
        self._open = False
        self.end(summary)

    def close(self) -> None:
        if self._open:
            self._open = False
            self.end(None)

    def _log_rounds(self) -> None:
        self.log("round", self._window.rounds, self._window.take())


class Window:
    """Rounds that are taken together.

    Args:
        every: how many.
    """

    def __init__(self, every: int) -> None:
        self.every, self.rounds = every, 0
        self._fresh()

    def add(self, outcome: RoundRecord) -> None:
        """One more round; the rows of its batch share its time, which is counted once."""
        for row in outcome.rows:
            self._metrics.count(row, {})
        self._metrics.spend(outcome.seconds)
        self.rounds += 1
        self._held += 1

    @property
    def full(self) -> bool:
        """Whether it is time to take them."""
        return self._held >= self.every

    @property
    def empty(self) -> bool:
        """Whether there is nothing to take."""
        return self._held == 0

    def take(self) -> dict[str, float]:
        """The figures of these rounds, and begins anew."""
        figures = with_rate(figures_of(self._metrics.as_dict()))
        self._fresh()
        return figures

    def _fresh(self) -> None:
        self._metrics, self._held = Metrics(), 0


def figures_of(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The numbers in ``Metrics.as_dict``, each with a name; what is null has no point."""
    return {key: value for key, value in flat(metrics).items() if isinstance(value, int | float)}


def with_rate(figures: dict[str, float]) -> dict[str, float]:
    """The same with tokens per second, of all the time that is booked on them."""
    seconds = sum(value for key, value in figures.items() if key.startswith("time/"))
    rate = {"tokens_per_second": figures["emitted"] / seconds} if seconds > 0 else {}
    return figures | rate


def whole_run(summary: RunSummary) -> dict[str, float]:
    """The figures of a run, and its wall time."""
    rate = summary.tokens_per_second
    figures = figures_of(summary.metrics) | {"seconds": summary.seconds}
    counts: dict[str, float] = {"requests": summary.requests, "unfinished": summary.unfinished}
    return figures | counts | ({} if rate is None else {"tokens_per_second": rate})


def flat(value: object, key: str = "", joint: str = "/") -> dict[str, Any]:
    """Nested mappings and lists as one mapping: ``{"time/draft": 0.1, "accept_rate_at/0": 1.0}``."""
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if not isinstance(value, Mapping):
        return {key: value}
    parts = (
        flat(item, f"{key}{joint}{name}" if key else str(name), joint)
        for name, item in value.items()
    )
    return {name: leaf for part in parts for name, leaf in part.items()}


def settings_of(run: RunRecord) -> dict[str, str]:
    """The config as flat text, ``{"policy.gamma": "4"}``; lists and what is empty as JSON."""
    leaves: dict[str, str] = {}
    for key, value in run.config.items():
        groups = value if isinstance(value, Mapping) else {"": value}
        for name, leaf in groups.items():
            leaves[f"{key}.{name}" if name else key] = (
                leaf if isinstance(leaf, str) else json.dumps(leaf)
            )
    return leaves


def run_name(run: RunRecord) -> str:
    """``20261130-025841-3f2a1b``: when it began (UTC), and the beginning of its id."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(run.started)) + f"-{run.run[:6]}"


def library(module: str, observer: str) -> Any:
    """Imports what an observer writes with, or says which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        cause = " ".join(str(error).split()).rstrip(".")
        raise ConfigError(
            f"observers=[{observer}] needs a library that cannot be imported ({cause}); "
            f"pip install 'foredraft[{observer}]' brings it."
        ) from error
