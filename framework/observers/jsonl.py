"""A trace: one JSON object per record, each on its way to the disk before the run goes on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..cli.results import line, strict
from ..errors import ConfigError
from ..interfaces import Observer

if TYPE_CHECKING:
    from ..observing import RequestRecord, RoundRecord, RunRecord, RunSummary
    from ..records import RowOutcome
    from .builtin import JsonLinesConfig


class JsonLines(Observer):
    """Lines ``{"record": "round_done", ...}``; the names are those of the records' fields.

    The file is made by the first record. Only a kill can leave its last line unfinished.
    """

    def __init__(self, config: JsonLinesConfig) -> None:
        self.path, self.rounds = _checked(config.path), config.rounds
        self.detailed = config.rounds
        self._file: BinaryIO | None = None

    def run_started(self, run: RunRecord) -> None:
        if self._file is None:
            self._file = self.path.open("xb")
        self._write("run_started", run)

    def round_done(self, outcome: RoundRecord) -> None:
        if self.rounds:
            self._write("round_done", outcome, rows=[_plain(row) for row in outcome.rows])

    def request_done(self, request: RequestRecord) -> None:
        self._write("request_done", request)

    def run_done(self, summary: RunSummary) -> None:
        self._write("run_done", summary)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, moment: str, record: object, **instead: object) -> None:
        assert self._file is not None
        # Not dataclasses.asdict: it copies every list, which costs more than all the rest here.
        self._file.write(line(strict({"record": moment, **vars(record), **instead})).encode())
        self._file.flush()


def _plain(row: RowOutcome) -> dict[str, Any]:
    """Its fields, and those of its detail among them."""
    fields = dict(vars(row))
    detail = fields.pop("detail")
    return fields if detail is None else {**fields, **vars(detail)}


def _checked(text: str) -> Path:
    """Refuses a path at once that the first record could not be written to."""
    path = Path(text).expanduser()
    problem = ""
    if not text:
        problem = "it has to be given"
    elif path.exists():
        problem = "it exists already, and no trace is overwritten; name another file"
    elif not path.parent.is_dir():
        problem = f"there is no folder {str(path.parent)!r}"
    elif not os.access(path.parent, os.W_OK):
        problem = f"the folder {str(path.parent)!r} cannot be written to"
    if problem:
        raise ConfigError(f"observer.jsonl.path={text!r} is not possible: {problem}.")
    return path
