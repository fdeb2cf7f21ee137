"""What a run goes on from: weights and the optimizer's moments, in folders that are there whole or not
at all. Safetensors and JSON only."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import Tensor, nn

from ..errors import InputError

NAME = "step-"
WEIGHTS, MOMENTS, ABOUT = "weights.safetensors", "moments.safetensors", "state.json"
KINDS = ("exp_avg", "exp_avg_sq")


def save_state(
    folder: Path,
    step: int,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    about: dict[str, Any],
) -> None:
    """Writes the state behind ``step`` steps, and then takes away the one before.

    Raises:
        InputError: it cannot be written; the state before is still there.
    """
    partial, whole = folder / f"{NAME}{step:07d}.partial", folder / f"{NAME}{step:07d}"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        save_model(module, str(partial / WEIGHTS))  # tied ones once
        save_file(_moments(module, optimizer), partial / MOMENTS)
        (partial / ABOUT).write_text(json.dumps({**about, "step": step}, indent=1) + "\n", "utf-8")
        shutil.rmtree(whole, ignore_errors=True)
        os.replace(partial, whole)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise InputError(f"{whole} cannot be written: {error}.") from None
    for old in _states(folder):
        if old != whole:
            shutil.rmtree(old, ignore_errors=True)


def load_state(
    folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Any] | None:
    """Takes up the newest state, and gives what was written about it; None if there is none.

    Raises:
        InputError: it is broken, or of another module.
    """
    states = list(_states(folder))
    if not states:
        return None
    newest = states[-1]
    try:
        about: dict[str, Any] = json.loads((newest / ABOUT).read_text("utf-8"))
        load_model(module, newest / WEIGHTS)
        _restore(module, optimizer, load_file(newest / MOMENTS), int(about["step"]))
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise InputError(f"{newest} is no state of this run: {_first_line(error)}.") from None
    return about


def _states(folder: Path) -> Iterator[Path]:
    """Whole states, the oldest first."""
    for place in sorted(folder.glob(f"{NAME}*")):
        if place.suffix != ".partial":
            yield place


def _moments(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{kind}/{name}": optimizer.state[parameter][kind].contiguous()
        for name, parameter in module.named_parameters()
        if parameter in optimizer.state
        for kind in KINDS
    }


def _restore(
    module: nn.Module, optimizer: torch.optim.Optimizer, moments: dict[str, Tensor], step: int
) -> None:
    for name, parameter in module.named_parameters():
        if f"{KINDS[0]}/{name}" in moments:
            own = {kind: moments[f"{kind}/{name}"].to(parameter.device) for kind in KINDS}
            optimizer.state[parameter] = {"step": torch.tensor(float(step)), **own}


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".:") if str(error).strip() else repr(error)
