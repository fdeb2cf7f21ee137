"""``foredraft bench`` without a second process: the worker's desk answers in this one, which starts in no
time and can be disturbed between any two messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foredraft.framework.bench.hand import Failed, Worker
from foredraft.framework.bench.store import Store
from foredraft.framework.bench.worker import Desk

Message = dict[str, Any]
PROMPTS = ["0 1 2", "2 1", "3 1"]
WORDS = (
    "target=table", "max_new_tokens=8", "task=file", "task.file=p.jsonl", "bench.repeats=1",
    "bench.warmup=0", "grid.drafter=[prompt_lookup,ngram]",
)  # fmt: skip


class Inline(Worker):
    """Answers at once. ``before`` hears each message, and may raise or break something; ``heard`` is
    what was asked."""

    before: Callable[[Message], None] = staticmethod(lambda message: None)
    heard: list[Message] = []

    def ask(self, message: Message) -> Message:
        if not hasattr(self, "desk"):
            self.desk = Desk()
            if self.opening is not None and message["do"] != "open":
                self.ask(self.opening)
        type(self).before(message)
        self.heard.append(message)
        answer: Message = json.loads(json.dumps(self.desk.answer(json.loads(json.dumps(message)))))
        if answer["is"] == "failed":
            raise Failed(answer["kind"], answer["cause"])
        return answer

    def open(self, message: Message) -> None:
        self.opening = message
        if hasattr(self, "desk"):
            self.ask(message)

    def close(self) -> None:
        self.__dict__.pop("desk", None)


def at(kind: str, number: int, do: Callable[[], object]) -> Callable[[Message], None]:
    """Does something at the so-manyth message of a kind, from 1."""
    seen = 0

    def before(message: Message) -> None:
        nonlocal seen
        seen += message["do"] == kind
        if message["do"] == kind and seen == number:
            do()

    return before


def write_prompts(path: str = "p.jsonl") -> None:
    lines = [{"prompt": text, "group": "ab"[i % 2]} for i, text in enumerate(PROMPTS)]
    Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines))


def kept(folder: str | Path) -> dict[tuple[str, int, int], Any]:
    """What every run said and counted, but not how long it took; none is there twice."""
    found: dict[tuple[str, int, int], Any] = {}
    for record in Store.open(folder).records():
        key = record["cell"], record["unit"], record["repeat"]
        assert key not in found
        found[key] = record["rows"]
    return found
