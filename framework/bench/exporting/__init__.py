"""A configuration in the words of servers: what they can express of it, and what is lost, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import sglang, vllm
from .common import CARRIED, Exported, check

__all__ = ["SERVERS", "Exported", "export"]

SERVERS: dict[str, Callable[[Mapping[str, Any], int | None], Exported]] = {
    "vllm": vllm.export,
    "sglang": sglang.export,
}


def export(config: Mapping[str, Any], to: str, drafted: int | None = None) -> Exported:
    """A configuration for a server.

    Args:
        config: all of it as plain values, as ``as_dict`` gives.
        to: one of ``SERVERS``.
        drafted: tokens per round that were drafted on average, which stands for the gamma of an
            adaptive policy; None: unknown.

    Raises:
        ConfigError: the server has nothing like its drafter, or a value of it is missing.
    """
    if config["drafter"]["name"] in CARRIED:
        check(config)
    return SERVERS[to](config, drafted)
