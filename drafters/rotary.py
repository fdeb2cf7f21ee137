"""Angles of rotary positions (Su et al. 2021, arXiv:2104.09864), as a model's config describes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..framework.errors import ConfigError

THETA = 10_000.0
POSSIBLE = ("default", "linear", "llama3")


def rotations(theta: float, head_size: int) -> Tensor:
    """The angle by which each pair of a head turns per place, ``[head_size / 2]`` float32."""
    found: Tensor = theta ** -(torch.arange(0, head_size, 2, device="cpu").float() / head_size)
    return found


def theta_of(config: Mapping[str, Any]) -> float:
    """The base of a config's rotary positions; 10,000 where it names none."""
    return float(_parameters(config).get("rope_theta") or config.get("rope_theta") or THETA)


def scaled_rotations(config: Mapping[str, Any], head_size: int, where: str) -> Tensor:
    """The angles by a whole config, scaling included.

    Raises:
        ConfigError: it says something else, or scales them in a way that is not supported.
    """
    scaling = _parameters(config) or config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in POSSIBLE:
        raise ConfigError(
            f"{where} scales its positions by {kind!r}; {', '.join(POSSIBLE)} are possible."
        )
    try:
        plain = rotations(theta_of(config), head_size)
        if kind == "linear":
            return plain / float(scaling["factor"])
        return _llama3(plain, scaling) if kind == "llama3" else plain
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        raise ConfigError(
            f"{where} describes its positions by {dict(scaling)}, which is not whole."
        ) from None


def _llama3(plain: Tensor, scaling: Mapping[str, Any]) -> Tensor:
    """Llama 3.1's: slow turns are slowed down by the factor, fast ones stay, those between are mixed."""
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = float(scaling["original_max_position_embeddings"]) * plain / (2 * math.pi)
    share = ((turns - low) / (high - low)).clamp(0, 1)
    return share * plain + (1 - share) * plain / float(scaling["factor"])


def _parameters(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """transformers 5 keeps them together, in some models for each kind of attention."""
    found = config.get("rope_parameters")
    found = found if isinstance(found, dict) else {}
    inner = found.get("full_attention")
    return inner if isinstance(inner, dict) else found
