"""The process that decodes for a sweep: tasks as JSON lines on standard input, answers on standard
output. It keeps nothing: what it dies of costs one run.

``python -m foredraft.framework.bench.worker`` is started by ``supervisor.py``.

| message | answer |
|---|---|
| ``{"do": "about"}`` | ``{"is": "about", "threads", "device"}`` |
| ``{"do": "open", "cells", "prompts", "warmup", "assistant", "plugins"}`` | ``{"is": "open"}`` |
| ``{"do": "load", "cell"}`` | ``{"is": "load"}``, when it is built and warm |
| ``{"do": "run", "cell", "prompts"}`` | ``{"is": "run", ...}``: what a record holds |
| ``{"do": "verdict", "cell", "pairs", "rounds"}`` | ``{"is": "verdict", "verdict", "says"}`` |
| ``{"do": "trace", "cell", "prompts"}`` | ``{"is": "trace", "answers"}``, see ``taking_down.py`` |

What raises is answered with ``{"is": "failed", "kind", "cause"}``.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, TextIO

from ..cli.display import one_line
from ..errors import ForedraftError

RAISED, MEMORY = "raised", "memory"
Message = dict[str, Any]


def main() -> None:
    """Serves until standard input ends, which is also how the supervisor's own death is noticed."""
    answers = _claimed_output()
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    desk = Desk()
    for message in _messages():
        print(json.dumps(desk.answer(message)), file=answers, flush=True)


def _claimed_output() -> TextIO:
    """Standard output for answers alone: what libraries print goes to standard error."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def _messages() -> Iterator[Message]:
    """Messages as they come. A thread reads, so that the end of input ends a run that hangs, too."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            waiting.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield json.loads(waiting.get())


class Desk:
    """Answers one message after the other."""

    def __init__(self) -> None:
        self.sides: Any = None

    def answer(self, message: Message) -> Message:
        """What a message asks for, or why it cannot be had."""
        try:
            return {"is": message["do"], **getattr(self, f"do_{message['do']}")(message)}
        except Exception as error:
            return {"is": "failed", "kind": kind_of(error), "cause": cause_of(error)}

    def do_about(self, message: Message) -> Message:
        """What it computes with."""
        import torch

        cuda = torch.cuda.is_available()
        device = torch.cuda.get_device_name() if cuda else "cpu"
        return {"threads": torch.get_num_threads(), "device": device}

    def do_open(self, message: Message) -> Message:
        """Takes in the sweep. Nothing is loaded yet."""
        from ..plugins import register_file
        from .sides import Sides

        for path in message["plugins"]:
            register_file(path)
        cells = {cell["id"]: cell for cell in message["cells"]}
        prompts = {prompt["index"]: prompt for prompt in message["prompts"]}
        self.sides = Sides(cells, prompts, message["warmup"], message["assistant"])
        return {}

    def do_load(self, message: Message) -> Message:
        """Makes what a cell needs, and warms it up."""
        self.sides.prepare(message["cell"])
        return {}

    def do_run(self, message: Message) -> Message:
        """One cell over one unit."""
        self.sides.prepare(message["cell"])
        load, started = Load(), time.time()
        done = self.sides.run(message["cell"], message["prompts"])
        return {**done, "started": started, "contended": load.contended()}

    def do_verdict(self, message: Message) -> Message:
        """Whether a cell said what plain decoding says."""
        from .lossless import verdict

        engine, prompts = self.sides.engine(message["cell"]), self.sides.prompts
        contents = {index: prompt["content"] for index, prompt in prompts.items()}
        return verdict(engine, contents, message["pairs"], message["rounds"])

    def do_trace(self, message: Message) -> Message:
        """Some answers of a cell, round by round."""
        from .taking_down import taken_down

        engine, prompts = self.sides.engine(message["cell"]), self.sides.prompts
        contents = {index: prompts[index]["content"] for index in message["prompts"]}
        return {"answers": [taken_down(engine, i, text) for i, text in contents.items()]}


class Load:
    """Whether others took the cores that a run wanted, between its begin and its end."""

    SHARE = 0.25  # of a core

    def __init__(self) -> None:
        self.begin = self._read()

    def contended(self) -> bool:
        """Whether what others took, and our threads, were more than there are cores."""
        import psutil
        import torch

        wall, busy, own = (b - a for a, b in zip(self.begin, self._read(), strict=True))
        spare = (psutil.cpu_count() or 1) - torch.get_num_threads()
        return bool(wall > 0 and (busy - own) / wall > max(spare, 0) + self.SHARE)

    @staticmethod
    def _read() -> tuple[float, float, float]:
        import psutil

        every, mine = psutil.cpu_times(), os.times()
        busy = sum(every) - every.idle - getattr(every, "iowait", 0.0)
        return time.perf_counter(), busy, mine.user + mine.system


def kind_of(error: Exception) -> str:
    """``memory`` where there was not enough, else ``raised``."""
    cause: BaseException | None = error
    while cause is not None:
        scarce = any(words in str(cause).lower() for words in ("out of memory", "enough memory"))
        if scarce or isinstance(cause, MemoryError):
            return MEMORY
        cause = cause.__cause__ or cause.__context__
    return RAISED


def cause_of(error: Exception) -> str:
    """An error as one sentence; one that nobody foresaw with its type."""
    text = one_line(str(error))
    return text if isinstance(error, ForedraftError) else f"{type(error).__name__}: {text}"


if __name__ == "__main__":
    main()
