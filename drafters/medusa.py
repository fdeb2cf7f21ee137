"""Medusa: heads on the target's last hidden state, called once per round (non-autoregressive)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..framework.context import Context
from ..framework.device import upload
from ..framework.errors import ConfigError
from ..framework.foreign import read_foreign
from ..framework.growth import Growth
from ..framework.heads import LMHead
from ..framework.interfaces import Drafter, Target
from ..framework.specs import DraftKind
from ..framework.trained import read_trained
from ..framework.tree_bases import Frontier, TreeStepSession
from .medusa_net import MOST_HEADS, DeepHeads, MedusaHeads, OwnLMHeads

if TYPE_CHECKING:
    from .builtin_trained import MedusaConfig


class Medusa(Drafter):
    """Cai et al. 2024 (arXiv:2401.10774); heads that are trained here share the target's LM head.

    Args:
        net: the heads, trained.
        head: the target's LM head, for the ids that are drafted; or one for each head.
        depth: the target's layers.
        growth: how its trees grow; None drafts chains.
    """

    def __init__(
        self,
        net: MedusaHeads | DeepHeads,
        head: LMHead | OwnLMHeads,
        depth: int,
        growth: Growth | None,
    ) -> None:
        self.net, self.head, self.growth = net.eval(), head, growth
        self.reads = (depth,)
        self.heads = net.heads
        self.kind = growth.kind if growth else DraftKind()
        self.max_nodes = growth.max_nodes if growth else 0
        if growth is not None:
            growth.check_vocabulary(head.weight.shape[-2])

    @classmethod
    def from_config(cls, config: MedusaConfig, target: Target) -> Medusa:
        """Reads ``config.path``: a folder of ``foredraft train``, or a checkpoint of others."""
        from .medusa_foreign import read_medusa

        if config.path is None:
            raise ConfigError(
                "drafter.path=null is not possible with drafter=medusa; it must be a folder that "
                "foredraft train has written, or one with a Medusa checkpoint."
            )
        head = LMHead.of(target, "medusa")
        if foreign := read_foreign(config.path):
            return cls(*read_medusa(foreign, target, head), target.depth, config.growth)
        found = read_trained(config.path, "medusa", target)
        net = MedusaHeads(found.whole("heads", 1, MOST_HEADS), head.weight.shape[1])
        found.fill(net)
        return cls(net.to(head.weight), head.reduced(found.ids), target.depth, config.growth)

    def start(self, context: Context) -> MedusaSession:
        return MedusaSession(self, context)

    def weight_bytes(self) -> int:
        return sum(p.nbytes for p in self.net.parameters()) + self.head.own_bytes


class MedusaSession(TreeStepSession):
    """No state: the guesses of all levels come from the hidden state behind the newest token but one."""

    def __init__(self, drafter: Medusa, context: Context) -> None:
        super().__init__(context, drafter.growth)
        self.drafter = drafter
        self._guesses: Tensor | None = None  # [batch, heads, vocab], of this round
        self._level = 0

    def limits(self, gammas: list[int]) -> list[int]:
        """No further than there are heads; a row of one token has no hidden state yet."""
        self._guesses, self._level = None, 0
        rows = zip(gammas, self.context.tokens, strict=True)
        return [min(gamma, self.drafter.heads) if len(ids) > 1 else 0 for gamma, ids in rows]

    def next_logits_at(self, frontier: Frontier) -> Tensor:
        if self._guesses is None:
            self._guesses = self._guessed(max(self.lengths))
        guess = self._guesses[:, self._level : self._level + 1]
        self._level += 1
        return guess.expand(-1, frontier.at.shape[1], -1)

    def _guessed(self, heads: int) -> Tensor:
        """What the heads say, in one call."""
        hidden = self.context.target.hidden(self.drafter.reads[0])
        places = upload([max(len(ids) - 2, 0) for ids in self.context.tokens], hidden.device)
        newest = hidden[torch.arange(len(places), device=hidden.device), places]
        return self.drafter.head(self.drafter.net(newest, heads)).to(self.context.device)
