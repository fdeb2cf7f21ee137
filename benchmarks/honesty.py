"""Whether sweeps tell the truth: plain decoding against itself, and a slowdown that was put there.

    python benchmarks/honesty.py --runs 100 --slowed 50

Each run is a sweep of its own over 48 prompts on a tiny target whose steps take a millisecond or two,
and goes the way of ``foredraft bench`` from the order of its runs to the intervals; only the process that
decodes is this one. Cells: ``plain``, the same once more (``again``), and in the first ``--slowed`` runs a
cell that drafts nothing and waits a tenth of every step's time, so that it is 1/1.1 times as fast.

The interval of ``again`` should hold 1 in 95 of 100 runs, that of the slowed cell should not.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import save
from scipy.stats import beta

from foredraft.framework import Context, GammaPolicy, PolicySession, PolicySpec
from foredraft.framework.bench.hand import Failed, Worker
from foredraft.framework.bench.interval import Interval
from foredraft.framework.bench.paging import summary
from foredraft.framework.bench.store import Store
from foredraft.framework.bench.summary import Summary
from foredraft.framework.bench.sweeping import Bench, begin
from foredraft.framework.bench.worker import Desk
from foredraft.framework.cli.display import bar
from foredraft.framework.plugins import register

AGAIN, GROUPS = (
    "plain,again",
    ("math", "code", "qa", "translation", "summarization", "conversation"),
)


@dataclass
class LaggingConfig:
    """Drafts nothing, and waits.

    Args:
        share: of the time of every step.
    """

    share: float = 0.1


class Lagging(GammaPolicy):
    """Waits before each step for a share of what the one before took, also across answers."""

    def __init__(self, config: LaggingConfig) -> None:
        self.share, self.step = config.share, 0.0

    def start(self, context: Context) -> LaggingSession:
        return LaggingSession(self, context)


class LaggingSession(PolicySession):
    """Times steps from the end of one wait to the begin of the next, by the thread's own clock: a wait on
    the wall's clock is longer than asked where other work takes the core meanwhile."""

    def __init__(self, policy: Lagging, context: Context) -> None:
        super().__init__(context)
        self.policy, self.since = policy, 0.0

    def gammas(self) -> list[int]:
        now = time.thread_time()
        if self.since:
            self.policy.step = now - self.since
        while time.thread_time() < now + self.policy.share * self.policy.step:
            pass
        self.since = time.thread_time()
        return [0] * self.context.rows


class Here(Worker):
    """The desk of a worker's process, in this one; ``shared`` has all times count."""

    def __init__(self, shared: bool) -> None:
        super().__init__(limit=300.0)
        self.desk, self.shared, self.contended = Desk(), shared, list[bool]()

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        answer = self.desk.answer(message)
        if answer["is"] == "failed":
            raise Failed(answer["kind"], answer["cause"])
        if answer["is"] == "run":
            self.contended.append(answer["contended"])
            answer["contended"] &= not self.shared
        return answer

    def open(self, message: dict[str, Any]) -> None:
        self.ask(message)


@dataclass(frozen=True)
class Found:
    """What one sweep said of one cell.

    Args:
        alone, family: its speed-up, with the interval that holds for it alone, and for the grid.
        lag: correlation of the log-ratios of neighbouring prompts.
    """

    alone: Interval
    family: Interval
    lag: float


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--slowed", type=int, default=50, help="runs that have the slow cell, too")
    parser.add_argument("--prompts", type=int, default=48)
    parser.add_argument("--tokens", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument(
        "--shared", action="store_true", help="times of runs that shared the machine count, too"
    )
    parser.add_argument("--name", default="honesty", help="of the file of results")
    chosen = parser.parse_args()
    register(PolicySpec("lagging", Lagging, LaggingConfig, "waits", contract=1, repeatable=False))
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        worker = Here(chosen.shared)
        found = measured(Path(folder), chosen, worker)
    settings = {name: getattr(chosen, name) for name in ("prompts", "tokens", "repeats")}
    spent = {"seconds": time.perf_counter() - begun, "seconds of processor": time.process_time()}
    load = {"share of runs beside other work": float(np.mean(worker.contended))}
    figures = {name: figured(cells) for name, cells in found.items() if cells}
    save(chosen.name, {**settings, **spent, **load, **figures})


def measured(folder: Path, chosen: argparse.Namespace, worker: Worker) -> dict[str, list[Found]]:
    """What all sweeps said of ``again`` and of the slow cell."""
    file = folder / "prompts.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in prompts(chosen.prompts)), "utf-8")
    words = ["target=table", "sampling.temperature=0", f"max_new_tokens={chosen.tokens}",
             "task=file", f"task.file={file}", f"bench.repeats={chosen.repeats}",
             "bench.baselines=[plain,again]", "drafter=prompt_lookup", "policy=lagging"]  # fmt: skip
    with begin([*words, f"bench.dir={folder / 'first'}"], worker).store as store:
        manifest = {**store.manifest, "prompts": store.prompts}
    found: dict[str, list[Found]] = {"again": [], "slowed": []}
    with bar("sweeps", chosen.runs) as advance:
        for run in range(chosen.runs):
            slow = run < chosen.slowed
            said = swept(folder / str(run), manifest, run, slow, worker)
            found["again"].append(told(said, AGAIN))
            if slow:
                found["slowed"].append(told(said, said.cells[-1].id))
            advance(1)
    return found


def prompts(count: int) -> list[dict[str, Any]]:
    """Of ids, in six groups."""
    draw = random.Random(0)
    return [
        {"prompt": " ".join(str(draw.randrange(8)) for _ in range(12)), "group": GROUPS[i % 6]}
        for i in range(count)
    ]


def swept(
    folder: Path, manifest: Mapping[str, Any], seed: int, slow: bool, worker: Worker
) -> Summary:
    """One sweep, its runs in an order of their own."""
    cells = [cell for cell in manifest["cells"] if slow or cell["kind"] == "plain"]
    options = {**manifest["options"], "seed": seed}
    with Store.create(folder, {**manifest, "options": options, "cells": cells}) as store:
        bench = Bench(store, worker)
        bench.measure()
        _check_answers(store)
        return summary(store)


def _check_answers(store: Store) -> None:
    """All cells say the same, or a time would be one of other work."""
    said: dict[int, list[int]] = {}
    for record in store.records():
        for row in record["rows"]:
            assert said.setdefault(row["prompt"], row["ids"]) == row["ids"], row["prompt"]
    assert not store.failures()


def told(said: Summary, name: str) -> Found:
    """One cell of a sweep."""
    cell = said[name]
    logs = np.log([x for x in cell.by_unit if x is not None])
    lag = float(np.corrcoef(logs[:-1], logs[1:])[0, 1]) if len(logs) > 3 else math.nan
    return Found(cell.speedup, cell.family, lag)


def figured(cells: Sequence[Found]) -> dict[str, Any]:
    """How often the interval says that there is a difference, and how far off the estimates are."""
    alone = [cell.alone for cell in cells]
    values = [one.value for one in alone if one.value is not None]
    widths = [math.log(one.high / one.low) / 2 for one in alone if one.low and one.high]
    return {
        "runs": len(cells),
        "holds 1": counted([one.differs() == 0 for one in alone]),
        "below 1": counted([one.differs() < 0 for one in alone]),
        "above 1": counted([one.differs() > 0 for one in alone]),
        "holds 1, for all cells together": counted([cell.family.differs() == 0 for cell in cells]),
        "estimate": quartiles(values),
        "mean": statistics.geometric_mean(values) if values else None,
        "standard deviation of its log": float(np.std(np.log(values))) if values else None,
        "half width of the interval, log": quartiles(widths),
        "prompts with a time": quartiles([one.units for one in alone]),
        "correlation of neighbours": quartiles([c.lag for c in cells if math.isfinite(c.lag)]),
    }


def counted(hits: Sequence[bool]) -> dict[str, Any]:
    """A count, and the interval of Clopper and Pearson 1934 for its chance."""
    n, k = len(hits), sum(hits)
    low = float(beta.ppf(0.025, k, n - k + 1)) if k else 0.0
    high = float(beta.ppf(0.975, k + 1, n - k)) if k < n else 1.0
    return {"count": k, "low": round(low, 4), "high": round(high, 4)}


def quartiles(values: Sequence[float]) -> dict[str, float]:
    """Least, quartiles, most; nothing of nothing."""
    if not values:
        return {}
    points = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist()
    return dict(zip(("least", "low", "median", "high", "most"), points, strict=True))


if __name__ == "__main__":
    main()
