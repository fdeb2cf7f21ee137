"""Answers a run's prompts in batches and hands every finished answer on at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ..engine import Engine
from ..errors import InputError
from ..listening import OpenRun
from ..metrics import Metrics
from ..records import RowOutcome
from ..requests import Answer
from ..text import TextStream, shown_ids
from . import results
from .conversation import Conversation
from .display import write
from .outfile import OutFile


class Runner:
    """One run: an engine and where its answers go.

    Args:
        engine: built from the config.
        config: what ``results.kept_config`` gave.
        lossless: whether the verifier says that the output law is the target's.
        as_json: print objects instead of text.
        out: a file for the objects, in place of standard output.
    """

    def __init__(
        self,
        engine: Engine,
        config: dict[str, Any],
        lossless: bool,
        as_json: bool,
        out: OutFile | None,
    ) -> None:
        self.engine, self.config, self.lossless = engine, config, lossless
        self.as_json, self.out = as_json, out
        self.observed: OpenRun | None = None
        self.metrics: list[Metrics] = []
        self.seconds, self.finish_reason = 0.0, ""
        self.text = not as_json and out is None
        if self.text and engine.tokenizer is None:
            raise InputError("this target has no tokenizer to make text with; use output=json.")

    def run(self, conversations: Sequence[Conversation]) -> None:
        """Answers every turn of every conversation that is not answered yet."""
        due = [conversation for conversation in conversations if not conversation.done]
        for conversation in due:
            conversation.ask()  # one that cannot be run is refused before any is
        with self.engine.observed(sum(one.item.turns - one.turn for one in due)) as self.observed:
            self._answer(due)

    def _answer(self, due: list[Conversation]) -> None:
        size = self.engine.defaults.batch_size
        for begin in range(0, len(due), size):
            live = due[begin : begin + size]
            while live:
                self._turn(live)
                live = [conversation for conversation in live if not conversation.done]

    def _turn(self, live: list[Conversation]) -> None:
        """The turn that is due of each conversation, as one batch."""
        batch, started = Batch(self, live), time.perf_counter()
        try:
            batch.decode()
        finally:
            self.seconds += time.perf_counter() - started
            batch.print_finished()

    def keep(self, conversation: Conversation, answer: Answer) -> dict[str, Any]:
        """Books a finished answer and writes it to the file, if there is one."""
        turn = conversation.hear(answer)
        value = results.result(
            conversation.item, turn, answer, self.engine.tokenizer, self.lossless, self.config
        )
        if self.out is not None:
            self.out.append(value)
        self.metrics.append(answer.metrics)
        self.finish_reason = str(answer.finish_reason)
        return value


class Batch:
    """Rows that are decoded together, and the texts that come out of them."""

    def __init__(self, run: Runner, live: list[Conversation]) -> None:
        self.run, self.tokenizer = run, run.engine.tokenizer
        asked = [(conversation, conversation.ask()) for conversation in live]
        self.rows = {answer.request.index: (c, answer) for c, answer in asked}
        self.finished: list[tuple[int, str]] = []
        self.pieces = TextStream(self.tokenizer) if run.text and len(live) == 1 else None
        self.streamed = False

    def decode(self) -> None:
        """Runs the rows to their ends."""
        for index, (_, answer) in self.rows.items():
            if answer.finish_reason is not None:
                self._skip(answer)
                self._finish(index)
        running = [answer for _, answer in self.rows.values() if answer.finish_reason is None]
        for outcome in self.run.engine.run(running) if running else ():
            for row in outcome.rows:
                self._hear(row)

    def print_finished(self) -> None:
        """Prints what has finished, in the order of the prompts; also when the batch broke off."""
        if self.streamed:
            write("\n")
        elif self.run.out is None:
            write("".join(text for _, text in sorted(self.finished)))

    def _skip(self, answer: Answer) -> None:
        """Observers hear of every answer, also of one that needed no round."""
        if self.run.observed is not None:
            self.run.observed.ended(answer)

    def _hear(self, row: RowOutcome) -> None:
        if self.pieces is not None:
            ids = shown_ids(row.emitted, row.finish, self.tokenizer)
            write(self.pieces.feed(ids, last=row.finish is not None))
            self.streamed = True
        if row.finish is not None:
            self._finish(row.request)

    def _finish(self, index: int) -> None:
        value = self.run.keep(*self.rows[index])
        self.finished.append((index, self._printed(value) if self.run.out is None else ""))

    def _printed(self, value: dict[str, Any]) -> str:
        if self.run.as_json:
            return results.line(value)
        ids, reason = value["token_ids"], value["finish_reason"]
        return str(self.tokenizer.decode(shown_ids(ids, reason, self.tokenizer))) + "\n"
