"""Early exit: the target's first layers draft, on the target's own cache.

The idea of LayerSkip (Elhoushi et al. 2024, arXiv:2404.16710) without its training. Nothing is
copied and nothing is prefilled: committed entries of the first layers are the target's, and a
drafted token's entries are written where the target's own forward will write the same values.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from ..framework.bases import StepSession
from ..framework.checks import check_whole
from ..framework.context import Context
from ..framework.device import upload
from ..framework.errors import ConfigError
from ..framework.interfaces import Drafter, Target
from ..framework.models import layer_list
from ..framework.targets.causal_lm import CausalLM, CausalLMSession

if TYPE_CHECKING:
    from .builtin import EarlyExitConfig


class EarlyExit(Drafter):
    """Drafts with layers 1 to ``layers``, then the target's final norm and head."""

    def __init__(self, config: EarlyExitConfig, target: Target) -> None:
        if not isinstance(target, CausalLM):
            raise ConfigError(
                f"drafter=early_exit is not possible with target {type(target).__name__}; it runs the "
                "first layers of a transformers model (target=causal_lm or target=smollm2)."
            )
        depth = int(target.model.config.get_text_config().num_hidden_layers)
        check_whole("drafter.layers", config.layers, 1, depth - 1)
        self.view = first_layers(target.model, config.layers)

    def start(self, context: Context) -> EarlyExitSession:
        return EarlyExitSession(self.view, context)


class EarlyExitSession(StepSession):
    """No state of its own: the target's session holds the cache."""

    def __init__(self, view: Any, context: Context) -> None:
        super().__init__(context)
        self.view = view
        self.ragged = cast(CausalLMSession, context.target).ragged

    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        newest = drafted[-1].unsqueeze(1) if drafted else self._newest()
        counts = self.drafting(len(drafted))
        return self.ragged.forward(newest, counts, ahead=len(drafted), view=self.view)[:, -1]

    def _newest(self) -> Tensor:
        return upload([[row[-1]] for row in self.context.tokens], self.context.device)


def first_layers(model: Any, layers: int) -> Any:
    """A view of a causal LM that stops after ``layers`` layers: same parameters, no copy."""
    view, base = _shallow(model), _shallow(model.base_model)
    name = layer_list(model, "drafter=early_exit")
    setattr(base, name, getattr(base, name)[:layers])
    base.config = copy.copy(base.config)
    base.config.num_hidden_layers = layers
    setattr(view, model.base_model_prefix, base)
    return view


def _shallow(module: Any) -> Any:
    """A copy that shares parameters and children, but whose children can be replaced."""
    twin = copy.copy(module)
    twin._modules = dict(module._modules)
    return twin
