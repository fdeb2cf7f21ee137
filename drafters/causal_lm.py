"""A small transformer as drafter: the paper's main approximation model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..framework.cache import Branch, RaggedModel, cache_bytes, pad
from ..framework.context import Context
from ..framework.device import upload
from ..framework.growth import Growth
from ..framework.interfaces import Drafter, Target
from ..framework.models import check_model, load_model, load_tokenizer, max_context, model_bytes
from ..framework.records import Round
from ..framework.specs import DraftKind
from ..framework.targets.causal_lm import prepare
from ..framework.trained import read_map
from ..framework.tree_bases import Frontier, TreeStepSession
from ..framework.vocabulary import OwnIds, check_same_tokens

if TYPE_CHECKING:
    from .builtin import CausalLMConfig
    from .builtin_nested import CascadeConfig

PREFILL_CHUNK = 512


class CausalLMDrafter(Drafter):
    """Any causal LM with the target's tokens; its cache is its own and ragged.

    Args:
        model: the drafting model; on the target's device or on another one.
        target: what it drafts for.
        tokenizer: compared with the target's, token by token.
        growth: how its trees grow; None drafts chains.
        ids: the target's ids that it has, if it has a reduced vocabulary (see ``OwnIds``).
    """

    def __init__(
        self,
        model: Any,
        target: Target,
        tokenizer: Any = None,
        growth: Growth | None = None,
        ids: Tensor | None = None,
    ) -> None:
        check_model(model)
        size = int(model.config.get_text_config().vocab_size)
        if ids is None:
            check_same_tokens(target, tokenizer, size)
        if growth is not None:
            growth.check_vocabulary(target.vocab_size if ids is None else len(ids))
        self.model, self.growth = model.eval(), growth
        self.ids = OwnIds(size, ids, target.vocab_size).to(model.device)
        self.max_context = max_context(model.config)
        self.kind = growth.kind if growth else DraftKind()
        self.max_nodes = growth.max_nodes if growth else 0

    @classmethod
    def from_config(cls, config: CausalLMConfig | CascadeConfig, target: Target) -> CausalLMDrafter:
        """Loads ``config.model`` from the hub or a folder."""
        ids = read_map(config.model, "causal_lm", target)
        model = load_model(config.model, config, config.revision, config.trust_remote_code)
        tokenizer = load_tokenizer(config.model, config.revision, config.trust_remote_code)
        return cls(prepare(model, config), target, tokenizer, config.growth, ids)

    def start(self, context: Context) -> ModelSession:
        return ModelSession(self, context)

    def session_bytes(self, rows: int, capacity: int) -> int:
        positions = min(capacity, self.max_context or capacity)
        return cache_bytes(self.model, rows, positions + self.max_nodes)

    def weight_bytes(self) -> int:
        return model_bytes(self.model)


class OwnCache:
    """The ragged cache of a drafting model, for sessions to build on.

    Kept entries are those of committed ids. A session opens it, lets it take in what is ``missing``
    with a forward, and keeps what was accepted behind that.
    """

    context: Context

    def open_cache(self, drafter: CausalLMDrafter, nodes: int = 0) -> None:
        """Takes in the committed ids but the newest, with room for ``nodes`` more of a tree."""
        self.model, self.ids, self.device = drafter.model, drafter.ids, drafter.model.device
        self.capacity = min(self.context.capacity, drafter.max_context or self.context.capacity)
        self.ragged = RaggedModel(self.model, self.context.rows, self.capacity + nodes)
        prompts = [self.ids.known(row[:-1][: self.capacity]) for row in self.context.tokens]
        self.ragged.prefill(prompts, PREFILL_CHUNK)

    def limits(self, gammas: list[int]) -> list[int]:
        """A drafter whose context is full stops drafting; the round is then a plain one."""
        lengths = map(len, self.context.tokens)
        return [
            max(0, min(gamma, self.capacity - length + 1)) if length <= self.capacity else 0
            for gamma, length in zip(gammas, lengths, strict=True)
        ]

    def missing(self) -> list[list[int]]:
        """The committed ids that are not in the cache: the newest at least, where there is room."""
        return [
            self.ids.known(row[length : self.capacity])
            for row, length in zip(self.context.tokens, self.ragged.lengths, strict=True)
        ]

    def to_target(self, logits: Tensor) -> Tensor:
        """The model's logits as the target's ids have them, where drafts have to lie."""
        return self.ids.logits(logits).to(self.context.device)


class ModelSession(OwnCache, TreeStepSession):
    """A drafting model that is run once per drafted token, or per level of a tree.

    A round leaves one id to take in (the newest), or two when the last accepted token was drafted
    but never fed: nodes of the last level are not, nor are those that a budget leaves without
    children.
    """

    def __init__(self, drafter: CausalLMDrafter, context: Context) -> None:
        super().__init__(context, drafter.growth)
        self.open_cache(drafter, drafter.max_nodes)
        self._fed: list[Tensor] = []  # nodes in the cache behind its length, one entry per level

    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        """Of a chain: what a level of one place would give, without a tree around it."""
        if not drafted:
            self._fed = []
            return self._catch_up()
        tokens = self.ids.fed(drafted[-1].unsqueeze(1).to(self.device))
        ahead = len(self._fed)
        self._fed.append(tokens)
        logits = self.ragged.forward(tokens, self.drafting(len(drafted)), ahead=ahead)
        return self.to_target(logits.squeeze(1))

    def next_logits_at(self, frontier: Frontier) -> Tensor:
        if frontier.tokens.shape[1] == 0:
            self._fed = []
            return self._catch_up().unsqueeze(1)
        nodes = frontier.at.clamp(min=0)
        tokens = self.ids.fed(frontier.tokens.gather(1, nodes).to(self.device))
        ahead = sum(level.shape[1] for level in self._fed)
        self._fed.append(frontier.at)
        branch = level_branch(frontier, self._fed, self.device)
        return self.to_target(
            self.ragged.forward(tokens, frontier.counts, ahead=ahead, branch=branch)
        )

    def observe(self, outcome: Round) -> None:
        starts = [0]  # the first slot of each level
        for level in self._fed:
            starts.append(starts[-1] + level.shape[1])
        kept = [
            [start + place for start, place in zip(starts, places, strict=False)]
            for places in (self.places_of(n, row.path) for n, row in enumerate(outcome.rows))
        ]
        self.ragged.keep(kept)
        self._fed = []
        super().observe(outcome)

    def select(self, rows: list[int]) -> None:
        super().select(rows)
        self.ragged.select(rows)

    def _catch_up(self) -> Tensor:
        """Takes in the committed ids that are missing, and gives the logits behind the newest."""
        missing = self.missing()
        counts = [len(row) for row in missing]
        logits = self.ragged.forward(pad(missing, self.device), counts)
        self.ragged.advance(counts)
        last = upload([max(count - 1, 0) for count in counts], logits.device)
        return self.to_target(logits[torch.arange(len(counts), device=logits.device), last])


def level_branch(frontier: Frontier, fed: list[Tensor], device: torch.device) -> Branch | None:
    """What each token of a tree's level attends behind the length: the nodes on its path, and itself.

    Args:
        frontier: the level.
        fed: nodes behind the length, ``[rows, nodes]`` per level, this one's last.
    """
    widths = [level.shape[1] for level in fed]
    if max(widths) == 1:
        return None  # one after the other: a chain
    slots = torch.cat(fed, 1)
    index = slots.clamp(min=0).unsqueeze(1).expand(-1, widths[-1], -1)
    visible = frontier.on_path.gather(2, index) & (slots >= 0).unsqueeze(1)
    # Padding, too: a softmax over nothing would be NaN, and NaN times 0 is NaN.
    visible[..., -widths[-1] :] |= torch.eye(widths[-1], dtype=torch.bool, device=slots.device)
    depths = [depth for depth, width in enumerate(widths) for _ in range(width)]
    return Branch(upload(depths, device).expand(len(slots), -1), visible.to(device))
