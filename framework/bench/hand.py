"""The worker process as its supervisor holds it: started, asked, and ended whatever it is at."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable
from typing import IO, Any, cast

HUNG, KILLED = "hung", "killed"
PATIENCE = 600.0
Message = dict[str, Any]


class Failed(Exception):
    """What was asked for cannot be had.

    Args:
        kind: ``raised``, ``memory``, ``hung`` or ``killed``.
        cause: one sentence.
    """

    def __init__(self, kind: str, cause: str) -> None:
        super().__init__(cause)
        self.kind, self.cause = kind, cause


class Worker:
    """The process, asked one thing at a time.

    Args:
        limit: seconds that one run has.
        opening: the message that it starts with, also when it had to be started anew.
    """

    def __init__(self, limit: float, opening: Message | None = None) -> None:
        self.limit, self.opening = limit, opening
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()

    def ask(self, message: Message) -> Message:
        """The answer to a message; starts the process if there is none. What is no run, as loading
        a model, has ``PATIENCE`` seconds.

        Raises:
            Failed: an error there, no answer in time, or the end of the process.
        """
        if self._process is None:
            self._start()
            if self.opening is not None:
                self._exchange(self.opening)
        return self._exchange(message)

    def open(self, message: Message) -> None:
        """Has this message opened with from here on."""
        self.opening = message
        if self._process is not None:
            self._exchange(message)

    def close(self) -> None:
        """Ends the process, whatever it is at."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        self._reader.join()
        for stream in (process.stdin, process.stdout):
            # What it did not read is lost with it.
            with contextlib.suppress(OSError):
                cast(IO[str], stream).close()
        self._complaints.close()

    def _start(self) -> None:
        words = [sys.executable, "-m", f"{__package__}.worker"]
        self._complaints = tempfile.TemporaryFile()
        # A session of its own: Ctrl-C is ours to hear, and the worker dies of our hand. It imports
        # from where we do, wherever we are now.
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            encoding="utf-8",
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._answers = queue.SimpleQueue()
        streams = self._process.stdout, self._answers
        self._reader = threading.Thread(target=_forward, args=streams, daemon=True)
        self._reader.start()

    def _exchange(self, message: Message) -> Message:
        process = self._process
        assert process is not None and process.stdin is not None
        limit = self.limit if message["do"] == "run" else max(PATIENCE, self.limit)
        try:
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            line = self._answers.get(timeout=limit)
        except queue.Empty:
            self.close()
            name = " (bench.limit_s)" if message["do"] == "run" else ""
            words = f"no end after {limit:g} s, the limit{name}; it was stopped"
            raise Failed(HUNG, words) from None
        except OSError:
            line = ""
        if not line:
            cause = _death(process.wait(), self._last_words())
            self.close()
            raise Failed(KILLED, cause)
        answer: Message = json.loads(line)
        if answer["is"] == "failed":
            raise Failed(answer["kind"], answer["cause"])
        return answer

    def _last_words(self) -> str:
        """The last line that it wrote to standard error."""
        self._complaints.seek(0)
        lines = self._complaints.read().decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _forward(stream: Iterable[str] | None, answers: queue.SimpleQueue[str]) -> None:
    """Lines as they come, and an empty one for the end."""
    for line in stream or ():
        answers.put(line)
    answers.put("")


def _death(code: int, last_words: str) -> str:
    """How a process ended, in words."""
    if code >= 0:
        said = f": {last_words}" if last_words else ""
        return f"its process ended by itself with exit code {code}{said}"
    name = signal.Signals(-code).name
    more = "; the memory did not suffice, perhaps" if name == "SIGKILL" else ""
    return f"its process was ended by {name}{more}"
