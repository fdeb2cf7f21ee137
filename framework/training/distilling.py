"""Distilling: a drafter learns the target's own law, place by place, on the target's own answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..heads import LMHead
from .features import Features
from .objectives import mixed, overlap
from .trainee import Guess, Texts, Trainee


class Distillation:
    """What the loop fits.

    Args:
        trainee: the drafter.
        head: the target's LM head.
        features: texts with hidden states, those of the target's last layer among them.
        train, held: which texts are trained on, and which are not.
        groups: of each text, for the report.
        objective: weights of losses by name.
        size: texts of a batch.
        temperature: at which laws are compared.
        seed: of the order of texts.
    """

    def __init__(
        self, trainee: Trainee, head: LMHead, features: Features, train: Sequence[int],
        held: Sequence[int], groups: Mapping[int, str], objective: Mapping[str, float],
        size: int = 8, temperature: float = 1.0, seed: int = 0,
    ) -> None:  # fmt: skip
        self.trainee, self.features, self.head = trainee, features, head
        self.train, self.held, self.groups = list(train), list(held), groups
        self.objective, self.size, self.temperature = dict(objective), size, temperature
        self.seed, self.last = seed, trainee.target.depth
        self.module: nn.Module = trainee.module

    def batch(self, number: int) -> Texts:
        """Texts in an order of their own in each turn through all of them."""
        places = range(number * self.size, (number + 1) * self.size)
        return self.texts(
            [self._order(at // len(self.train))[at % len(self.train)] for at in places]
        )

    def texts(self, which: Sequence[int]) -> Texts:
        """These texts, padded."""
        parts = [self.features.text(index) for index in which]
        width = max(len(ids) for ids, _, _ in parts)
        rows = [_padded(ids, width) for ids, _, _ in parts]
        at = torch.arange(width)
        answered = [(at >= prompt) & (at < len(ids)) for ids, prompt, _ in parts]
        device = self.head.weight.device
        # As float32, like the weights that are trained, whatever the target computes in.
        hidden = {
            layer: torch.stack(
                [_padded(states[layer].float(), width) for _, _, states in parts]
            ).to(device)
            for layer in self.features.layers
        }
        return Texts(torch.stack(rows).to(device), torch.stack(answered).to(device), hidden)

    def loss(self, batch: Texts) -> Tensor:
        """The mean over guesses and places; all guesses of a place count alike."""
        losses = []
        for guess in self.trainee.guesses(batch):
            target, logits, chosen = self._compared(batch, guess)
            if len(chosen):
                losses.append(mixed(self.objective, target, logits, chosen).mean())
        extra = self.trainee.extra(batch)
        whole = torch.stack(losses).mean() if losses else self._nothing()
        return whole if extra is None else whole + extra

    def held_out(self) -> dict[str, float]:
        """Alpha of each guess, over all held-out texts together; ``score`` is their mean."""
        sums = self.alphas(self.held)
        means = {f"alpha {name}": hits / max(count, 1) for name, (hits, count) in sums.items()}
        return {"score": sum(means.values()) / len(means), **means}

    def alphas(self, which: Sequence[int]) -> dict[str, tuple[float, int]]:
        """By name of the guess, in their order: the sum of ``sum min(p, q)``, and how many places."""
        found: dict[str, tuple[float, int]] = {}
        for begin in range(0, len(which), self.size):
            batch = self.texts(which[begin : begin + self.size])
            for guess in self.trainee.guesses(batch):
                target, logits, chosen = self._compared(batch, guess)
                logs = logits.float().log_softmax(-1)
                hits, count = found.get(guess.name, (0.0, 0))
                found[guess.name] = (
                    hits + float(overlap(target, logs).sum()),
                    count + len(chosen),
                )
        return found

    def _compared(self, batch: Texts, guess: Guess) -> tuple[Tensor, Tensor, Tensor]:
        """At the places where a guess is of an answered id: the target's law ``[n, ids]``, the guess's
        logits, and the place of the id among these, ``[n]``."""
        ahead = guess.ahead
        count = max(0, guess.states.shape[1] - ahead)  # all texts may end before the furthest guess
        asked = batch.answered[:, ahead:]
        states = guess.states[:, :count][asked]
        with torch.no_grad():
            behind = batch.hidden[self.last][:, ahead - 1 : -1][asked]
            target = self._law(behind)
        return (
            target,
            self.trainee.logits(states) / self.temperature,
            self._places(batch.ids[:, ahead:][asked]),
        )

    def _law(self, hidden: Tensor) -> Tensor:
        """The target's whole law, of which the drafted ids are kept."""
        law = (self.head.narrow(hidden).float() / self.temperature).softmax(-1)
        return law if self.trainee.ids is None else law[:, self.trainee.ids.to(law.device)]

    def _places(self, ids: Tensor) -> Tensor:
        if self.trainee.ids is None:
            return ids
        own = self.trainee.ids.to(ids.device)
        at = torch.searchsorted(own, ids).clamp(max=len(own) - 1)
        return torch.where(own[at] == ids, at, -1)

    def _order(self, turn: int) -> Any:
        return np.random.default_rng([self.seed, turn]).permutation(self.train)

    def _nothing(self) -> Tensor:
        return sum((p.sum() * 0 for p in self.module.parameters()), torch.zeros(()))


def _padded(values: Tensor, width: int) -> Tensor:
    """Zeros behind ``values [n, ...]`` up to ``width``."""
    return nn.functional.pad(values, [0, 0] * (values.dim() - 1) + [0, width - len(values)])
