"""Parts of a causal LM that run as models: its first layers, those behind them, any of them.

A view shares parameters and layers with its model; only the list of layers, the config that counts
them and, for the first layers, the final norm are its own.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from .errors import ConfigError
from .models import layer_list

_settled: WeakSet[nn.Module] = WeakSet()


class Resumed(nn.Module):
    """A layer that takes hidden states given from outside, whatever comes to it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.given: Tensor | None = None

    def forward(self, hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The layer's output for what was given."""
        return self.layer(self.given, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:  # models ask layers for their kind
            return getattr(super().__getattr__("layer"), name)


@dataclass(frozen=True)
class View:
    """Some layers of a model.

    Args:
        model: a causal LM in its own right.
        kept: its layers, counted from 0 in the whole model.
        shows: by layer of the whole model whose hidden states it makes as the whole model does: their
            place among its own.
        begin: where hidden states are put in; None where it begins with ids.
        normed: whether the final norm is among its parts.
    """

    model: Any
    kept: tuple[int, ...]
    shows: Mapping[int, int] = field(default_factory=dict)
    begin: Resumed | None = None
    normed: bool = True


def first_layers(model: Any, layers: int, key: str) -> View:
    """The first ``layers`` layers. Its base model gives the hidden states behind them, without the
    final norm."""
    view = _with_layers(model, range(layers), key)
    setattr(view.base_model, final_norm(model, key), nn.Identity())
    shows = {layer: layer for layer in range(layers + 1)}
    return View(view, tuple(range(layers)), shows, normed=False)


def rest_of(model: Any, layers: int, key: str) -> View:
    """What is behind the first ``layers`` layers, up to the logits."""
    depth = int(model.config.get_text_config().num_hidden_layers)
    view = _with_layers(model, range(layers, depth), key)
    name = layer_list(model, key)
    own = getattr(view.base_model, name)
    begin = Resumed(own[0])
    setattr(view.base_model, name, nn.ModuleList([begin, *own[1:]]))
    shows = {layer: layer - layers for layer in range(layers + 1, depth + 1)}
    return View(view, tuple(range(layers, depth)), shows, begin)


def some_layers(model: Any, kept: Sequence[int], key: str) -> View:
    """The model with these of its layers, counted from 0, in their order."""
    return View(_with_layers(model, kept, key), tuple(kept))


def final_norm(model: Any, key: str) -> str:
    """The name, in its base model, of the norm before the LM head.

    Args:
        key: what a refusal says is not possible without it.
    """
    names = [
        name for name, child in model.base_model.named_children() if "Norm" in type(child).__name__
    ]
    if not names:
        raise ConfigError(f"{key} found no final norm in {type(model.base_model).__name__}.")
    return str(names[-1])


@torch.inference_mode()
def settle(model: Any) -> None:
    """transformers hooks a model's layers when hidden states are first asked for, and notes that on
    the model: a view made before would hook the layers that it shares a second time."""
    if model not in _settled:
        ids = torch.zeros(1, 1, dtype=torch.int64, device=model.device)
        model(input_ids=ids, use_cache=False, output_hidden_states=True)
        _settled.add(model)


def _with_layers(model: Any, kept: Sequence[int], key: str) -> Any:
    settle(model)
    view, base = _shallow(model), _shallow(model.base_model)
    name = layer_list(model, key)
    setattr(base, name, nn.ModuleList([getattr(base, name)[layer] for layer in kept]))
    base.config = copy.copy(base.config)
    if getattr(base.config, "layer_types", None):
        base.config.layer_types = [base.config.layer_types[layer] for layer in kept]
    base.config.num_hidden_layers = len(kept)
    setattr(view, model.base_model_prefix, base)
    return view


def _shallow(module: Any) -> Any:
    """A copy that shares parameters and children, but whose children can be replaced."""
    twin = copy.copy(module)
    twin._modules = dict(module._modules)
    return twin
