"""What a sweep takes beside its decoding: wall time of the whole command over the seconds of its runs.

    python benchmarks/sweep_cost.py
    python benchmarks/sweep_cost.py --folder ablation

Without ``--folder`` it runs ``foredraft bench`` on 24 cells of a random transformer whose steps take some
20 milliseconds on one core. With it, it reads the folder of a sweep that ran in one go: from the moment
in ``run.json``, so without the start of the command, to the last file of its report.

Decoding is all that a run is: its prefill and its rounds. Everything else is overhead.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from common import save

from foredraft.framework.bench.store import Store

GRID = [
    "grid.drafter=[prompt_lookup,ngram,early_exit,quantized]", "grid.policy.gamma=[1,3,5]",
    "grid.sampling.temperature=[0,1]", "bench.baselines=[plain,again,generate]",
]  # fmt: skip
TEXT = (
    "The lamp of the lighthouse burned oil, then gas; the keeper of the lamp wrote down each ship. "
)
GROUPS = ("math", "code", "qa", "translation", "summarization", "conversation")
REPORT = ("report.html", "summary.md", "summary.csv")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--folder", type=Path, help="of a sweep that is done")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--size", type=int, default=512, help="of the model's hidden states")
    chosen = parser.parse_args()
    if chosen.folder is not None:
        save("sweep-cost", cost(chosen.folder))
        return
    with tempfile.TemporaryDirectory() as folder:
        words, place = sweep(Path(folder), chosen), Path(folder, "sweep")
        begun = time.time()
        done = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True)
        found = cost(place, begun, time.time())
        usage = os.times()
    asked = {name: getattr(chosen, name) for name in ("prompts", "tokens", "repeats", "size")}
    busy = {"seconds of processor": usage.children_user + usage.children_system}
    save("sweep-cost", {**asked, **busy, **found}, show=not done.returncode)


def sweep(folder: Path, chosen: argparse.Namespace) -> list[str]:
    """The command, with its model and its prompts in place."""
    import torch

    from foredraft.framework.testing.tiny_tokenizer import save_tiny

    model = save_tiny(
        folder / "model", eos=False, dtype=torch.float32, sharp=0.05, layers=8,
        hidden_size=chosen.size, intermediate_size=3 * chosen.size, head_dim=chosen.size // 8,
        num_attention_heads=8, num_key_value_heads=4, context=1024,
    )  # fmt: skip
    lines = [
        {"prompt": f"{index}: {TEXT[index:]}", "group": GROUPS[index % len(GROUPS)]}
        for index in range(chosen.prompts)
    ]
    (folder / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return [
        sys.executable, "-m", "foredraft.framework.cli.main", "bench", *GRID,
        "target=causal_lm", f"target.model={model}", "drafter.layers=2" , "task=file", "task.file=p.jsonl",
        f"max_new_tokens={chosen.tokens}", f"bench.repeats={chosen.repeats}", "bench.dir=sweep",
    ]  # fmt: skip


def cost(folder: Path, begun: float | None = None, ended: float | None = None) -> dict[str, Any]:
    """Where the time of a sweep went.

    Args:
        begun, ended: of the command, in seconds since 1970; None takes them from the folder.
    """
    store = Store.open(folder)
    runs = sorted(store.records(), key=lambda record: float(record["started"]))
    cells = [cell for cell in store.cells if cell["kind"] == "engine"]
    begun = moment(store.manifest["started"]) if begun is None else begun
    parts = {"start": float(runs[0]["started"]) - begun, **gaps(runs)}
    last = float(runs[-1]["started"]) + runs[-1]["seconds"]
    for name, files in written(folder).items():
        parts[name] = max([0.0, *(file.stat().st_mtime - last for file in files)])
        last += parts[name]
    if ended is not None:
        parts["end"] = ended - last
    decoding = sum(run["seconds"] for run in runs)
    whole = decoding + sum(parts.values())
    return {
        "cells": len(cells), "runs": len(runs), "contended": sum(run["contended"] for run in runs),
        "seconds": whole, "decoding": decoding, "of decoding, prefill": sum(r["prefill"] for r in runs),
        "ratio": whole / decoding, "overhead": parts,
    }  # fmt: skip


def gaps(runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Seconds between runs. Before the first run of a cell its parts are built and warmed up."""
    found, seen = {"building and warming up": 0.0, "between other runs": 0.0}, {runs[0]["cell"]}
    for before, after in zip(runs, runs[1:], strict=False):
        kind = "between other runs" if after["cell"] in seen else "building and warming up"
        found[kind] += float(after["started"]) - float(before["started"]) - before["seconds"]
        seen.add(after["cell"])
    return found


def written(folder: Path) -> dict[str, list[Path]]:
    """The files that come after the last run, in the order in which they are made."""
    named = {kind: list((folder / kind).glob("*.json")) for kind in ("verdicts", "traces")}
    return {**named, "report": [folder / name for name in REPORT if (folder / name).exists()]}


def moment(text: str) -> float:
    """Seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


if __name__ == "__main__":
    main()
