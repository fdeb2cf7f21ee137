"""What a run will allocate, checked before it does."""

from __future__ import annotations

import psutil
import torch

from .errors import ConfigError
from .interfaces import Drafter, Target


def check_fits(target: Target, drafter: Drafter, rows: int, capacity: int) -> int:
    """Returns the bytes of all caches, or refuses a run that cannot fit, with the numbers."""
    slots = capacity + drafter.max_nodes
    parts = {
        "target cache": target.session_bytes(rows, slots),
        "hidden states": len(drafter.reads) * target.hidden_bytes(rows, slots),
        "drafter cache": drafter.session_bytes(rows, capacity),
    }
    parts = {name: size for name, size in parts.items() if size or "cache" in name}
    needed, free = sum(parts.values()), free_bytes(target.device)
    if needed > free:
        detail = ", ".join(f"{name} {_mib(size)}" for name, size in parts.items())
        raise ConfigError(
            f"{rows} rows of up to {capacity} tokens need {_mib(needed)} ({detail}; "
            f"{needed / rows / capacity / 1024:.1f} KiB per row and token), but {_mib(free)} is free on "
            f"{target.device}; lower runtime.batch_size or max_new_tokens."
        )
    return needed


def free_bytes(device: torch.device) -> int:
    """Bytes that can still be allocated on the device."""
    if device.type == "cuda":
        # What torch's allocator holds without using it is free to us, if not to others.
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + held
    return int(psutil.virtual_memory().available)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
