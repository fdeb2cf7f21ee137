"""The loop that fits weights: gradient steps, looks at what is held out, states to go on from.

What is trained is a ``Problem``. Its batches are a function of the step alone, so a run that was killed
and goes on makes the same steps as one that was not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite, isnan
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from ..errors import InputError
from .options import LoopOptions
from .schedule import rate
from .state import Weights, load_state, put_back, save_state, weights_of

BETAS = (0.9, 0.95)


class Problem(Protocol):
    """Something to fit."""

    module: nn.Module

    def batch(self, number: int) -> Any:
        """The batch of this number, counted from the begin of the run, on the module's device."""

    def loss(self, batch: Any) -> Tensor:
        """A scalar."""

    def held_out(self) -> dict[str, float]:
        """How it does on what it is not trained on; ``score`` is better the higher it is."""


@dataclass
class Progress:
    """Where a run is.

    Args:
        step: steps made.
        loss: the mean over the steps since the last look.
        looks: what ``held_out`` said, with the step and the loss of each; the first is before any step, and
            has no loss.
        best: the highest score so far, and the step it was reached at: of equal ones the first.
        weights: those that had it.
    """

    step: int = 0
    loss: float = float("nan")
    looks: list[dict[str, float]] = field(default_factory=list)
    best: tuple[float, int] | None = None
    weights: Weights = field(default_factory=dict, repr=False, compare=False)

    def stale(self, patience: int | None) -> bool:
        """Whether the last ``patience`` looks were none better than the best."""
        if patience is None or self.best is None:
            return False
        return sum(look["step"] > self.best[1] for look in self.looks) >= patience


Told = Callable[[Progress], None]


def unheard(progress: Progress) -> None:
    """What hears nothing."""


def fit(
    problem: Problem, options: LoopOptions, folder: Path, told: Told = unheard,
    looked: Told = unheard,
) -> Progress:  # fmt: skip
    """Fits the module, from the newest state in ``folder`` if there is one, and leaves it with the weights
    of the best look.

    Args:
        told: hears of each step.
        looked: hears of each look, before a state knows of it: what it fails to write comes again.

    Raises:
        InputError: a state cannot be written or read, or the loss is no number any more.
    """
    module = problem.module
    device = next(module.parameters()).device
    # Its precision would hold for the whole process, and so for every later training in it.
    accelerator = Accelerator(cpu=device.type == "cpu", mixed_precision="no")
    optimizer = optimizer_of(module, options)
    progress, since = _taken_up(load_state(folder, module, optimizer))
    losses = [torch.tensor(loss, device=device) for loss in since]
    if not progress.looks:
        _look(problem, progress, looked)
    module.train()
    while progress.step < options.steps and not progress.stale(options.patience):
        for group in optimizer.param_groups:
            group["lr"] = rate(progress.step, options)
        losses.append(_step(problem, optimizer, options, progress.step, accelerator))
        progress.step += 1
        last = progress.step == options.steps
        if last or progress.step % options.evaluate_every == 0:
            progress.loss = _checked(float(torch.stack(losses).mean()), progress.step)
            _look(problem, progress, looked)
            losses = []
        if last or progress.step % options.keep_every == 0:
            _keep(folder, module, optimizer, progress, losses)
        told(progress)
    put_back(module, progress.weights)
    module.eval()
    return progress


def optimizer_of(module: nn.Module, options: LoopOptions) -> torch.optim.AdamW:
    """AdamW; vectors (norms, biases) are not decayed."""
    own = [parameter for parameter in module.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in own if p.dim() > 1], "weight_decay": options.weight_decay},
        {"params": [p for p in own if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=options.lr, betas=BETAS)


def _step(
    problem: Problem,
    optimizer: torch.optim.Optimizer,
    options: LoopOptions,
    step: int,
    accelerator: Accelerator,
) -> Tensor:
    """One step of the optimizer, and its mean loss, which nothing waits for."""
    losses, device = [], next(problem.module.parameters()).device
    for part in range(options.accumulate):
        with torch.autocast(
            device.type, torch.bfloat16, enabled=_bfloat16(options, problem.module)
        ):
            loss = problem.loss(problem.batch(step * options.accumulate + part))
        accelerator.backward(loss / options.accumulate)
        losses.append(loss.detach())
    torch.nn.utils.clip_grad_norm_(problem.module.parameters(), options.clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return torch.stack(losses).mean()


def _look(problem: Problem, progress: Progress, looked: Told) -> None:
    problem.module.eval()
    with (
        torch.no_grad()
    ):  # not inference mode: what a module keeps of its first call is used in training
        found = problem.held_out()
    problem.module.train()
    loss = {"loss": progress.loss} if progress.step else {}
    progress.looks.append({"step": progress.step, **loss, **found})
    best = progress.best
    if best is None or isnan(best[0]) or found["score"] > best[0]:
        progress.best = found["score"], progress.step
        progress.weights = weights_of(problem.module)
    looked(progress)


def _checked(loss: float, step: int) -> float:
    if not isfinite(loss):
        raise InputError(
            f"the loss of the steps up to {step} is {loss}: weights have run away; a smaller train.lr or "
            "train.clip, in a new folder, may keep them."
        )
    return loss


def _keep(
    folder: Path,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    losses: list[Tensor],
) -> None:
    since = torch.stack(losses).tolist() if losses else []  # the last look
    about = {"looks": progress.looks, "best": progress.best, "losses": since}
    newest = progress.best is not None and progress.best[1] == progress.step
    best = None if newest else progress.weights
    save_state(folder, progress.step, module, optimizer, about, best)


def _taken_up(found: tuple[dict[str, Any], Weights] | None) -> tuple[Progress, list[float]]:
    """Where the run is, and the losses since its last look."""
    if found is None:
        return Progress(), []
    about, weights = found
    best, looks = about["best"], about["looks"]
    progress = Progress(
        int(about["step"]), looks[-1].get("loss", float("nan")), looks,
        (float(best[0]), int(best[1])), weights,
    )  # fmt: skip
    return progress, about["losses"]


def _bfloat16(options: LoopOptions, module: nn.Module) -> bool:
    on_gpu = next(module.parameters()).device.type == "cuda"
    return options.precision == "bfloat16" or (options.precision == "auto" and on_gpu)
