"""EAGLE: one decoder layer that goes on from the target's features (autoregressive, at feature level)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..framework.cache import Branch, pad
from ..framework.context import Context
from ..framework.device import upload
from ..framework.errors import ConfigError
from ..framework.foreign import read_foreign
from ..framework.growth import Growth
from ..framework.heads import LMHead
from ..framework.interfaces import Drafter, Target
from ..framework.layer_cache import LayerCache, layer_cache_bytes
from ..framework.linear import SmallWidthLinear, speed_up_linears
from ..framework.records import Round
from ..framework.specs import DraftKind
from ..framework.trained import read_trained
from ..framework.tree_bases import Frontier, TreeStepSession
from .causal_lm import PREFILL_CHUNK, level_branch
from .eagle_net import EagleNet

if TYPE_CHECKING:
    from .builtin_trained import EagleConfig


class Eagle(Drafter):
    """Li et al. 2024 (arXiv:2401.15077); with ``growth`` by budget the trees of EAGLE-2 (arXiv:2406.16858).

    Args:
        net: the layer, trained.
        embed: ids to embeddings: the target's own, as a rule.
        head: the LM head: the target's for EAGLE, its own for EAGLE-3.
        layers: the target's, whose hidden states, one behind the other, are a feature.
        growth: how its trees grow; None drafts chains.
    """

    def __init__(
        self, net: EagleNet, embed: nn.Module, head: LMHead, layers: tuple[int, ...], growth: Growth | None
    ) -> None:  # fmt: skip
        self.net, self.embed, self.head, self.layers = net.eval(), embed, head, layers
        self.reads = tuple(sorted({*layers}))  # EAGLE-3 may take one twice, of a shallow target
        self.growth = growth
        self.kind = growth.kind if growth else DraftKind()
        self.max_nodes = growth.max_nodes if growth else 0
        self.own_bytes = head.own_bytes
        if growth is not None:
            growth.check_vocabulary(head.weight.shape[0])
        if isinstance(head.layer, SmallWidthLinear):  # the target's kernels are tuned, so these are
            speed_up_linears(net)

    @classmethod
    def from_config(cls, config: EagleConfig, target: Target) -> Eagle:
        """Reads ``config.path``: a folder of ``foredraft train``, or a checkpoint of others."""
        from .eagle_foreign import read_eagle
        from .eagle_training import net_of_card

        if config.path is None:
            raise ConfigError(
                "drafter.path=null is not possible with drafter=eagle; it must be a folder that "
                "foredraft train has written, or one with an EAGLE checkpoint."
            )
        head = LMHead.of(target, "eagle")
        if foreign := read_foreign(config.path):
            return read_eagle(foreign, target, config.growth)
        found = read_trained(config.path, "eagle", target)
        net, layers = net_of_card(found, target)
        found.fill(net)
        head = head.reduced(found.ids)
        return cls(net.put(head.weight), embedding_of(target), head, layers, config.growth)

    def start(self, context: Context) -> EagleSession:
        return EagleSession(self, context)

    def guess(self, states: Tensor) -> Tensor:
        """States ``[..., size]`` to logits ``[..., vocab_size]``."""
        return self.head(self.net.last(states))

    def session_bytes(self, rows: int, capacity: int) -> int:
        form, item = self.net.form, self.head.weight.itemsize
        slots = capacity + self.max_nodes
        return layer_cache_bytes(form.kv_heads, form.head_size, item, rows, slots)

    def weight_bytes(self) -> int:
        return sum(p.nbytes for p in self.net.parameters()) + self.own_bytes


class EagleSession(TreeStepSession):
    """A cache of committed places: that of token t holds what the layer made of t's feature and t + 1.

    They are taken in from the target's own features, in the round after their tokens were committed;
    what was drafted lies behind them and is overwritten. A round is one forward over the new places,
    which gives the first guess, and one for each further token, or level of a tree, from its own states.
    """

    def __init__(self, drafter: Eagle, context: Context) -> None:
        super().__init__(context, drafter.growth)
        self.drafter, self.device = drafter, drafter.head.weight.device
        self.cache = LayerCache(context.rows, context.capacity + drafter.max_nodes)
        self._fed: list[Tensor] = []  # nodes behind the lengths, one entry per level
        self._at = self._states = torch.empty(0)  # the last call's places, and what they gave
        while any(counts := [min(n, PREFILL_CHUNK) for n in self._missing(newest=2)]):
            self._take_in(counts)

    def limits(self, gammas: list[int]) -> list[int]:
        """A row of one token has no feature yet."""
        room = [self.context.capacity - len(ids) + 1 for ids in self.context.tokens]
        return [
            max(0, min(gamma, most)) if len(ids) > 1 else 0
            for gamma, most, ids in zip(gammas, room, self.context.tokens, strict=True)
        ]

    def next_logits_at(self, frontier: Frontier) -> Tensor:
        first = frontier.tokens.shape[1] == 0
        self._states = self._catch_up() if first else self._expand(frontier)
        self._at = frontier.at
        return self.drafter.guess(self._states).to(self.context.device)

    def observe(self, outcome: Round) -> None:
        super().observe(outcome)
        self._fed = []

    def select(self, rows: list[int]) -> None:
        super().select(rows)
        self.cache.select(rows)

    def _missing(self, newest: int) -> list[int]:
        """How many places of each row are to be taken in; the ``newest`` tokens have none."""
        pairs = zip(self.context.tokens, self.cache.lengths, strict=True)
        return [max(len(ids) - newest - length, 0) for ids, length in pairs]

    def _catch_up(self) -> Tensor:
        """Takes in the places that were committed, the newest at least, whose states it gives."""
        self._fed = []
        pairs = zip(self.context.tokens, self.cache.lengths, strict=True)
        self.cache.lengths = [min(length, max(len(ids) - 2, 0)) for ids, length in pairs]
        counts = self._missing(newest=1)
        states = self._take_in(counts)
        last = upload([max(count - 1, 0) for count in counts], self.device)
        return states[torch.arange(len(counts), device=self.device), last].unsqueeze(1)

    def _take_in(self, counts: list[int]) -> Tensor:
        """The next ``counts[r]`` places of each row, from the target's features: their states."""
        rows, width = list(zip(self.context.tokens, self.cache.lengths, strict=True)), max(counts)
        tokens = [ids[n + 1 : n + 1 + count] for (ids, n), count in zip(rows, counts, strict=True)]
        places = [[min(n + i, max(len(ids) - 2, 0)) for i in range(width)] for ids, n in rows]
        features = self.drafter.net.committed(self._features(places))
        states = self._run(pad(tokens, self.device), features, counts)
        self.cache.advance(counts)
        return states

    def _features(self, places: list[list[int]]) -> Tensor:
        """The target's hidden states behind these tokens, ``[rows, width, feature]``."""
        parts = [self.context.target.hidden(layer) for layer in self.drafter.layers]
        at = upload(places, parts[0].device)
        rows = torch.arange(len(places), device=at.device).unsqueeze(1)
        return torch.cat(
            [part[rows.to(part.device), at.to(part.device)].to(self.device) for part in parts], -1
        )

    def _expand(self, frontier: Frontier) -> Tensor:
        """Goes on from the states that the places' tokens were guessed from."""
        nodes = frontier.at.clamp(min=0)
        above = frontier.tree.parents.gather(1, nodes).unsqueeze(-1) == self._at.unsqueeze(1)
        found = above.byte().argmax(-1).to(self.device).unsqueeze(-1)
        features = self._states.gather(1, found.expand(-1, -1, self._states.shape[-1]))
        ahead = sum(level.shape[1] for level in self._fed)
        self._fed.append(frontier.at)
        branch = level_branch(frontier, self._fed, self.device)
        tokens = frontier.tokens.gather(1, nodes)
        return self._run(tokens, features, frontier.counts, ahead, branch)

    @torch.inference_mode()
    def _run(
        self, tokens: Tensor, features: Tensor, counts: list[int], ahead: int = 0, branch: Branch | None = None
    ) -> Tensor:  # fmt: skip
        """One call of the network; the lengths stay."""
        drafter = self.drafter
        embedded: Any = drafter.embed(tokens.to(next(drafter.embed.parameters()).device))
        positions = self.cache.place(counts, tokens.shape[1], self.device, ahead, branch)
        return drafter.net(embedded.to(self.device), features, positions, self.cache.attend)  # type: ignore[no-any-return]


def embedding_of(target: Target) -> nn.Module:
    """The target's embeddings, not copied.

    Raises:
        ConfigError: they are of another size than its hidden states.
    """
    model: Any = getattr(target, "model", None)
    embed: nn.Module = model.get_input_embeddings()
    size, hidden = next(embed.parameters()).shape[1], LMHead.of(target, "eagle").weight.shape[1]
    if size != hidden:
        raise ConfigError(
            f"drafter=eagle needs embeddings of the size of hidden states, and this target's are {size} "
            f"and {hidden}."
        )
    return embed
