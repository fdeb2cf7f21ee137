"""A small transformer as drafter: the paper's main approximation model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..framework.bases import StepSession
from ..framework.cache import RaggedModel, cache_bytes, pad
from ..framework.device import upload
from ..framework.interfaces import Context, Drafter, Round, Target
from ..framework.models import check_model, load_model, load_tokenizer, max_context, model_bytes
from ..framework.targets.causal_lm import prepare
from ..framework.vocabulary import check_same_tokens, fit_vocabulary

if TYPE_CHECKING:
    from .builtin import CausalLMConfig

PREFILL_CHUNK = 512


class CausalLMDrafter(Drafter):
    """Any causal LM with the target's tokens; its cache is its own and ragged.

    Args:
        model: the drafting model; on the target's device or on another one.
        target: what it drafts for.
        tokenizer: compared with the target's, token by token.
    """

    def __init__(self, model: Any, target: Target, tokenizer: Any = None) -> None:
        check_model(model)
        check_same_tokens(target, tokenizer, int(model.config.get_text_config().vocab_size))
        self.model = model.eval()
        self.max_context = max_context(model.config)

    @classmethod
    def from_config(cls, config: CausalLMConfig, target: Target) -> CausalLMDrafter:
        """Loads ``config.model`` from the hub or a folder."""
        model = load_model(config.model, config, config.revision, config.trust_remote_code)
        tokenizer = load_tokenizer(config.model, config.revision, config.trust_remote_code)
        return cls(prepare(model, config), target, tokenizer)

    def start(self, context: Context) -> ModelSession:
        return ModelSession(self.model, self.max_context, context)

    def session_bytes(self, rows: int, capacity: int) -> int:
        return cache_bytes(self.model, rows, min(capacity, self.max_context or capacity))

    def weight_bytes(self) -> int:
        return model_bytes(self.model)


class ModelSession(StepSession):
    """The drafting model's ragged cache.

    Kept entries are those of committed ids. A round leaves one id to take in (the newest), or two
    when the whole draft stood: the last drafted token was proposed but never fed.
    """

    def __init__(self, model: Any, limit: int | None, context: Context) -> None:
        super().__init__(context)
        self.model = model
        self.capacity = min(context.capacity, limit or context.capacity)
        self.ragged = RaggedModel(model, context.rows, self.capacity)
        self.last_id = int(model.config.get_text_config().vocab_size) - 1
        prompts = [self._known(row[:-1][: self.capacity]) for row in context.tokens]
        self.ragged.prefill(prompts, PREFILL_CHUNK)
        self._fed = [0] * context.rows  # drafted tokens in the cache, behind its length

    def limits(self, gammas: list[int]) -> list[int]:
        """A drafter whose context is full stops drafting; the round is then a plain one."""
        lengths = map(len, self.context.tokens)
        return [
            max(0, min(gamma, self.capacity - length + 1)) if length <= self.capacity else 0
            for gamma, length in zip(gammas, lengths, strict=True)
        ]

    def propose(self, gammas: list[int]) -> Any:
        draft = super().propose(gammas)
        self._fed = [max(0, length - 1) for length in draft.lengths]
        return draft

    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        if not drafted:
            return self._catch_up()
        tokens = drafted[-1].unsqueeze(1).to(self.model.device)
        counts = self.drafting(len(drafted))
        logits = self.ragged.forward(tokens, counts, ahead=len(drafted) - 1)
        return self._out(logits[:, -1])

    def observe(self, outcome: Round) -> None:
        kept = [min(row.accepted, fed) for row, fed in zip(outcome.rows, self._fed, strict=True)]
        self.ragged.advance(kept)
        self._fed = [0] * len(kept)

    def select(self, rows: list[int]) -> None:
        self.ragged.select(rows)
        self._fed = [self._fed[row] for row in rows]

    def _catch_up(self) -> Tensor:
        """Takes in the committed ids that are missing, and gives the logits behind the newest."""
        lengths = self.ragged.lengths
        missing = [
            self._known(row[length : self.capacity])
            for row, length in zip(self.context.tokens, lengths, strict=True)
        ]
        counts = [len(row) for row in missing]
        logits = self.ragged.forward(pad(missing, self.model.device), counts)
        self.ragged.advance(counts)
        last = upload([max(count - 1, 0) for count in counts], logits.device)
        return self._out(logits[torch.arange(len(counts), device=logits.device), last])

    def _known(self, tokens: list[int]) -> list[int]:
        """A committed id that this model lacks is read as its last one: a worse draft, no crash."""
        return [min(token, self.last_id) for token in tokens]

    def _out(self, logits: Tensor) -> Tensor:
        return fit_vocabulary(logits, self.context.vocab_size).to(self.context.device)
