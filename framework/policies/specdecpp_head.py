"""The head of ``policy=specdecpp``: from what a drafter shows of a token to its chance to stand."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..errors import InputError
from ..files import written_whole

FORMAT = "foredraft-specdecpp-1"
FEATURES = ("log_confidence", "confidence", "entropy", "log_position", "log_confidence_before")
LEAST = 1e-6  # confidences below it tell no more


def features(confidence: Tensor, entropy: Tensor, position: Tensor | int, before: Tensor) -> Tensor:
    """What is known of a drafted token once it was drawn, ``[..., len(FEATURES)]`` float64.

    Args:
        confidence: ``[...]``, its probability in the law that it was drawn from.
        entropy: ``[...]``, of that law, in nats.
        position: how many tokens of the draft stand before it.
        before: ``[...]``, the sum of their log confidences.
    """
    own = confidence.double().clamp(LEAST, 1)
    place = torch.as_tensor(position, dtype=torch.float64, device=own.device)
    mean = before / place.clamp_min(1)
    columns = (own.log(), own, entropy, place.log1p(), mean)
    return torch.stack([column.double().expand_as(own) for column in columns], -1)


@dataclass(frozen=True)
class Head:
    """A logistic regression, or a network with one hidden layer; float64.

    Args:
        mean, scale: ``[features]``, of the training examples.
        inner: ``[hidden, features]`` and
        inner_bias: ``[hidden]``, the hidden layer; no rows make it a logistic regression.
        outer: ``[hidden]``, or ``[features]`` without a hidden layer.
        outer_bias: ``[1]``.
        about: what it was trained on, and how well it predicts; plain values.
    """

    mean: Tensor
    scale: Tensor
    inner: Tensor
    inner_bias: Tensor
    outer: Tensor
    outer_bias: Tensor
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def hidden(self) -> int:
        """Units of the hidden layer."""
        return self.inner.shape[0]

    def tensors(self) -> dict[str, Tensor]:
        """By name, without ``about``."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "about"}

    def logits(self, rows: Tensor) -> Tensor:
        """Log odds of acceptance: ``[..., features]`` -> ``[...]``."""
        rows = (rows - self.mean) / self.scale
        if self.hidden:
            rows = (rows @ self.inner.T + self.inner_bias).tanh()
        return rows @ self.outer + self.outer_bias

    def log_accept(self, rows: Tensor) -> Tensor:
        """Log of the chance of acceptance, the same shapes."""
        return torch.nn.functional.logsigmoid(self.logits(rows))

    def to(self, device: torch.device) -> Head:
        """The same on a device."""
        moved: dict[str, Any] = {name: value.to(device) for name, value in self.tensors().items()}
        return replace(self, **moved)

    def save(self, path: str | Path) -> None:
        """Writes a safetensors file, whole or not at all."""
        meta = {"format": FORMAT, "features": FEATURES, "about": self.about}
        tensors = {name: value.detach().contiguous() for name, value in self.tensors().items()}
        with written_whole(path) as partial:
            save_file(tensors, partial, metadata={"foredraft": json.dumps(meta)})

    @classmethod
    def load(cls, path: str) -> Head:
        """Reads what ``save`` wrote.

        Raises:
            InputError: the file is missing, damaged, or something else.
        """
        where = f"policy.path={path}"
        try:
            with safe_open(Path(path).expanduser(), framework="pt") as file:
                meta = json.loads((file.metadata() or {}).get("foredraft", "{}"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError, ValueError, RecursionError) as error:
            reason = " ".join(str(error).split()).rstrip(".")
            raise InputError(f"{where} is not a readable safetensors file: {reason}.") from None
        meta = meta if isinstance(meta, dict) else {}
        if meta.get("format") != FORMAT or meta.get("features") != list(FEATURES):
            raise InputError(
                f"{where} is not a file that 'foredraft fit policy=specdecpp' of this version wrote."
            )
        if not _consistent(tensors):
            raise InputError(f"{where} is damaged: its tensors do not fit together.")
        about = meta.get("about")
        return cls(**tensors, about=about if isinstance(about, dict) else {})


def _consistent(tensors: dict[str, Tensor]) -> bool:
    names = {f.name for f in fields(Head)} - {"about"}
    if tensors.keys() != names or any(t.dtype != torch.float64 for t in tensors.values()):
        return False
    width, inner = len(FEATURES), tensors["inner"]
    if inner.dim() != 2 or inner.shape[1] != width:
        return False
    hidden = inner.shape[0]
    due = {"mean": (width,), "scale": (width,), "inner": (hidden, width), "inner_bias": (hidden,),
           "outer": (hidden or width,), "outer_bias": (1,)}  # fmt: skip
    shapes = all(tuple(tensors[name].shape) == shape for name, shape in due.items())
    finite = all(bool(tensor.isfinite().all()) for tensor in tensors.values())
    return shapes and finite and bool((tensors["scale"] > 0).all())
