"""Who tells observers: the runs of an engine, round by round, with observers' faults kept away.

Without observers nothing of this is in the loop, and no record is made.
"""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from .errors import ConfigError
from .interfaces import Observer
from .metrics import Metrics, total
from .observing import (
    CLOSED,
    DONE,
    FAILED,
    INTERRUPTED,
    RequestRecord,
    RoundRecord,
    RunRecord,
    RunSummary,
)
from .records import Round
from .requests import Answer
from .stopping import CANCELLED


class Listeners:
    """The observers of an engine, and the run that they are hearing.

    Args:
        observers: who listens.
        record: makes the record of a run of so many requests.
        has_text: whether answers are decoded.
    """

    def __init__(
        self,
        observers: Sequence[Observer],
        record: Callable[[int | None], RunRecord],
        has_text: bool,
    ) -> None:
        self.observers, self.record, self.has_text = _checked(observers), record, has_text
        self.run: OpenRun | None = None

    def follow(self, answers: Sequence[Answer], rounds: Iterator[Round]) -> Iterator[Round]:
        """A batch: a part of the open run, or else a run of its own."""
        if self.run is not None:
            yield from self.run.follow(answers, rounds)
            return
        with self._open(len(answers)) as run:
            yield from run.follow(answers, rounds)

    @contextmanager
    def opened(self, requests: int | None) -> Iterator[OpenRun | None]:
        """One run of all batches in the block; inside another, a part of it."""
        if self.run is not None or not self.observers:
            yield self.run
            return
        with self._open(requests) as self.run:
            try:
                yield self.run
            finally:
                self.run = None

    @contextmanager
    def _open(self, requests: int | None) -> Iterator[OpenRun]:
        run = OpenRun(self.observers, self.record(requests), self.has_text)
        try:
            run.start()
            yield run
        except BaseException as error:
            run.finish(error)
            raise
        run.finish(None)


class OpenRun:
    """A run that observers are listening to.

    Args:
        observers: who listens.
        record: what they are told first.
        has_text: whether answers are decoded.
    """

    def __init__(self, observers: Sequence[Observer], record: RunRecord, has_text: bool) -> None:
        self.record, self.has_text, self._listening = record, has_text, list(observers)
        self._batches = self._begun = self._ended = 0
        self._metrics, self._since = Metrics(), time.perf_counter()

    def start(self) -> None:
        """Tells that the run begins."""
        self._tell("run_started", self.record)
        self._since = time.perf_counter()  # a tracker's way of beginning is not the run's time

    def follow(self, answers: Sequence[Answer], rounds: Iterator[Round]) -> Iterator[Round]:
        """Passes a batch's rounds on, each after the observers have heard of it."""
        batch, waiting = self._batches, self._admit(answers)
        self._batches += 1
        try:
            for outcome in rounds:
                self._tell_round(batch, outcome, waiting)
                waiting = self._tell_ended(waiting)
                yield outcome
            self._tell_ended(waiting)  # cancelled ones end between rounds
        finally:
            self._add(answers)

    def ended(self, answer: Answer) -> None:
        """An answer that ended without a round."""
        self._tell_ended(self._admit([answer]))
        self._add([answer])

    def finish(self, error: BaseException | None) -> None:
        """Ends the run, by ``error`` or by itself."""
        ended = _end(error)
        text = f"{type(error).__name__}: {_flat(error)}" if error and ended == FAILED else ""
        done, left = self._ended, self._begun - self._ended
        seconds = time.perf_counter() - self._since
        metrics = self._metrics.as_dict()
        summary = RunSummary(self.record.run, ended, text, done, left, metrics, seconds)
        self._tell("run_done", summary)

    def _admit(self, answers: Sequence[Answer]) -> list[tuple[int, Answer]]:
        first, self._begun = self._begun, self._begun + len(answers)
        return list(enumerate(answers, first))

    def _add(self, answers: Sequence[Answer]) -> None:
        self._metrics = total([self._metrics, *(answer.metrics for answer in answers)])

    def _tell_round(self, batch: int, outcome: Round, waiting: list[tuple[int, Answer]]) -> None:
        # Whoever was cancelled left before the round and has no row in it.
        live = (number for number, answer in waiting if answer.finish_reason != CANCELLED)
        seconds, rows = dict(outcome.seconds), tuple(outcome.rows)
        run, index = self.record.run, outcome.index
        self._tell("round_done", RoundRecord(run, batch, index, tuple(live), rows, seconds))

    def _tell_ended(self, waiting: list[tuple[int, Answer]]) -> list[tuple[int, Answer]]:
        for number, answer in waiting:
            if answer.finish_reason is not None:
                self._ended += 1
                self._tell("request_done", self._request(number, answer))
        return [pair for pair in waiting if pair[1].finish_reason is None]

    def _request(self, number: int, answer: Answer) -> RequestRecord:
        request = answer.request
        return RequestRecord(
            run=self.record.run,
            number=number,
            index=request.index,
            sample=request.sample,
            seed=request.seed,
            prompt_tokens=len(request.prompt),
            token_ids=tuple(answer.token_ids),
            text=answer.text if self.has_text else None,
            finish_reason=str(answer.finish_reason),
            metrics=answer.metrics.as_dict(),
        )

    def _tell(self, moment: str, record: object) -> None:
        for observer in list(self._listening):
            fault = _attempt(getattr(observer, moment), record)
            if fault is not None:
                self._listening.remove(observer)
                _warn(observer, moment, fault, " and hears no more of this run")


def close_all(observers: Sequence[Observer]) -> None:
    """Closes every one, whatever another does."""
    with ExitStack() as stack:
        for observer in reversed(observers):
            stack.callback(_close, observer)


def _close(observer: Observer) -> None:
    fault = _attempt(observer.close)
    if fault is not None:
        _warn(observer, "close", fault, "")


def _attempt(call: Callable[..., object], *arguments: object) -> BaseException | None:
    try:
        # Standard output belongs to the answers.
        with contextlib.redirect_stdout(sys.stderr):
            call(*arguments)
    except (Exception, SystemExit) as error:
        return error
    return None


def _warn(observer: Observer, moment: str, fault: BaseException, rest: str) -> None:
    name = observer.name or type(observer).__name__
    text = f"observer {name!r} failed in {moment}{rest}: {type(fault).__name__}: {_flat(fault)}."
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def _flat(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _end(error: BaseException | None) -> str:
    if error is None:
        return DONE
    if isinstance(error, GeneratorExit):
        return CLOSED
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED


def _checked(observers: Sequence[Observer]) -> tuple[Observer, ...]:
    for observer in observers:
        if not isinstance(observer, Observer):
            raise ConfigError(
                f"the observer {observer!r} is not possible; give Observer objects, or list names "
                "in the config: 'observers=[jsonl]'."
            )
    return tuple(observers)
