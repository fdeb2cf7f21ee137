"""What a trained head brings ``policy=specdecpp`` on a real model, by dense replay.

    python benchmarks/heads.py [--drafters ...] [--batch 1]

Uses the traces and times that ``policies.py record`` and ``policies.py times`` left in ``--folder``. For
each drafter a head is trained on one half of the texts of all task groups and replayed over the other
half, and the other way round.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import save
from policies import FOLDER, GROUPS, MOST, filled, ratio, run

from foredraft.framework.policies.specdecpp_fit import examples_of, train
from foredraft.framework.replaying.choices import Choice, choose
from foredraft.framework.times.table import TimeTable
from foredraft.framework.traces import read_traces

DRAFTERS = ("ngram", "quantized", "first_of")
LEAST = {"untrained": 2, "trained": 2, "trained, min_gamma 0": 0}


def drafters_row(name: str, folder: Path, batch: int) -> dict[str, Any]:
    """One drafter: log-loss of its heads, and tokens per second over plain and the best fixed gamma."""
    table = TimeTable.load(folder / f"{name}.times.json")
    texts = [t for group in GROUPS for t in read_traces(folder / f"{name}.{group}.npz")]
    halves = [texts[half::2] for half in (0, 1)]
    heads = [train(examples_of(half)) for half in halves]
    batches = [filled(half, batch) for half in halves]
    with tempfile.TemporaryDirectory() as place:
        for half, head in enumerate(heads):
            head.save(str(Path(place) / f"{half}.head"))
        sides = {
            side: [choice(side, Path(place) / f"{1 - half}.head") for half in (0, 1)]
            for side in LEAST
        }
    fixed = {g: [run(choose("fixed", {"gamma": g}), b, table, batch) for b in batches]
             for g in range(MOST + 1)}  # fmt: skip
    best = [max(fixed, key=lambda g, half=half: fixed[g][half].rate) for half in (1, 0)]
    rivals = [fixed[gamma][half] for half, gamma in enumerate(best)]
    found = {}
    for side, choices in sides.items():
        ours = [run(c, b, table, batch) for c, b in zip(choices, batches, strict=True)]
        found[side] = {"plain": ratio(ours, fixed[0]), "best fixed": ratio(ours, rivals)}
    return {"drafter": name, "batch": batch, "texts": len(texts), "best fixed": best,
            "heads": [head.about for head in heads], "sides": found}  # fmt: skip


def choice(side: str, head: Path) -> Choice:
    """A policy with a head of the other half, or with none."""
    path = None if side == "untrained" else str(head)
    return choose("specdecpp", {"path": path, "min_gamma": LEAST[side], "max_gamma": MOST})


def rows(drafters: Sequence[str], folder: Path, batch: int) -> list[dict[str, Any]]:
    """A row per drafter."""
    return [drafters_row(name, folder, batch) for name in drafters]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--drafters", nargs="+", default=list(DRAFTERS))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args()
    save("policies-heads", {"rows": rows(given.drafters, given.folder, given.batch)})


if __name__ == "__main__":
    main()
