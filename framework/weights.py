"""Weights of a plugin's own network: safetensors only, and refused in a sentence where they do not fit."""

from __future__ import annotations

from typing import TypeVar

import torch

from .errors import ConfigError, InputError
from .interfaces import Target

Net = TypeVar("Net", bound=torch.nn.Module)


def load_weights(net: Net, path: str, target: Target) -> Net:
    """Fills a network from a safetensors file and puts it on the target's device, ready to draft.

    Raises:
        InputError: the file is not there, or is no safetensors file.
        ConfigError: it holds the weights of another network, or of one for another vocabulary.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_model

    try:
        load_model(net, path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"path={path} is not a safetensors file: {error}.") from None
    except RuntimeError as error:
        lines = [line.strip().rstrip(".") for line in str(error).splitlines()]
        raise ConfigError(
            f"path={path} does not fit the network for {target.vocab_size} ids: {'; '.join(lines[1:3])}."
        ) from None
    return net.to(target.device).eval()
