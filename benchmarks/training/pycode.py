"""Trains the pair ``target=pycode`` and ``drafter=pycode_small`` from scratch on Python source.

    python benchmarks/training/corpus.py outputs/pycode/data
    python benchmarks/training/pycode.py target --folder outputs/pycode [--steps 12000]
    python benchmarks/training/pycode.py drafter --folder outputs/pycode [--steps 3000]

The drafter learns the target's law on the same source, by ``kl`` and ``tv``; ``foredraft train`` goes on with
it on the target's own answers. Killed at any moment, the same command goes on. With fewer ``--steps`` than
it began with, the learning rate falls earlier, so that a run can be ended when the time is up; with more, it
is longer.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from foredraft.framework.files import write_json
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.trained import fingerprint
from foredraft.framework.training.loop import Progress, fit
from foredraft.framework.training.objectives import mixed, overlap
from foredraft.framework.training.options import PRECISIONS, TRAPEZOID, LoopOptions

SHAPES = {  # layers, hidden, inner, heads, key/value heads
    "target": (8, 384, 1024, 6, 2),
    "drafter": (2, 128, 384, 4, 2),
}
CONTEXT = 1024  # positions that the model has
HELD = 24  # blocks
OBJECTIVE = {"kl": 1.0, "tv": 1.0}


class Blocks:
    """Language modelling on random blocks of one long row of ids.

    Args:
        ids, held: ``[n]`` uint16, to train on and to look at.
        width: tokens of a block.
        size: blocks of a batch.
        seed: of where blocks begin.
    """

    def __init__(
        self,
        module: nn.Module,
        ids: np.ndarray[Any, Any],
        held: np.ndarray[Any, Any],
        width: int,
        size: int,
        seed: int,
    ) -> None:
        self.module, self.ids, self.width, self.size, self.seed = module, ids, width, size, seed
        starts = np.linspace(0, len(held) - width - 1, HELD).astype(int)
        self.held = [held[start : start + width + 1] for start in starts]

    def batch(self, number: int) -> Tensor:
        """``[size, width + 1]``."""
        rng = np.random.default_rng([self.seed, number])
        starts = rng.integers(0, len(self.ids) - self.width - 1, self.size)
        return self._rows([self.ids[start : start + self.width + 1] for start in starts])

    def loss(self, batch: Tensor) -> Tensor:
        """Nats per token."""
        logits = self.module(input_ids=batch[:, :-1]).logits
        return cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())

    def held_out(self) -> dict[str, float]:
        """Nats per token of the blocks held out."""
        losses = [float(self.loss(self._rows([block]))) for block in self.held]
        return {"score": -sum(losses) / len(losses)}

    def _rows(self, rows: Sequence[np.ndarray[Any, Any]]) -> Tensor:
        device = next(self.module.parameters()).device
        return torch.from_numpy(np.stack(rows).astype(np.int64)).to(device)


class Taught(Blocks):
    """The same, by a teacher's law; it is told what a score is as the drafter's alpha."""

    def __init__(self, teacher: Any, *args: Any) -> None:
        super().__init__(*args)
        self.teacher = teacher

    def loss(self, batch: Tensor) -> Tensor:
        """The mean over places."""
        target, logits = self._laws(batch)
        return mixed(OBJECTIVE, target, logits, batch[:, 1:]).mean()

    def held_out(self) -> dict[str, float]:
        """``sum min(p, q)`` at temperature 1, and how often the likeliest ids are the same."""
        laws = [self._laws(self._rows([block])) for block in self.held]
        alphas = [overlap(p, q.float().log_softmax(-1)).mean() for p, q in laws]
        same = [(p.argmax(-1) == q.argmax(-1)).float().mean() for p, q in laws]
        return {
            name: float(torch.stack(each).mean())
            for name, each in (("score", alphas), ("same", same))
        }

    def _laws(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        with torch.inference_mode():
            target = self.teacher(input_ids=batch[:, :-1]).logits.float().softmax(-1)
        return target.clone(), self.module(input_ids=batch[:, :-1]).logits


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("what", choices=list(SHAPES))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=12_000)
    parser.add_argument("--lr", type=float, default=1.5e-3)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--size", type=int, default=4)
    parser.add_argument("--precision", choices=PRECISIONS, default="auto")
    given = parser.parse_args()
    options = LoopOptions(
        steps=given.steps, lr=given.lr, warmup=100, schedule=TRAPEZOID, weight_decay=0.1,
        evaluate_every=100, keep_every=100, precision=given.precision,
    )  # fmt: skip
    train(given.what, given.folder, options, given.width, given.size)


def train(what: str, folder: Path, options: LoopOptions, width: int, size: int) -> None:
    """Fits one of the pair, and writes it as a model's folder."""
    data = folder / "data"
    ids, held = (np.load(data / f"{name}.npy", mmap_mode="r") for name in ("train", "held"))
    tokenizer = AutoTokenizer.from_pretrained(data / "tokenizer")
    torch.manual_seed(options.seed)
    model = LlamaForCausalLM(config_of(what, tokenizer))
    place = folder / what
    place.mkdir(parents=True, exist_ok=True)
    begun, first = time.time(), []

    def told(progress: Progress) -> None:
        first.append(progress.step)
        if progress.looks and progress.looks[-1]["step"] == progress.step:
            took = (time.time() - begun) / (progress.step - first[0] + 1)
            look = {**progress.looks[-1], "seconds a step": round(took, 2)}
            print(json.dumps(look), flush=True)
            tokens = {"step": progress.step, "tokens": progress.step * width * size}
            about = {
                **tokens,
                "seconds": took * (progress.step - first[0] + 1),
                "options": asdict(options),
            }
            with (place / "log.jsonl").open("a", encoding="utf-8") as log:
                log.write(json.dumps({**about, **look}) + "\n")

    data_of = (model, ids, held, width, size, options.seed)
    problem = Blocks(*data_of) if what == "target" else Taught(teacher(folder), *data_of)
    fit(problem, options, place / "state", told)
    model.half().save_pretrained(place / "model")
    tokenizer.save_pretrained(place / "model")
    write_card(place, data, about_training(options, width * size, place))
    if what == "drafter":
        name_target(folder, tokenizer)


def about_training(options: LoopOptions, tokens: int, place: Path) -> dict[str, Any]:
    """What the log says of the run."""
    looks = [json.loads(line) for line in (place / "log.jsonl").read_text("utf-8").splitlines()]
    return {
        "tokens": options.steps * tokens,
        "options": asdict(options),
        "command": "python benchmarks/training/pycode.py " + " ".join(sys.argv[1:]),
        "looks": [{key: look[key] for key in ("step", "loss", "score")} for look in looks],
    }


def write_card(place: Path, data: Path, training: dict[str, Any]) -> None:
    """What it was trained on, and how. The target's ``sources.jsonl.gz`` has every file with its hash."""
    lines = (data / "files.jsonl").read_text("utf-8")
    files = [json.loads(line) for line in lines.splitlines()]
    packages: dict[str, dict[str, Any]] = {}
    for one in files:
        about = {"version": one["version"], "license": one["license"], "files": 0}
        packages.setdefault(one["package"], about)["files"] += 1
    card = {
        "model": f"pycode {place.name}", "license": "Apache-2.0", "training": training,
        "files": len(files), "held out": sum(one["held_out"] for one in files),
        "packages": dict(sorted(packages.items())),
    }  # fmt: skip
    write_json(place / "model" / "card.json", card)
    if place.name != "target":  # the pair has one list
        return
    with gzip.GzipFile(place / "model" / "sources.jsonl.gz", "wb", mtime=0) as packed:
        packed.write(lines.encode())


def name_target(folder: Path, tokenizer: Any) -> None:
    """What ``drafter=causal_lm`` wants to know of whom it drafts for."""
    path = folder / "drafter" / "model" / "card.json"
    layers, hidden, _, heads, _ = SHAPES["drafter"]
    shape = {"layers": layers, "hidden_size": hidden, "heads": heads, "vocabulary": None}
    target = {"name": "pycode", **fingerprint(CausalLM(teacher(folder), tokenizer))}
    card = json.loads(path.read_text("utf-8"))
    write_json(path, {"drafter": "causal_lm", "shape": shape, "target": target, **card})


def teacher(folder: Path) -> Any:
    """The target, trained."""
    found = LlamaForCausalLM.from_pretrained(folder / "target" / "model", dtype=torch.float32)
    return found.eval().requires_grad_(False)


def config_of(what: str, tokenizer: Any) -> LlamaConfig:
    """The shape of one of the pair."""
    layers, hidden, inner, heads, shared = SHAPES[what]
    return LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=hidden, intermediate_size=inner,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=shared,
        max_position_embeddings=CONTEXT, tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip


if __name__ == "__main__":
    main()
