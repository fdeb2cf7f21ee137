"""A training from its prompts to a folder of weights: answers, hidden states, steps, the card.

Everything it makes on the way lies in ``OUT/work``; the same command goes on from there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from ..api import engine_from
from ..bench.difference import changes
from ..bench.disk import unwritable
from ..bench.machine import discreet
from ..bench.tuning_plan import in_turns
from ..config.parts import Part
from ..config.values import read_record
from ..errors import ConfigError, InputError
from ..factories import imported
from ..files import write_json
from ..heads import LMHead
from ..specs import DrafterSpec
from ..strict_json import read_object
from ..trained import Card, fingerprint
from .answers import Answered, answered
from .asked import Asked
from .curve import FIGURE, Events, draw_curve
from .distilling import Distillation
from .features import Features
from .loop import Progress, fit, unheard
from .state import put_back
from .trainee import Trainee

ABOUT, LOCK = "train.json", "lock"
Told = Callable[[str, int, int], None]
"""Hears of a stage, how much of it is done, and how much there is."""


class Training:
    """One training.

    Args:
        asked: what for.
        command: the command line, for the card.
        told: hears how far it is.
    """

    def __init__(
        self, asked: Asked, command: str, told: Told = lambda stage, done, whole: None
    ) -> None:
        self.asked, self.command, self.told = asked, command, told
        self.work = asked.out / "work"
        self.trainee = trainee_of(asked.drafter)
        self.shape = read_record(self.trainee.Shape, asked.options.shape, "train.shape")
        events = asked.options.tensorboard
        self.events = Events(self.work / "tensorboard", asked.options) if events else None
        self._claim()

    def run(self) -> Card:
        """All that is missing.

        Raises:
            ForedraftError: what cannot be done, in a sentence; what was done is kept.
        """
        with self._alone():
            problem, texts = self.prepared()
            looked = self.events.look if self.events else unheard
            progress = fit(problem, self.asked.options, self.work / "state", self._step, looked)
            stored = getattr(torch, self.asked.options.stored)
            put_back(problem.module, {k: v.to(stored) for k, v in progress.weights.items()})
            card = self._card(problem, progress, texts)  # of what is written, its rounding included
            problem.module.to(stored)
            problem.trainee.write(self.asked.out, card)
            draw_curve(self.asked.out / FIGURE, progress.looks, card.training["best_step"])
            return card

    def prepared(self) -> tuple[Distillation, Sequence[Answered]]:
        """What is fitted, with answers and hidden states, and the texts that there is room for."""
        engine = engine_from(self.asked.config)
        return self._problem(engine, in_turns(self._answers(engine)))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Two trainings in one folder would write into each other's."""
        lock = FileLock(self.work / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise ConfigError(
                f"out={self.asked.out} is in use by another training; wait for it, or give a new folder."
            ) from None
        except OSError as error:
            raise unwritable(self.work / LOCK, error) from None
        try:
            yield
        finally:
            lock.release()

    def _problem(
        self, engine: Any, texts: Sequence[Answered]
    ) -> tuple[Distillation, Sequence[Answered]]:
        options, drafter, target = self.asked.options, self.asked.drafter, engine.parts.target
        torch.manual_seed(options.seed)
        train, held = _split(texts, options.held_out)
        ids = _frequent([texts[at] for at in train], options.vocabulary, target.vocab_size)
        trainee = self.trainee(drafter.config, target, self.shape, ids)
        layers = sorted({*trainee.layers, target.depth})
        features = Features(self.work / "features", layers, options.width)
        texts = texts[: self._features(features, target, texts)]
        problem = Distillation(
            trainee, LMHead.of(target, drafter.spec.name), features,
            [at for at in train if at < len(texts)], [at for at in held if at < len(texts)],
            {at: one.group for at, one in enumerate(texts)}, options.objective, options.batch_size,
            options.temperature, options.seed,
        )  # fmt: skip
        if not problem.train or not problem.held:
            raise ConfigError(
                f"train.shards_mb={options.shards_mb} has room for the hidden states of {len(texts)} answers "
                "only; give more, or a smaller train.width."
            )
        return problem, texts

    def _claim(self) -> None:
        """The folder is new, or one of this very training."""
        path, record = self.work / ABOUT, self.asked.record
        try:
            if path.exists():
                found = read_object(path.read_bytes(), str(path))
                other = changes(found, json.loads(json.dumps(record)))
                if other:
                    raise ConfigError(
                        f"out={self.asked.out} holds a training with other values: {other[0]}; give a "
                        "new folder."
                    )
            elif self.asked.out.exists() and not _fresh(self.asked.out, self.work):
                raise ConfigError(
                    f"out={self.asked.out} is a folder with other things in it; give a new one."
                )
            self.work.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"out={self.asked.out} cannot be used: {error.strerror or error}."
            ) from None
        write_json(path, record)

    def _answers(self, engine: Any) -> list[Answered]:
        done, whole = 0, len(self.asked.prompts)

        def told(count: int) -> None:
            nonlocal done
            done += count
            self.told("answers", done, whole)

        return answered(engine, self.asked.prompts, self.work, told)

    def _features(self, features: Features, target: Any, texts: Sequence[Answered]) -> int:
        done = 0

        def told(count: int) -> None:
            nonlocal done
            done += count
            self.told("hidden states", done, len(texts))

        return features.make(target, texts, self.asked.options.shards_mb << 20, told)

    def _step(self, progress: Progress) -> None:
        self.told("steps", progress.step, self.asked.options.steps)

    def _card(self, problem: Distillation, progress: Progress, texts: Sequence[Answered]) -> Card:
        spec, options, trainee = self.asked.drafter.spec, self.asked.options, problem.trainee
        name = self.asked.record["target"].get("model") or self.asked.record["target"]["name"]
        training = {
            "command": self.command, "steps": progress.step,
            "best_step": progress.best[1] if progress.best else None, "seed": options.seed,
            "texts": len(texts), "tokens": sum(len(one.answer) for one in texts),
            "task": self.asked.record["task"], "options": self.asked.record["train"],
            "looks": progress.looks,
        }  # fmt: skip
        about = {"name": str(name), **fingerprint(trainee.target)}
        names, alphas = held_out(problem)
        return Card(
            spec.name, trainee.described(), discreet(about), discreet(training), alphas, names
        )  # fmt: skip


def _fresh(out: Path, work: Path) -> bool:
    """Nothing is in it but ``work``, if that, empty: what a begin leaves that the disk had no room for."""
    return all(place == work and not any(work.iterdir()) for place in out.iterdir())


def trainee_of(drafter: Part) -> type[Trainee]:
    """What the drafter's spec names."""
    assert isinstance(drafter.spec, DrafterSpec)
    named = imported(drafter.spec.trainee)
    if not (isinstance(named, type) and issubclass(named, Trainee) and hasattr(named, "Shape")):
        raise ConfigError(
            f"drafter={drafter.spec.name} names {drafter.spec.trainee!r} as its trainee, which is no "
            "Trainee class with a Shape."
        )
    return named


@torch.inference_mode()
def held_out(problem: Distillation) -> tuple[list[str], dict[str, list[float]]]:
    """The names of the guesses, and alpha of each, of all texts held out and of each group."""
    groups = sorted({problem.groups[at] for at in problem.held})
    sums, whole = {}, dict[str, tuple[float, int]]()
    for group in groups:
        sums[group] = problem.alphas([at for at in problem.held if problem.groups[at] == group])
        for guess, (hits, count) in sums[group].items():
            before = whole.get(guess, (0.0, 0))
            whole[guess] = before[0] + hits, before[1] + count
    return list(whole), {name: _means(one) for name, one in {"all": whole, **sums}.items()}


def _means(sums: Mapping[str, tuple[float, int]]) -> list[float]:
    return [round(hits / count, 4) if count else 0.0 for hits, count in sums.values()]


def _frequent(texts: Sequence[Answered], size: int | None, vocab_size: int) -> Tensor | None:
    """The most frequent ids of the answers, ascending; None: all."""
    if size is None or size >= vocab_size:
        return None
    counts = Counter(token for one in texts for token in one.answer)
    ranked = sorted(range(vocab_size), key=lambda token: (-counts[token], token))
    return torch.tensor(sorted(ranked[:size]))


def _split(texts: Sequence[Answered], every: int) -> tuple[list[int], list[int]]:
    """Texts to train on, and texts that are held out: one in so many of each group."""
    seen: Counter[str] = Counter()
    train: list[int] = []
    held: list[int] = []
    for at, one in enumerate(texts):
        (held if seen[one.group] % every == 0 else train).append(at)
        seen[one.group] += 1
    if not train or not held:
        raise InputError(f"{len(texts)} answers are too few to train on some and hold out others.")
    return train, held
