"""Training a small transformer: new, cut out of the target, or one that is there."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..framework.checks import check_whole
from ..framework.errors import ConfigError
from ..framework.heads import LMHead
from ..framework.interfaces import Target
from ..framework.models import layer_list, load_model, load_tokenizer
from ..framework.trained import Card, write_model
from ..framework.training.trainee import Guess, Texts, Trainee
from ..framework.vocabulary import OwnIds, check_same_tokens

if TYPE_CHECKING:
    from .builtin import CausalLMConfig

INNER = 3  # width of the feed-forward part, in hidden sizes
CONTEXT = 8192  # positions, where the target has no bound of its own


@dataclass
class CausalLMShape:
    """A small Llama, a model like the target with some of its layers, or a given model.

    Args:
        layers, hidden_size, heads: of a new one; half as many heads share their keys and values.
        from_layers: begin as these layers of the target, counted from 1, with its embeddings and head; the
            other sizes are then the target's.
        from_model: begin as this model, of the same tokens; a folder or hub id. Its sizes are its own.
    """

    layers: int = 2
    hidden_size: int = 128
    heads: int = 4
    from_layers: list[int] = field(default_factory=list)
    from_model: str | None = None

    def __post_init__(self) -> None:
        check_whole("train.shape.layers", self.layers, 1, 256)
        check_whole("train.shape.heads", self.heads, 1, 256)
        check_whole("train.shape.hidden_size", self.hidden_size, 8, 1 << 16)
        if self.hidden_size % (2 * self.heads):
            raise ConfigError(
                f"train.shape.hidden_size={self.hidden_size} is not possible with train.shape.heads={self.heads}; "
                "each head needs an even share of it."
            )
        for layer in self.from_layers:
            check_whole("train.shape.from_layers", layer, 1, 10**4)
        if self.from_layers and self.from_model:
            raise ConfigError(
                f"train.shape.from_model={self.from_model} is not possible beside train.shape.from_layers; it "
                "begins as one of them."
            )


class CausalLMTrainee(Trainee):
    """A model with a forward of its own; it reads nothing of the target."""

    Shape = CausalLMShape

    def __init__(
        self,
        config: CausalLMConfig,
        target: Target,
        shape: CausalLMShape,
        ids: Tensor | None = None,
    ) -> None:
        super().__init__(config, target, shape, ids)
        model: Any = getattr(target, "model", None)
        if model is None:
            raise ConfigError(
                f"drafter=causal_lm cannot be trained for target {type(target).__name__}; it needs the hidden "
                "states of a transformers model (target=causal_lm or target=smollm2)."
            )
        size = target.vocab_size if ids is None else len(ids) + 1
        if shape.from_model:
            made = given(shape.from_model, config, target, ids)
        elif shape.from_layers:
            made = cut_out(model, shape.from_layers, ids)
        else:
            made = _new(model, shape, size)
        self.module: Any = made.float().to(target.device)
        self.own = OwnIds(size, ids, target.vocab_size).to(target.device)

    def guesses(self, texts: Texts) -> Sequence[Guess]:
        out = self.module.base_model(input_ids=self.own.fed(texts.ids), use_cache=False)
        return [Guess(out[0], ahead=1, position=0)]

    def logits(self, states: Tensor) -> Tensor:
        logits = LMHead.of_model(self.module, self.own.vocab_size).narrow(states)
        return logits if self.ids is None else logits[..., : self.own.last]

    def write(self, folder: Path, card: Card) -> None:
        """As transformers writes a model; with ids of its own, the map beside it."""
        write_model(folder, self.module, self.target.tokenizer, self.ids, card)


def _new(model: Any, shape: CausalLMShape, size: int) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    context = getattr(model.config.get_text_config(), "max_position_embeddings", None) or CONTEXT
    config = LlamaConfig(
        vocab_size=size, hidden_size=shape.hidden_size, intermediate_size=INNER * shape.hidden_size,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        num_key_value_heads=max(1, shape.heads // 2), max_position_embeddings=context,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    made: nn.Module = LlamaForCausalLM(config)
    return made


def given(name: str, config: CausalLMConfig, target: Target, ids: Tensor | None) -> Any:
    """A model that is there, to be trained further.

    Raises:
        ConfigError: it has other tokens than the target, or is to have fewer.
    """
    if ids is not None:
        raise ConfigError(
            f"train.vocabulary={len(ids)} is not possible with train.shape.from_model={name}, which has rows for "
            "ids of its own; use train.vocabulary=null."
        )
    model = load_model(name, config)
    size = int(model.config.get_text_config().vocab_size)
    check_same_tokens(target, load_tokenizer(name), size)
    return model


def cut_out(model: Any, layers: Sequence[int], ids: Tensor | None) -> nn.Module:
    """A copy of a model with some of its layers, counted from 1, and with some of its ids."""
    from transformers import AutoModelForCausalLM

    config = copy.deepcopy(model.config)
    depth = int(config.num_hidden_layers)
    for layer in layers:
        check_whole("train.shape.from_layers", layer, 1, depth)
    config.num_hidden_layers = len(layers)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[layer - 1] for layer in layers]
    if ids is not None:
        config.vocab_size = len(ids) + 1
    for key in vars(config):  # a run that goes on would drop out others
        if key.endswith(("dropout", "_pdrop")):
            setattr(config, key, 0.0)
    made: Any = AutoModelForCausalLM.from_config(config)
    made.load_state_dict(_chosen(model, layers, ids))
    return made  # type: ignore[no-any-return]


def _chosen(model: Any, layers: Sequence[int], ids: Tensor | None) -> dict[str, Tensor]:
    """The state of the model that is cut out."""
    prefix = f"{model.base_model_prefix}.{layer_list(model, 'train.shape.from_layers')}."
    found: dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        number, _, rest = name.removeprefix(prefix).partition(".")
        if not name.startswith(prefix):
            found[name] = value
        for place, layer in enumerate(layers):
            if name.startswith(prefix) and int(number) == layer - 1:
                found[f"{prefix}{place}.{rest}"] = value
    return found if ids is None else _reduced(model, found, ids)


def _reduced(model: Any, found: dict[str, Tensor], ids: Tensor) -> dict[str, Tensor]:
    """With rows for some ids; a further one, for all others, begins as the mean of all."""
    rows = [*model.get_input_embeddings().parameters(), *model.get_output_embeddings().parameters()]
    by_id = {
        name
        for name, value in model.named_parameters(remove_duplicate=False)
        if any(value is one for one in rows)
    }
    ids = ids.to(rows[0].device)
    return {
        name: torch.cat([value[ids], value.mean(0, keepdim=True)]) if name in by_id else value
        for name, value in found.items()
    }
