"""A bar on standard error: answers done, tokens, tokens per second, tau, accept rate."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from ..cli.display import console, summary
from ..interfaces import Observer
from ..metrics import Metrics

if TYPE_CHECKING:
    from ..observing import RequestRecord, RoundRecord, RunRecord, RunSummary

WAIT = 0.1  # seconds between two looks at the figures


class ProgressBar(Observer):
    """Shows nothing unless standard error is a terminal. The bar goes when the run ends."""

    def __init__(self, config: object = None) -> None:
        self._bar: Any = None

    def run_started(self, run: RunRecord) -> None:
        self.close()
        self._metrics, self._since, self._shown = Metrics(), time.perf_counter(), 0.0
        if sys.stderr.isatty():
            self._bar = _bar()
            self._task = self._bar.add_task("", total=run.requests)
            self._bar.start()

    def round_done(self, outcome: RoundRecord) -> None:
        for row in outcome.rows:
            self._metrics.count(row, {})
        now = time.perf_counter()
        if self._bar is not None and now - self._shown > WAIT:
            self._shown = now
            self._bar.update(self._task, description=self.figures(now))

    def request_done(self, request: RequestRecord) -> None:
        if self._bar is not None:
            self._bar.advance(self._task)

    def run_done(self, summary: RunSummary) -> None:
        self.close()

    def close(self) -> None:
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.stop()

    def figures(self, now: float) -> str:
        """``64 tokens in 1.20 s (53.3 tokens/s), tau 2.90, accept rate 0.63``, of the run so far."""
        return summary([self._metrics], now - self._since)


def _bar() -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    # What is printed to standard output must not be moved into standard error, unless both are
    # the terminal: it would then be written into the middle of the bar.
    options: dict[str, Any] = {"redirect_stdout": sys.stdout.isatty(), "transient": True}
    figures = TextColumn("{task.description}", markup=False)
    return Progress(
        BarColumn(), MofNCompleteColumn(), figures, console=console(stderr=True), **options
    )
