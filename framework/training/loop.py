"""The loop that fits weights: gradient steps, looks at what is held out, states to go on from.

What is trained is a ``Problem``. Its batches are a function of the step alone, so a run that was killed
and goes on makes the same steps as one that was not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from .options import LoopOptions
from .schedule import rate
from .state import load_state, save_state

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
        looks: what ``held_out`` said, with the step and the loss of each.
        best: the highest score so far, and the step it was reached at.
    """

    step: int = 0
    loss: float = float("nan")
    looks: list[dict[str, float]] = field(default_factory=list)
    best: tuple[float, int] | None = None

    def stale(self, patience: int | None) -> bool:
        """Whether the last ``patience`` looks were none better than the best."""
        if patience is None or self.best is None:
            return False
        return sum(look["step"] > self.best[1] for look in self.looks) >= patience


def fit(
    problem: Problem,
    options: LoopOptions,
    folder: Path,
    told: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Fits the module, from the newest state in ``folder`` if there is one.

    Args:
        told: hears of each step.

    Raises:
        InputError: a state cannot be written or read.
    """
    module = problem.module
    accelerator = Accelerator(
        cpu=next(module.parameters()).device.type == "cpu",
        mixed_precision="bf16" if _bfloat16(options, module) else "no",
    )
    optimizer = optimizer_of(module, options)
    about = load_state(folder, module, optimizer)
    progress = _taken_up(about)
    device = next(module.parameters()).device
    losses = [torch.tensor(loss, device=device) for loss in (about or {}).get("losses", ())]
    module.train()
    while progress.step < options.steps and not progress.stale(options.patience):
        for group in optimizer.param_groups:
            group["lr"] = rate(progress.step, options)
        losses.append(_step(problem, optimizer, options, progress.step, accelerator))
        progress.step += 1
        last = progress.step == options.steps
        if last or progress.step % options.evaluate_every == 0:
            _look(problem, progress, float(torch.stack(losses).mean()))
            losses = []
        if last or progress.step % options.keep_every == 0:
            save_state(folder, progress.step, module, optimizer, _about(progress, losses))
        told(progress)
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
    losses = []
    for part in range(options.accumulate):
        with accelerator.autocast():
            loss = problem.loss(problem.batch(step * options.accumulate + part))
        accelerator.backward(loss / options.accumulate)
        losses.append(loss.detach())
    torch.nn.utils.clip_grad_norm_(problem.module.parameters(), options.clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return torch.stack(losses).mean()


def _look(problem: Problem, progress: Progress, loss: float) -> None:
    problem.module.eval()
    with torch.inference_mode():
        found = problem.held_out()
    problem.module.train()
    progress.loss = loss
    progress.looks.append({"step": progress.step, "loss": loss, **found})
    if progress.best is None or found["score"] > progress.best[0]:
        progress.best = found["score"], progress.step


def _about(progress: Progress, losses: list[Tensor]) -> dict[str, Any]:
    since = torch.stack(losses).tolist() if losses else []  # the last look
    return {"looks": progress.looks, "best": progress.best, "losses": since}


def _taken_up(about: dict[str, Any] | None) -> Progress:
    if about is None:
        return Progress()
    best = about["best"] and (float(about["best"][0]), int(about["best"][1]))
    looks = about["looks"]
    loss = looks[-1]["loss"] if looks else float("nan")
    return Progress(int(about["step"]), loss, looks, best or None)


def _bfloat16(options: LoopOptions, module: nn.Module) -> bool:
    on_gpu = next(module.parameters()).device.type == "cuda"
    return options.precision == "bfloat16" or (options.precision == "auto" and on_gpu)
