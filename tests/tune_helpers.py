"""A worker whose runs take as long as a test says: races without a process, and with known winners."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from foredraft.framework.bench.hand import Failed

Message = dict[str, Any]
Seconds = Callable[[str], float]


class StagedWorker:
    """Stands in for ``hand.Worker``.

    Args:
        seconds: of a token, by cell id.
        noise: standard deviation of the log of a run's seconds; drawn by cell and prompt.
        fails: ids of cells that fail when they run.
        wrong: ids of cells whose verdict is ``different``.
        interrupt: Ctrl-C at this run; None: never.
    """

    def __init__(
        self,
        seconds: Seconds,
        noise: float = 0.03,
        fails: str = "",
        wrong: str = "",
        interrupt: int | None = None,
    ) -> None:
        self.seconds, self.noise, self.fails, self.wrong = seconds, noise, fails, wrong
        self.interrupt, self.limit = interrupt, 300.0
        self.runs: list[tuple[str, int]] = []

    def ask(self, message: Message) -> Message:
        return {"is": message["do"], **getattr(self, f"do_{message['do']}")(message)}

    def open(self, message: Message) -> None:
        pass

    def close(self) -> None:
        pass

    def do_about(self, message: Message) -> Message:
        return {"threads": 1, "device": "cpu"}

    def do_load(self, message: Message) -> Message:
        return {}

    def do_run(self, message: Message) -> Message:
        if self.interrupt == len(self.runs):
            raise KeyboardInterrupt
        cell, prompts = message["cell"], message["prompts"]
        self.runs.append((cell, prompts[0]))
        if self.fails and self.fails in cell:
            raise Failed("raised", "the drafter tripped over its own feet")
        rng = np.random.default_rng([prompts[0], *cell.encode()])
        tokens = 8
        took = self.seconds(cell) * tokens * float(np.exp(rng.normal(0, self.noise)))
        rows = [{"prompt": index, "ids": list(range(tokens))} for index in prompts]
        found = {"seconds": took, "prefill": 0.0, "time": {}, "rows": rows}
        return {**found, "started": 0.0, "contended": False}

    def do_verdict(self, message: Message) -> Message:
        wrong = self.wrong and self.wrong in message["cell"]
        return {"verdict": "different" if wrong else "same", "says": "as staged"}


def write_prompts(count: int = 48, groups: str = "abc", name: str = "p.jsonl") -> None:
    """Prompts for a table target, the groups in turns."""
    lines = [
        {"prompt": f"{i % 4} {i // 4 % 4} {i // 16 % 4} 1", "group": groups[i % len(groups)]}
        for i in range(count)
    ]
    Path(name).write_text("".join(json.dumps(line) + "\n" for line in lines))
