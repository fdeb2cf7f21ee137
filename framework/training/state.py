"""What a run goes on from: weights, the optimizer's moments and the best weights so far, in folders that
are there whole or not at all. Safetensors and JSON only.

All three lie in one folder, so that a killed run can never go on with weights of one time and a best of
another.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import Tensor, nn

from ..errors import InputError

NAME = "step-"
WEIGHTS, MOMENTS, ABOUT = "weights.safetensors", "moments.safetensors", "state.json"
BEST = "best.safetensors"
KINDS = ("exp_avg", "exp_avg_sq")
Weights = Mapping[str, Tensor]
"""By name, on the CPU, tied ones once."""


def save_state(
    folder: Path,
    step: int,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    about: dict[str, Any],
    best: Weights | None = None,
) -> None:
    """Writes the state behind ``step`` steps, and then takes away the one before.

    Args:
        best: weights to keep beside; None if they are the module's own.

    Raises:
        InputError: it cannot be written; the state before is still there.
    """
    partial, whole = folder / f"{NAME}{step:07d}.partial", folder / f"{NAME}{step:07d}"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        save_model(module, str(partial / WEIGHTS))  # tied ones once
        save_file(_moments(module, optimizer), partial / MOMENTS)
        if best is not None:
            save_file(dict(best), partial / BEST)
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
) -> tuple[dict[str, Any], Weights] | None:
    """Takes up the newest state, and gives what was written about it and the best weights; None if there
    is none.

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
        best = _best(newest, module, about)
    except (OSError, ValueError, LookupError, TypeError, RuntimeError, SafetensorError) as error:
        raise InputError(f"{newest} is no state of this run: {_first_line(error)}.") from None
    return about, best


def weights_of(module: nn.Module) -> Weights:
    """A copy of its weights."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, value in module.state_dict(keep_vars=True).items():
        if id(value) not in seen:
            found[name] = value.detach().to("cpu", copy=True).contiguous()
        seen.add(id(value))
    return found


@torch.no_grad()
def put_back(module: nn.Module, weights: Weights) -> None:
    """Gives a module the weights that ``weights_of`` copied."""
    own = module.state_dict()
    for name, value in weights.items():
        own[name].copy_(value)


def _best(newest: Path, module: nn.Module, about: dict[str, Any]) -> Weights:
    own = weights_of(module)
    if about["best"][1] == about["step"]:
        return own
    best = load_file(newest / BEST)
    if {name: value.shape for name, value in best.items()} != {
        name: value.shape for name, value in own.items()
    }:
        raise ValueError(f"{BEST} has other weights")
    return best


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
