"""Any transformers causal LM as a target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..cache import Branch, RaggedModel, cache_bytes
from ..interfaces import Target, TargetSession
from ..models import check_model, eos_ids, load_model, load_tokenizer, max_context
from ..records import Ahead
from ..resuming import Halves, halves_of, resume, resumes
from ..tree import Tree

if TYPE_CHECKING:
    from .builtin import CausalLMConfig, ModelConfig

PREFILL_CHUNK = 512


class CausalLM(Target):
    """A loaded transformers model.

    Args:
        model: a causal LM; it is put into evaluation mode and otherwise left as it is.
        tokenizer: its tokenizer, or None when only ids go in and out.

    Raises:
        ConfigError: when its state cannot be rolled back per row, with the reason.
    """

    trees = True

    def __init__(self, model: Any, tokenizer: Any = None) -> None:
        check_model(model)
        self.model, self.tokenizer = model.eval(), tokenizer
        config = model.config.get_text_config()
        self.vocab_size, self.depth = int(config.vocab_size), int(config.num_hidden_layers)
        self.max_context = max_context(model.config)
        self.eos_ids = eos_ids(model, tokenizer)
        self.device = model.device
        self._resumes: dict[int, bool] = {}

    @classmethod
    def from_config(cls, config: CausalLMConfig) -> CausalLM:
        """Loads ``config.model`` from the hub or a folder."""
        model = load_model(config.model, config, config.revision, config.trust_remote_code)
        tokenizer = load_tokenizer(config.model, config.revision, config.trust_remote_code)
        return cls(prepare(model, config), tokenizer)

    def start(self, rows: int, capacity: int) -> CausalLMSession:
        return CausalLMSession(self, rows, capacity)

    def resumes(self, layers: int) -> bool:
        """Whether its sessions can go on behind this layer (``TargetSession.resume``)."""
        if layers not in self._resumes:
            self._resumes[layers] = resumes(self.model, layers)
        return self._resumes[layers]

    def session_bytes(self, rows: int, capacity: int) -> int:
        return cache_bytes(self.model, rows, capacity)

    def hidden_bytes(self, rows: int, capacity: int) -> int:
        size = int(self.model.config.get_text_config().hidden_size)
        return rows * (capacity + 1) * size * int(self.model.dtype.itemsize)


def prepare(model: Any, config: ModelConfig) -> Any:
    """Applies what the config asks for beyond loading."""
    if config.kernels == "tuned":
        from ..kernels import tune

        return tune(model)
    return model


class CausalLMSession(TargetSession):
    """The ragged cache of one batch; ``ragged`` is open to drafters that share it."""

    def __init__(self, target: CausalLM, rows: int, capacity: int) -> None:
        self.vocab_size, self.device = target.vocab_size, target.device
        self.ragged = RaggedModel(target.model, rows, capacity)
        self._halves: dict[int, Halves] = {}

    def prefill(self, tokens: Sequence[Sequence[int]]) -> None:
        self.ragged.prefill([list(row) for row in tokens], PREFILL_CHUNK)

    def forward(self, tokens: Tensor, counts: list[int], tree: Tree | None = None) -> Tensor:
        branch = None if tree is None else whole_branch(tree)
        # device_map may end on another device.
        return self.ragged.forward(tokens, counts, branch=branch).to(self.device)

    def resume(self, tokens: Tensor, counts: list[int], ahead: Ahead) -> Tensor:
        if ahead.layers not in self._halves:
            model = self.ragged.model
            self._halves[ahead.layers] = halves_of(model, ahead.layers, "drafter=early_exit")
        halves = self._halves[ahead.layers]
        return resume(self.ragged, halves, tokens, counts, ahead).to(self.device)

    def advance(self, kept: list[list[int]]) -> None:
        self.ragged.keep(kept)

    def select(self, rows: list[int]) -> None:
        self.ragged.select(rows)

    def watch(self, layers: Sequence[int]) -> None:
        self.ragged.watch(layers)

    def hidden(self, layer: int) -> Tensor:
        return self.ragged.hidden(layer)


def whole_branch(tree: Tree) -> Branch:
    """The branch of a forward over the newest committed token and all of a tree's nodes."""
    root = nn.functional.pad
    depths = root(tree.depths + 1, (1, 0))
    visible = root(tree.ancestors, (1, 0), value=True)  # every node attends the newest token
    newest = torch.zeros_like(visible[:, :1])
    newest[..., 0] = True
    return Branch(depths, torch.cat([newest, visible], 1))
