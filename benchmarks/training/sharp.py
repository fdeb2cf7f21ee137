"""Drafters distilled onto a sharp tiny target, through the real command.

    python benchmarks/training/sharp.py [--letters 8] [--memory 2] [--steps 400]

The target is a small Llama that was trained briefly on a Markov source (``framework/testing/sharp.py``). Of
each drafter: alpha on held-out answers by position, before training and after, and the seconds of the whole
command, answers and hidden states included. Medusa's heads guess two ids on and further, so that even the best
ones cannot know what is drawn in between.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from common import save
from rich.console import Console
from rich.table import Table

from foredraft.framework.cli.main import main as foredraft
from foredraft.framework.testing.sharp import Source, save_sharp, write_prompts

LAYERS, PROMPTS, BEGIN, TOKENS = 2, 160, 8, 56
DRAFTERS = {
    "causal_lm, new": [
        "drafter=causal_lm", "train.shape.layers=2", "train.shape.hidden_size=32", "train.shape.heads=2",
    ],
    "causal_lm, the target's last layer": ["drafter=causal_lm", f"train.shape.from_layers=[{LAYERS}]"],
    "medusa": ["drafter=medusa", "train.shape.heads=3"],
}  # fmt: skip


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--letters", type=int, default=8)
    parser.add_argument("--memory", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--target-steps", type=int, default=400)
    given = parser.parse_args()
    source = Source(letters=given.letters, memory=given.memory)
    with tempfile.TemporaryDirectory() as place:
        folder, begun = Path(place), time.perf_counter()
        losses = save_sharp(folder / "target", source, steps=given.target_steps, layers=LAYERS)
        target = {"nats": losses, "seconds": round(time.perf_counter() - begun, 1)}
        write_prompts(folder / "p.jsonl", source, PROMPTS, BEGIN)
        rows = [row(folder, name, words, given.steps) for name, words in DRAFTERS.items()]
    show(rows)
    save("training-sharp", {"source": vars(given), "target": target, "rows": rows}, show=False)


def row(folder: Path, name: str, words: list[str], steps: int) -> dict[str, Any]:
    """One drafter."""
    out, begun = folder / name, time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        code = foredraft(
            ["train", *words, "target=causal_lm", f"target.model={folder / 'target'}", "task=file",
             f"task.file={folder / 'p.jsonl'}", f"out={out}", f"max_new_tokens={TOKENS}",
             "sampling.temperature=1", "runtime.batch_size=32", f"train.steps={steps}", "train.lr=0.005",
             "train.batch_size=16", f"train.evaluate_every={max(1, steps // 8)}"]
        )  # fmt: skip
    if code:
        raise SystemExit(code)
    seconds = round(time.perf_counter() - begun, 1)
    card = json.loads((out / "card.json").read_text("utf-8"))
    first, *looks = card["training"]["looks"]
    before = [first[f"alpha {place + 1}"] for place in range(len(card["held_out"]["all"]))]
    return {"drafter": name, "before": before, "after": card["held_out"]["all"], "seconds": seconds,
            "best step": card["training"]["best_step"], "looks": [first, *looks]}  # fmt: skip


def show(rows: list[dict[str, Any]]) -> None:
    """As a table."""
    table = Table("drafter", "alpha before", "alpha after", "seconds")
    for one in rows:
        alphas = [", ".join(f"{alpha:.3f}" for alpha in one[key]) for key in ("before", "after")]
        table.add_row(one["drafter"], *alphas, f"{one['seconds']:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
