"""``foredraft record``: what a drafter would draft at every place of the target's answers."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .display import bar
from .prompts import read_items
from .walk_arguments import batches, check_walk, requests, take

if TYPE_CHECKING:
    from ..engine import Engine
    from ..traces import DenseTrace
    from .prompts import Item

HELP = """\
usage: foredraft record drafter=NAME out=FILE.npz prompt=TEXT|prompts=FILE [most=8] [...]

Answers prompts a token at a time, and notes at every place what the drafter would have drafted,
whether it would have stood, and how sure the drafter was: dense traces, over which foredraft replay
runs any policy without a model. Texts are greedy, or sampled with the noise that drafter and target
share, as with verifier=coupled.

  out=FILE      where the traces go
  most=N        tokens drafted at every place, 1 to 64 (default 8)
  prompt=, prompts=, target=, drafter=, sampling.*, max_new_tokens=, runtime.*, seed=
                as for foredraft generate; of a conversation, the first turn is answered"""
KEYS = ("most",)
MOST = 8


def record(argv: list[str]) -> int:
    """Runs the command."""
    if "-h" in argv or "--help" in argv:
        print(HELP)
        return 0
    words = take("record", argv, KEYS)
    most, out = words.whole("most", MOST, 1, 64), words.file("out")
    if out is None:
        raise ConfigError("foredraft record needs out=FILE.npz, where the traces go.")
    config = words.config()
    check_walk(config)
    items = read_items(config)

    from ..api import engine_from
    from ..traces import write_traces

    traces = recorded(engine_from(config), items, most)
    write_traces(out, traces)
    _report(traces, out)
    return 0


def recorded(engine: Engine, items: Sequence[Item], most: int) -> list[DenseTrace]:
    """Dense traces of all prompts, with a progress bar."""
    from ..requests import Answer
    from ..traces.recording import record as walk_texts

    asked = list(zip(items, requests(engine, items), strict=True))
    found: list[DenseTrace] = []
    with bar("recording", len(asked)) as advance:
        for batch in batches(asked, engine.defaults.batch_size):
            answers = [Answer(request) for _, request in batch]
            abouts = [item.about for item, _ in batch]
            found += walk_texts(engine.parts, answers, most, abouts)
            advance(len(batch))
    return found


def _report(traces: Sequence[DenseTrace], out: Path) -> None:
    places = sum(trace.places for trace in traces)
    drafted = sum(int((trace.lengths > 0).sum()) for trace in traces)
    first = sum(int((trace.runs > 0).sum()) for trace in traces)
    stood = f", of which {first / drafted:.0%} stand" if drafted else ""
    print(f"{places:,} places of {len(traces):,} answers")
    print(f"a first token drafted at {drafted / places:.0%} of them{stood}")
    print(f"{out}: {out.stat().st_size / 1024:,.0f} KiB")
    print(f"use it: foredraft replay traces={shlex.quote(str(out))} policy=heuristic")
