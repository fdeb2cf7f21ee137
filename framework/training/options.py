"""How weights are fitted: the values of the loop, and their only defaults. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..checks import check_choice, check_range, check_whole
from ..errors import ConfigError

COSINE, TRAPEZOID = "cosine", "trapezoid"
SCHEDULES = (COSINE, TRAPEZOID)
PRECISIONS = ("auto", "float32", "bfloat16")
STORED = ("float32", "bfloat16", "float16")


@dataclass
class LoopOptions:
    """How weights are fitted.

    Args:
        steps: of the optimizer, in all.
        accumulate: batches whose gradients make one step.
        lr: the highest learning rate.
        warmup: steps in which it rises from 0.
        schedule: ``cosine`` falls to a tenth; ``trapezoid`` stays, and falls to 0 in a straight line over
            the last ``decay`` of the steps, so that a run can be made longer while it is on.
        decay: that share.
        weight_decay: of matrices; vectors have none.
        clip: the largest norm of a step's gradient.
        seed: of the order of the examples, and of new weights.
        precision: ``auto`` is bfloat16 on a GPU and float32 elsewhere; weights are float32 in any case.
        evaluate_every: steps between looks at what is held out.
        patience: looks without a better one after which it ends; null never does.
        keep_every: steps between states that a killed run goes on from.
    """

    steps: int = 1000
    accumulate: int = 1
    lr: float = 1e-3
    warmup: int = 50
    schedule: str = COSINE
    decay: float = 0.2
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    precision: str = "auto"
    evaluate_every: int = 200
    patience: int | None = None
    keep_every: int = 200

    def __post_init__(self) -> None:
        for key in ("steps", "accumulate", "evaluate_every", "keep_every"):
            check_whole(f"train.{key}", getattr(self, key), 1, 10**9)
        check_whole("train.warmup", self.warmup, 0, 10**9)
        check_whole("train.seed", self.seed, 0, (1 << 63) - 1)
        check_range("train.lr", self.lr, 1e-9, 10.0)
        check_range("train.decay", self.decay, 0.0, 1.0)
        check_range("train.weight_decay", self.weight_decay, 0.0, 10.0)
        check_range("train.clip", self.clip, 1e-6, 1e6)
        check_choice("train.schedule", self.schedule, SCHEDULES)
        check_choice("train.precision", self.precision, PRECISIONS)
        if self.patience is not None:
            check_whole("train.patience", self.patience, 1, 10**6)


OBJECTIVES = ("ce", "kl", "reverse_kl", "tv")


@dataclass
class TrainOptions(LoopOptions):
    """How ``foredraft train`` goes about it; the keys of ``train``.

    Args:
        shape: of the new network; which keys there are depends on the drafter.
        vocabulary: how many of the most frequent ids of the answers it drafts; null: all ids.
        objective: weights of losses: ``ce``, ``kl``, ``reverse_kl``, ``tv`` (1 - alpha).
        temperature: at which the drafter's law is compared with the target's.
        batch_size: texts of a batch.
        width: tokens of a text that are kept, the last ones of prompt and answer.
        held_out: one prompt in so many is not trained on.
        shards_mb: the most megabytes of hidden states on the disk; texts beyond are left out.
        stored: what the weights are written as.
        tensorboard: whether the learning curve is written for TensorBoard.
    """

    lr: float = 3e-3
    shape: dict[str, Any] = field(default_factory=dict)
    vocabulary: int | None = None
    objective: dict[str, float] = field(default_factory=lambda: {"kl": 1.0, "tv": 1.0})
    temperature: float = 1.0
    batch_size: int = 8
    width: int = 512
    held_out: int = 8
    shards_mb: int = 4096
    stored: str = "float32"
    tensorboard: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("train.temperature", self.temperature, 0.05, 10.0)
        check_whole("train.batch_size", self.batch_size, 1, 4096)
        check_whole("train.width", self.width, 4, 1 << 20)
        check_whole("train.held_out", self.held_out, 2, 10**6)
        check_whole("train.shards_mb", self.shards_mb, 1, 10**8)
        check_choice("train.stored", self.stored, STORED)
        if self.vocabulary is not None:
            check_whole("train.vocabulary", self.vocabulary, 2, 10**7)
        for name, weight in self.objective.items():
            check_choice("train.objective", name, OBJECTIVES)
            check_range(f"train.objective.{name}", weight, 0.0, 1e6)
        if not any(self.objective.values()):
            raise ConfigError(
                f"train.objective={self.objective!r} is not possible; it must give a weight to one of "
                f"{', '.join(OBJECTIVES)}."
            )
