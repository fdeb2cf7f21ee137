"""Every draft-length policy on a real model, live: tokens per second over plain decoding and over fixed
gammas, each from runs that took turns.

    python benchmarks/live_policies.py --prompts question.jsonl [--cells ngram:qa:1 ...] [--repeats 4]

A cell is a drafter, a task group of a Spec-Bench file, and a batch size. All sides of a cell decode the
same prompts, one after the other, in an order that turns round with every repeat; plain decoding is there
twice, and the second over the first is the noise floor. A cell's best fixed gamma is chosen on one half
of the repeats and compared on the other. Results are filed after every cell; cells that are there are
left alone.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import RESULTS, save, with_drafter
from policies import DRAFTERS, GROUPS, items_of, policies
from scipy.stats import gmean, t

from foredraft.framework import Engine, load
from foredraft.framework.bench.sides import decoded as timed
from foredraft.framework.replaying.choices import choose

NAME = "policies-live"
PLAIN, AGAIN = "plain", "plain again"
CELLS = [
    *(f"{drafter}:{group}:1" for i, drafter in enumerate(DRAFTERS) for group in GROUPS[i % 2 :: 2]),
    *(f"{drafter}:{GROUPS[(i + 2) % 6]}:4" for i, drafter in enumerate(DRAFTERS)),
    *(f"{drafter}:{GROUPS[(i + 4) % 6]}:8" for i, drafter in enumerate(DRAFTERS)),
]


@dataclass
class Timed:
    """One batch, decoded: seconds after the prompts were taken in, and what came out."""

    seconds: float
    ids: list[list[int]]

    @property
    def per_token(self) -> float:
        """Seconds per emitted token."""
        return self.seconds / sum(map(len, self.ids))


def decoded(engine: Engine, batch: Sequence[str], tokens: int) -> Timed:
    """Answers a batch of prompts."""
    found = timed(engine, batch, range(len(batch)), max_new_tokens=tokens)
    return Timed(found["seconds"] - found["prefill"], [row["ids"] for row in found["rows"]])


def sides(engine: Engine, gammas: Sequence[int]) -> dict[str, Engine]:
    """Plain decoding twice, fixed gammas, and every policy that can serve the drafter."""
    chosen = {PLAIN: choose("fixed", {"gamma": 0}), AGAIN: choose("fixed", {"gamma": 0})}
    chosen |= {f"fixed {gamma}": choose("fixed", {"gamma": gamma}) for gamma in gammas}
    kind, found = engine.parts.drafter.kind, {}
    for name, choice in (chosen | {one.name: one for one in policies(live=True)}).items():
        if not (choice.stops and kind.drawn == "deterministic"):
            found[name] = Engine(replace(engine.parts, policy=choice.policy), engine.defaults)
    return found


def measured(
    engines: dict[str, Engine], batches: Sequence[Sequence[str]], given: argparse.Namespace
) -> dict[str, list[list[Timed]]]:
    """``[repeat][batch]`` by side. A short run of each comes first, uncounted."""
    for engine in engines.values():
        decoded(engine, batches[0], 8)
    runs: dict[str, list[list[Timed]]] = {name: [] for name in engines}
    for repeat in range(given.repeats):
        for name in list(engines)[:: 1 if repeat % 2 == 0 else -1]:
            runs[name].append([decoded(engines[name], batch, given.tokens) for batch in batches])
    return runs


def cell(name: str, drafter: Engine, given: argparse.Namespace) -> dict[str, Any]:
    """All sides of one cell, compared."""
    group, size = name.split(":")[1], int(name.split(":")[2])
    count = max(given.texts, size)
    texts = [item.content for item in items_of(given.prompts, group, count, given.most_words)]
    batches = [texts[at : at + size] for at in range(0, len(texts), size)]
    runs = measured(sides(drafter, given.gammas), batches, given)
    best = best_fixed(runs)
    rows = {}
    for side in runs:
        pairs = [(side, PLAIN, range(given.repeats))]
        rows[side] = {"plain": versus(runs, pairs)}
        if side not in (PLAIN, AGAIN) and not side.startswith("fixed"):
            halves = [(side, rival, half) for rival, half in best]
            rows[side]["best fixed"] = versus(runs, halves)
        rows[side]["same ids"] = all(
            mine.ids == other.ids for mine, other in zip(runs[side][0], runs[PLAIN][0], strict=True)
        )
    return {"cell": name, "prompts": len(texts), "threads": torch.get_num_threads(),
            "tokens": given.tokens, "seconds": "without the prefill",
            "best fixed": [rival for rival, _ in best],
            "plain tokens/s": 1 / float(np.median(per_token(runs[PLAIN], range(given.repeats)))),
            "sides": rows}  # fmt: skip


def best_fixed(runs: dict[str, list[list[Timed]]]) -> list[tuple[str, range]]:
    """For each half of the repeats the fixed gamma that was best in the other half."""
    repeats = len(runs[PLAIN])
    halves = [range(half, repeats, 2) for half in (0, 1)]
    fixed = [name for name in runs if name == PLAIN or name.startswith("fixed")]

    def slow(name: str, half: range) -> float:
        return float(per_token(runs[name], half).mean())

    return [(min(fixed, key=lambda n, h=halves[1 - i]: slow(n, h)), halves[i]) for i in (0, 1)]


def per_token(runs: list[list[Timed]], repeats: range) -> np.ndarray[Any, Any]:
    """``[repeats]``, seconds per token over all batches."""
    return np.array(
        [
            sum(one.seconds for one in runs[r]) / sum(len(i) for one in runs[r] for i in one.ids)
            for r in repeats
        ]
    )


def versus(
    runs: dict[str, list[list[Timed]]], pairs: Sequence[tuple[str, str, range]]
) -> dict[str, float]:
    """Tokens per second of a side over a rival's, with a t interval on the logarithm over repeats."""
    logs = np.concatenate(
        [np.log(per_token(runs[b], r) / per_token(runs[a], r)) for a, b, r in pairs]
    )
    wide = t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    low, middle, high = np.exp([logs.mean() - wide, logs.mean(), logs.mean() + wide])
    return {"ratio": float(middle), "low": float(low), "upper": float(high)}


def together(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Geometric means over cells, of every side."""
    rows = []
    for name in dict.fromkeys(side for one in cells for side in one["sides"]):
        mine = [one["sides"][name] for one in cells if name in one["sides"]]
        row = {"side": name, "cells": len(mine)}
        for rival in ("plain", "best fixed"):
            ratios = [one[rival]["ratio"] for one in mine if rival in one]
            if ratios:
                row |= {f"x {rival}": float(gmean(ratios)), f"least x {rival}": min(ratios)}
                row |= {f"least upper x {rival}": min(o[rival]["upper"] for o in mine)}
        rows.append(row)
    return rows


def cell_name(text: str) -> str:
    """``DRAFTER:GROUP:BATCH``, of which all are known before the first cell runs."""
    drafter, group, size = (text.split(":") + ["", ""])[:3]
    if text.count(":") != 2 or drafter not in DRAFTERS or group not in GROUPS or not size.isdigit():
        raise argparse.ArgumentTypeError(
            f"{text}: a cell is DRAFTER:GROUP:BATCH with a drafter of {', '.join(DRAFTERS)} and a group of "
            f"{', '.join(GROUPS)}"
        )
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument(
        "--cells", nargs="+", type=cell_name, default=CELLS, metavar="DRAFTER:GROUP:BATCH"
    )
    parser.add_argument("--gammas", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--texts", type=int, default=2, help="prompts of a cell, at batch 1")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--most-words", type=int, default=520, help="longest prompt, in words")
    given = parser.parse_args()
    path = RESULTS / f"{NAME}.json"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"] if path.exists() else []
    plain = load("drafter=none", "target=smollm2", "target.kernels=tuned")
    engines: dict[str, Engine] = {}
    for name in given.cells:
        drafter = name.split(":")[0]
        if any(one["cell"] == name for one in cells):
            continue
        if drafter not in engines:
            engines[drafter] = with_drafter(plain, f"drafter={drafter}")
        began = time.perf_counter()
        cells.append(cell(name, engines[drafter], given))
        save(NAME, {"cells": cells, "together": together(cells)}, show=False)
        print(name, f"{time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    for row in together(cells):
        print(row)


if __name__ == "__main__":
    main()
