"""A tiny target with sharp laws that a drafter can learn: a model trained briefly on a made-up language.

A random transformer with wide weights is sharp too, but its laws follow from nothing that a smaller one
could find out. Here they follow from a source that draws each letter by a law of its own for the letters
before.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from .tiny import tiny_model
from .tiny_tokenizer import VOCAB, tiny_tokenizer

FIRST = ord("a")


class Source:
    """A language of some letters: a Markov chain over the last few.

    Args:
        seed: of its laws.
        letters: ``a`` onwards, at most 26.
        memory: how many letters the next one depends on.
        sharpness: of the Dirichlet law that each row is drawn from, the symmetric one of ``1 / sharpness``:
            the larger it is, the more of a row's probability is on a single letter.
    """

    def __init__(
        self, seed: int = 0, letters: int = 8, memory: int = 2, sharpness: float = 8.0
    ) -> None:
        self.letters, self.memory = letters, memory
        rng = np.random.default_rng([seed, letters, memory])
        self.laws = rng.dirichlet([1 / sharpness] * letters, size=letters**memory)

    def draw(self, rng: np.random.Generator, rows: int, length: int) -> Tensor:
        """``[rows, length]`` ids of letters, each text begun by letters drawn evenly."""
        texts = rng.integers(0, self.letters, (rows, self.memory + length))
        ends = self.laws.cumsum(-1)
        powers = self.letters ** np.arange(self.memory)[::-1]
        for at in range(self.memory, texts.shape[1]):
            states = texts[:, at - self.memory : at] @ powers
            below = ends[states] < rng.random((rows, 1))
            texts[:, at] = below.sum(-1).clip(max=self.letters - 1)
        return torch.from_numpy(texts[:, self.memory :] + FIRST)

    def texts(self, seed: int, rows: int, length: int) -> list[str]:
        """As text."""
        found = self.draw(np.random.default_rng([seed, 1]), rows, length)
        return ["".join(map(chr, row)) for row in found.tolist()]


class Language:
    """Language modelling of a source: what ``training.loop.fit`` fits."""

    def __init__(self, module: Any, source: Source, rows: int = 16, width: int = 48) -> None:
        self.module, self.source, self.rows, self.width = module, source, rows, width

    def batch(self, number: int) -> Tensor:
        rng = np.random.default_rng([number, 0])
        return self.source.draw(rng, self.rows, self.width + 1)

    def loss(self, batch: Tensor) -> Tensor:
        logits = self.module(input_ids=batch[:, :-1]).logits
        return cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())

    def held_out(self) -> dict[str, float]:
        return {"score": -float(self.loss(self.batch(1 << 40)))}


def save_sharp(
    folder: Path, source: Source, *, steps: int = 300, layers: int = 2, size: int = 64,
    context: int = 256, seed: int = 0,
) -> dict[str, float]:  # fmt: skip
    """Trains a tiny Llama on the source and saves it with its tokenizer, as ``target.model`` expects them.

    Returns:
        ``start`` and ``end``: nats per letter before and after.
    """
    from transformers.utils import logging

    from ..training.loop import fit
    from ..training.options import LoopOptions

    logging.disable_progress_bar()
    model = tiny_model(
        vocab=VOCAB, layers=layers, seed=seed, sharp=0.05, dtype=torch.float32, context=context,
        hidden_size=size, intermediate_size=2 * size, head_dim=size // 4,
    )  # fmt: skip
    options = LoopOptions(steps=steps, lr=3e-3, warmup=20, evaluate_every=steps, keep_every=steps)
    with tempfile.TemporaryDirectory() as state:
        progress = fit(Language(model, source), options, Path(state))
    model.save_pretrained(folder)
    tiny_tokenizer(chat=False).save_pretrained(folder)
    return {name: -progress.looks[at]["score"] for name, at in (("start", 0), ("end", -1))}


def write_prompts(path: Path, source: Source, count: int, length: int, seed: int = 0) -> None:
    """Begins of texts, a JSON object a line."""
    texts = source.texts(seed, count, length)
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts), "utf-8")
