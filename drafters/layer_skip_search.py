"""Which layers to leave out: each choice is tried on the target's own answers, and the quickest is kept.

A choice is worth the speed-up that theory promises (Leviathan et al. 2023, Theorem 3.8): of its alpha,
measured, and its cost, the share of the target's parameters that a step reads. The search takes layers
out one after the other, and then changes the best choice a little at random, within a number of tries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..framework.cache import Branch, RaggedModel, pad
from ..framework.device import upload
from ..framework.heads import LMHead
from ..framework.models import layer_list
from ..framework.targets.causal_lm import PREFILL_CHUNK, CausalLM
from ..framework.theory import speedup
from ..framework.training.answers import Answered
from .layer_skip import KEY, without

PATIENCE = 5  # layers taken out without a gain, before single changes are tried
Skip = tuple[int, ...]


@dataclass(frozen=True)
class Choice:
    """Layers that are left out, counted from 1, and what that is worth.

    Args:
        alpha: chance that a drafted token stands.
        cost: of a draft step, in steps of the target.
        gamma: the draft length that is best for these.
        speed: the factor that is predicted for it, plain decoding being 1.
    """

    skip: Skip
    alpha: float
    cost: float
    gamma: int
    speed: float


class Search:
    """The tries of one search.

    Args:
        depth: of the target.
        alpha: measures a choice.
        cost: of a choice.
        tries: the most choices that are measured.
        gamma: the longest draft that is thought of.
        seed: of the changes.
        told: hears how many tries were made.
    """

    def __init__(
        self, depth: int, alpha: Callable[[Skip], float], cost: Callable[[Skip], float],
        tries: int = 120, gamma: int = 8, seed: int = 0,
        told: Callable[[int], None] = lambda count: None,
    ) -> None:  # fmt: skip
        self.depth, self.alpha, self.cost, self.tries = depth, alpha, cost, tries
        self.gammas, self.noise, self.told = (
            np.arange(1, gamma + 1),
            np.random.default_rng(seed),
            told,
        )
        self.tried: dict[Skip, Choice] = {}

    def best(self) -> Choice:
        """The best choice of all that were tried."""
        for layer in range(1, self.depth + 1):
            self._try((layer,))
        self._nested()
        self._changed()
        return self._leader()

    def _leader(self) -> Choice:
        return max(self.tried.values(), key=lambda one: one.speed)

    def _try(self, skip: Skip) -> Choice | None:
        """None when there is no try left."""
        if skip not in self.tried:
            if len(self.tried) >= self.tries:
                return None
            alpha, cost = self.alpha(skip), self.cost(skip)
            speeds = speedup(alpha, self.gammas, cost)
            at = int(speeds.argmax())
            self.tried[skip] = Choice(skip, alpha, cost, at + 1, float(speeds[at]))
            self.told(len(self.tried))
        return self.tried[skip]

    def _nested(self) -> None:
        """One layer more each time, those first that are missed least on their own."""
        ranked = sorted(self.tried.values(), key=lambda one: (-one.alpha, one.skip))
        layers = [one.skip[0] for one in ranked]
        worse = 0
        for count in range(2, self.depth):
            before = self._leader()
            if worse == PATIENCE or self._try(tuple(sorted(layers[:count]))) is None:
                return
            worse = worse + 1 if self._leader() is before else 0

    def _changed(self) -> None:
        """The best one with a layer put in, taken out, or both, until nothing new comes of it."""
        for _ in range(20 * self.tries):
            if len(self.tried) >= self.tries:
                return
            self._try(self._neighbour(self._leader().skip))

    def _neighbour(self, skip: Skip) -> Skip:
        found = set(skip)
        for _ in range(int(self.noise.integers(1, 3))):
            found ^= {int(self.noise.integers(1, self.depth + 1))}
        return tuple(sorted(found)) if 0 < len(found) < self.depth else skip


class Measure:
    """How often a draft of one token stands, at every place of the target's answers at once.

    A drafter reads the target's entries of all that is committed, and its own of the newest token
    alone. So each text is run by the target once, and then each choice runs all of its tokens together,
    each of which sees the target's entries before its place, and itself.

    Args:
        texts: with answers.
        temperature: at which laws are compared; 0 asks for the same likeliest token.
        size: texts that are run together.
    """

    def __init__(
        self, target: CausalLM, texts: Sequence[Answered], temperature: float, size: int = 8
    ) -> None:
        self.model, self.depth, self.temperature = target.model, target.depth, temperature
        self.head = LMHead.of(target, "layer_skip")
        parts = [texts[at : at + size] for at in range(0, len(texts), size)]
        self.batches = [_Batch(target, part) for part in parts]

    @torch.inference_mode()
    def alpha(self, skip: Skip) -> float:
        """The mean over all places."""
        view = without(self.model, list(skip))
        found = [self._overlaps(batch, view) for batch in self.batches]
        return float(torch.cat(found).mean())

    def cost(self, skip: Skip) -> float:
        """The share of parameters: layers, and the LM head."""
        layers = getattr(self.model.base_model, layer_list(self.model, KEY))
        sizes = [
            sum(part.numel() for part in (*layer.parameters(), *layer.buffers()))
            for layer in layers
        ]
        whole = sum(sizes) + self.head.weight.numel()
        return float((whole - sum(sizes[layer - 1] for layer in skip)) / whole)

    def _overlaps(self, batch: _Batch, view: Any) -> Tensor:
        ours = self.head.narrow(batch.states(view)[batch.asked]).float()
        due = self.head.narrow(batch.due).float()
        if not self.temperature:
            return (ours.argmax(-1) == due.argmax(-1)).double()
        laws = [(logits / self.temperature).softmax(-1) for logits in (ours, due)]
        return torch.minimum(*laws).sum(-1).double()


class _Batch:
    """Some texts, as the target has run them."""

    def __init__(self, target: CausalLM, texts: Sequence[Answered]) -> None:
        rows = [[*one.prompt, *one.answer] for one in texts]
        self.tokens = pad(rows, target.device)
        self.counts = [len(row) for row in rows]
        count, width = self.tokens.shape
        self.ragged = RaggedModel(target.model, count, 2 * width)
        self.ragged.watch([target.depth])
        self.ragged.prefill(rows, PREFILL_CHUNK)
        places = torch.arange(width, device=target.device)
        lengths = upload(self.counts, target.device).unsqueeze(1)
        begins = upload([len(one.prompt) - 1 for one in texts], target.device).unsqueeze(1)
        self.asked = (places >= begins) & (places < lengths - 1)
        self.due = self.ragged.hidden(target.depth)[:, :width][self.asked]
        itself = torch.eye(width, dtype=torch.bool, device=target.device)
        self.branch = Branch(places - lengths, itself.expand(count, -1, -1))

    def states(self, view: Any) -> Tensor:
        """What the LM head reads of a view, ``[rows, width, size]``."""
        return self.ragged.forward(
            self.tokens, self.counts, branch=self.branch, view=view, logits=False
        )
