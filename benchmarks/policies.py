"""Every draft-length policy on a real model, by dense replay: who gains what over plain decoding and
over fixed gammas.

    python benchmarks/policies.py record --prompts question.jsonl [--groups ...] [--most-words 300]
    python benchmarks/policies.py times [--drafters ...]
    python benchmarks/policies.py grid [--batches 1 4 8]

``record`` walks SmolLM2's greedy answers to prompts of the six task groups of a Spec-Bench file, with a
draft at every place (``foredraft record``); the traces stay in ``--folder``. ``times`` measures what
steps cost on this machine, alone. ``grid`` replays every policy, and every fixed gamma, over the
traces with those times: the best fixed gamma of a cell (task group, drafter, batch) is chosen on one
half of its texts and compared on the other.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import HERE, save, with_drafter
from scipy.stats import gmean

from foredraft.framework import load
from foredraft.framework.cli.prompts import Item
from foredraft.framework.cli.record import recorded
from foredraft.framework.errors import ConfigError
from foredraft.framework.plugins import registry
from foredraft.framework.replaying import replay
from foredraft.framework.replaying.choices import Choice, choose
from foredraft.framework.replaying.result import Replay
from foredraft.framework.times.profiling import Plan, measure
from foredraft.framework.times.table import TimeTable
from foredraft.framework.traces import DenseTrace, read_traces, write_traces

DRAFTERS = ("prompt_lookup", "ngram", "quantized", "first_of")
# The categories that Spec-Bench counts as one task: questions of MT-Bench.
CONVERSATION = {
    "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities",
}  # fmt: skip
GROUPS = ("conversation", "translation", "summarization", "qa", "math_reasoning", "rag")
MOST = 8
FOLDER = HERE.parent / "outputs" / "policies"
"""Where traces and times are kept, outside of the repository's history."""


def group_of(category: str) -> str:
    """The task group of a Spec-Bench category."""
    return "conversation" if category in CONVERSATION else category


def items_of(path: Path, group: str, count: int, most_words: int) -> list[Item]:
    """The first prompts of a group that are not too long."""
    found: list[Item] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        text = entry["turns"][0]
        if group_of(entry["category"]) == group and len(text.split()) <= most_words:
            found.append(Item(entry["question_id"], "prompt", text, len(found), group=group))
    if not found:
        sys.exit(f"{path} has no prompt of {group} of at most {most_words} words")
    return found[:count]


def record(given: argparse.Namespace) -> None:
    """Dense traces, one file per drafter and group; files that are there are left alone."""
    given.folder.mkdir(parents=True, exist_ok=True)
    options = (f"max_new_tokens={given.tokens}", "runtime.batch_size=4")
    plain = load("drafter=none", "target=smollm2", "target.kernels=tuned")
    for name in given.drafters:
        engine = with_drafter(plain, f"drafter={name}", *options)
        for group in given.groups:
            path = given.folder / f"{name}.{group}.npz"
            if not path.exists():
                items = items_of(given.prompts, group, given.per_group, given.most_words)
                write_traces(path, recorded(engine, items, MOST))
            print(path, file=sys.stderr)


def times(given: argparse.Namespace) -> None:
    """Step times of the target with each drafter. The machine should do nothing else."""
    plain = load("drafter=none", "target=smollm2", "target.kernels=tuned")
    plan = Plan(
        contexts=(256,), widths=(1, 2, 3, 5, 7, 9), gammas=(1, 2, 4, 8), repeats=9, seconds=60
    )
    for name in given.drafters:
        parts = with_drafter(plain, f"drafter={name}").parts
        sizes = [measure(parts.target, parts.drafter, batch, plan) for batch in given.batches]
        about = {"drafter": name, "threads": torch.get_num_threads()}
        TimeTable(sizes, about).save(given.folder / f"{name}.times.json")


# --- the grid ---------------------------------------------------------------------------------


def grid(given: argparse.Namespace) -> None:
    """Every cell, and what they say together."""
    cells = [
        cell(group, drafter, batch, read_traces(given.folder / f"{drafter}.{group}.npz"), table)
        for drafter in given.drafters
        for table in [TimeTable.load(given.folder / f"{drafter}.times.json")]
        for batch in given.batches
        for group in given.groups
    ]
    save("policies-grid", {"cells": cells, "together": together(cells)}, show=False)
    for line in together(cells):
        print(line)


def policies(live: bool = False) -> list[Choice]:
    """Every policy that can be replayed, by its defaults; ``live`` for runs with a clock."""
    names = [offer.name for offer in registry().offers("policy")]
    return [choose(name, live=live) for name in names if name not in ("fixed", "oracle")]


def cell(
    group: str, drafter: str, batch: int, texts: Sequence[DenseTrace], table: TimeTable
) -> dict[str, Any]:
    """All policies and fixed gammas over one group's texts."""
    halves = [filled(texts[half::2], batch) for half in (0, 1)]
    fixed = {g: [run(choose("fixed", {"gamma": g}), half, table, batch) for half in halves]
             for g in range(MOST + 1)}  # fmt: skip
    best = [max(fixed, key=lambda g, half=half: fixed[g][half].rate) for half in (1, 0)]
    rivals = [fixed[gamma][half] for half, gamma in enumerate(best)]
    found: dict[str, Any] = {}
    for choice in policies():
        try:
            choice.check(texts)
        except ConfigError:  # it cannot serve these drafts
            continue
        ours = [run(choice, half, table, batch) for half in halves]
        found[choice.name] = {"plain": ratio(ours, fixed[0]), "best fixed": ratio(ours, rivals)}
    gammas = {g: ratio(runs, fixed[0]) for g, runs in fixed.items()}
    return {"group": group, "drafter": drafter, "batch": batch, "texts": len(texts),
            "best fixed": best, "fixed": gammas, "policies": found}  # fmt: skip


def filled(texts: Sequence[DenseTrace], batch: int) -> list[DenseTrace]:
    """Whole batches, the last of them filled up with texts from the front."""
    missing = -len(texts) % batch
    return [*texts, *(texts[i % len(texts)] for i in range(missing))]


def run(choice: Choice, texts: Sequence[DenseTrace], table: TimeTable, batch: int) -> Replay:
    """One policy over some texts, batch by batch."""
    return replay(choice.policy, texts, table, name=choice.name, batch=batch)


def ratio(ours: Sequence[Replay], theirs: Sequence[Replay]) -> dict[str, float]:
    """Tokens per second over those of the rivals on the same halves, and twice its standard error
    over texts (of a ratio of sums, by linearisation)."""
    mine, other = (np.concatenate([one.seconds for one in runs]) for runs in (ours, theirs))
    value = other.sum() / mine.sum()
    rest = other - value * mine
    error = np.sqrt(rest.var(ddof=1) * len(rest)) / mine.sum()
    return {"ratio": float(value), "upper": float(value + 1.96 * error)}


def together(cells: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Geometric means over cells, of every policy and of every single fixed gamma."""
    rows = []
    for name in sorted({name for one in cells for name in one["policies"]}):
        mine = [one["policies"][name] for one in cells if name in one["policies"]]
        rows.append(
            {
                "policy": name,
                "cells": len(mine),
                "x plain": float(gmean([one["plain"]["ratio"] for one in mine])),
                "x best fixed": float(gmean([one["best fixed"]["ratio"] for one in mine])),
                "least x plain": min(one["plain"]["ratio"] for one in mine),
                "least x best fixed": min(one["best fixed"]["ratio"] for one in mine),
                "least upper bound": min(
                    o[k]["upper"] for o in mine for k in ("plain", "best fixed")
                ),
            }
        )
    for gamma in range(MOST + 1):
        ratios = [one["fixed"][gamma]["ratio"] for one in cells]
        rows.append({"policy": f"fixed {gamma}", "cells": len(cells), "x plain": float(gmean(ratios)),
                     "least x plain": min(ratios)})  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--drafters", nargs="+", default=list(DRAFTERS))
    shared.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    shared.add_argument("--folder", type=Path, default=FOLDER)
    recording = commands.add_parser("record", parents=[shared])
    recording.add_argument("--prompts", type=Path, required=True)
    recording.add_argument("--per-group", type=int, default=4)
    recording.add_argument("--tokens", type=int, default=48)
    recording.add_argument("--most-words", type=int, default=520, help="longest prompt, in words")
    for name in ("times", "grid"):
        one = commands.add_parser(name, parents=[shared])
        one.add_argument("--batches", nargs="+", type=int, default=[1, 4, 8])
    given = parser.parse_args()
    {"record": record, "times": times, "grid": grid}[given.command](given)


if __name__ == "__main__":
    main()
