"""Trains the drafters that come along for SmolLM2: ``smollm2_eagle``, ``smollm2_exit``, ``smollm2_medusa`` and
``smollm2_small``.

    python benchmarks/training/questions.py --count 720 --batch-size 60 target.dtype=bfloat16 > questions.jsonl
    python benchmarks/training/smollm2.py --questions questions.jsonl --folder outputs/smollm2 [--only eagle]

Each is one ``foredraft train`` on the target's own answers, sampled at temperature 1 with the same seed, so all
learn from the same text. What the package holds of each folder are its weights and its card. Killed at any
moment, the same command goes on.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

COMMON = [
    "target=smollm2", "target.kernels=tuned", "task=file", "sampling.temperature=1",
    "max_new_tokens=112", "runtime.batch_size=48", "train.vocabulary=4096", "train.stored=float16",
    "train.precision=bfloat16", "train.width=192", "train.batch_size=4",
]  # fmt: skip
OPTIONS = {
    "eagle": [
        "drafter=eagle", "train.steps=1200", "train.lr=0.001", "train.evaluate_every=100",
        "train.keep_every=100",
    ],
    "exit": [
        "drafter=early_exit", "train.shape.exits=[4,8,12]", "train.shape.rank=64",
        "train.steps=800", "train.lr=0.002", "train.evaluate_every=100", "train.keep_every=100",
    ],
    "medusa": [
        "drafter=medusa", "train.shape.heads=3", "train.steps=1600", "train.evaluate_every=200",
    ],
    "small": [
        "drafter=causal_lm", "train.shape.from_layers=[1]", "train.steps=800", "train.lr=0.001",
        "train.evaluate_every=100", "train.keep_every=100",
    ],
}  # fmt: skip


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path("outputs/smollm2"))
    parser.add_argument("--only", nargs="+", choices=OPTIONS, default=list(OPTIONS))
    given = parser.parse_args()
    for name in given.only:
        words = [f"out={given.folder / name}", f"task.file={given.questions}"]
        command = [sys.executable, "-m", "foredraft.framework.cli.main", "train"]
        subprocess.run([*command, *OPTIONS[name], *COMMON, *words], check=True)


if __name__ == "__main__":
    main()
