"""Host values to the device without waiting for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def upload(values: Any, device: torch.device | str) -> Tensor:
    """A tensor of whole numbers or flags on the device.

    ``torch.tensor(values, device=...)`` would drain a CUDA stream first; a non-blocking copy of a
    host tensor does not, so that drafting can run ahead of the host.
    """
    return torch.as_tensor(values).to(device, non_blocking=True)
