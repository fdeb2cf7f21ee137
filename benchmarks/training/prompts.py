"""Begins of files of the corpus, as prompts for ``foredraft train``, ``score`` and ``bench``.

    python benchmarks/training/prompts.py FOLDER {train,held} [--count 2000] [--tokens 96] > prompts.jsonl

``FOLDER`` is what ``corpus.py`` wrote; ``held`` takes files that nothing was trained on. A prompt begins
anywhere in its file. Groups are Python and prose (``.md``, ``.rst``).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from transformers import AutoTokenizer


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("part", choices=("train", "held"))
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(given.folder / "tokenizer")
    ids = np.load(given.folder / f"{given.part}.npy", mmap_mode="r")
    lines = (given.folder / "files.jsonl").read_text("utf-8").splitlines()
    files = [one for one in map(json.loads, lines) if one["held_out"] == (given.part == "held")]
    ends = np.flatnonzero(ids == tokenizer.eos_token_id)
    assert len(ends) == len(files)
    rng = np.random.default_rng(given.seed)
    for at in sorted(rng.choice(len(files), min(given.count, len(files)), replace=False)):
        first = ends[at - 1] + 1 if at else 0
        start = int(rng.integers(first, max(first + 1, ends[at] - given.tokens)))
        text = tokenizer.decode(ids[start : min(start + given.tokens, ends[at])])
        group = "python" if files[at]["path"].endswith(".py") else "prose"
        print(json.dumps({"prompt": text, "group": group}))


if __name__ == "__main__":
    main()
