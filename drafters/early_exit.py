"""Early exit: the target's first layers draft, on the target's own cache.

LayerSkip (Elhoushi et al. 2024, arXiv:2404.16710), with an exit that is trained, or none, before the
LM head in place of a target that is trained for it. Nothing is copied and nothing is prefilled:
committed entries of the first layers are the target's, a drafted token's entries are written where the
target wants them, and verification goes on behind the exit from the hidden states that are there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from ..framework.bases import StepSession
from ..framework.checks import check_whole
from ..framework.context import Context
from ..framework.device import upload
from ..framework.errors import ConfigError, InputError
from ..framework.heads import LMHead
from ..framework.interfaces import Drafter, Target
from ..framework.records import Ahead, Draft
from ..framework.targets.causal_lm import CausalLM, CausalLMSession
from ..framework.trained import Trained, read_trained
from ..framework.views import final_norm, first_layers
from .early_exit_net import MOST_RANK, Exits

if TYPE_CHECKING:
    from .builtin import EarlyExitConfig

KEY = "drafter=early_exit"
UNTRAINED = 4  # layers, where nothing says how many
Exit = Callable[[Tensor], Tensor]


class EarlyExit(Drafter):
    """Drafts with layers 1 to ``layers``, then an exit's own norm and adapter, or the target's final norm,
    then the target's head."""

    def __init__(self, config: EarlyExitConfig, target: Target) -> None:
        checked = check_layered(target, KEY)
        self.exits: Exits | None = None
        self.head = LMHead.of(target, "early_exit")
        if config.path is not None:
            self.exits, self.head = _read(config.path, config.layers, target, self.head)
        self.layers = UNTRAINED if config.layers is None else config.layers
        if self.exits is not None:
            self.layers = self.exits.layers[0]
        check_whole("drafter.layers", self.layers, 1, checked.depth - 1)
        self.view = first_layers(checked.model, self.layers, KEY)
        self.norm = getattr(checked.model.base_model, final_norm(checked.model, KEY))
        self.resumes = checked.resumes(self.layers)

    def start(self, context: Context) -> EarlyExitSession:
        return EarlyExitSession(self, context)

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states ``[rows, size]`` behind the last of its layers to logits."""
        states = self.norm(hidden) if self.exits is None else self.exits(hidden, self.layers)
        return self.head(states)

    def weight_bytes(self) -> int:
        own = [] if self.exits is None else self.exits.parameters()
        return sum(p.nbytes for p in own) + self.head.own_bytes


class EarlyExitSession(StepSession):
    """What it has run of a round's draft; the cache is that of the target's session."""

    def __init__(self, drafter: EarlyExit, context: Context) -> None:
        super().__init__(context)
        self.drafter = drafter
        self.ragged = cast(CausalLMSession, context.target).ragged
        self._hidden: list[Tensor] = []
        self._run = [0] * context.rows

    def propose(self, gammas: list[int]) -> Draft:
        self._hidden, self._run = [], [0] * self.context.rows
        draft = super().propose(gammas)
        if not (self._hidden and self.drafter.resumes):
            return draft
        hidden = torch.cat(self._hidden, 1)
        return replace(draft, ahead=Ahead(draft.tokens, self.drafter.layers, hidden, self._run))

    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        newest = drafted[-1].unsqueeze(1) if drafted else newest_of(self.context)
        counts = self.drafting(len(drafted))
        hidden = self.ragged.forward(
            newest, counts, ahead=len(drafted), view=self.drafter.view, logits=False
        )
        self._hidden.append(hidden)
        self._run = [n + more for n, more in zip(self._run, counts, strict=True)]
        return self.drafter.logits(hidden[:, -1]).to(self.context.device)


def newest_of(context: Context) -> Tensor:
    """Each row's newest committed id, ``[batch, 1]``."""
    return upload([[row[-1]] for row in context.tokens], context.device)


def check_layered(target: Target, key: str) -> CausalLM:
    """A target whose layers can be run one by one.

    Raises:
        ConfigError: it has none.
    """
    if not isinstance(target, CausalLM):
        raise ConfigError(
            f"{key} is not possible with target {type(target).__name__}; it runs layers of a transformers "
            "model (target=causal_lm or target=smollm2)."
        )
    return target


def _read(path: str, layers: int | None, target: Target, head: LMHead) -> tuple[Exits, LMHead]:
    """The exit of ``layers``, or of the first layer that there is one for, and its head."""
    found = read_trained(path, "early_exit", target)
    known, rank = _exits(found, target.depth), found.whole("rank", 1, MOST_RANK)
    if layers is not None and layers not in known:
        raise ConfigError(
            f"drafter.layers={layers} is not possible with {found.where}; it has exits behind layers "
            f"{', '.join(map(str, known))}."
        )
    model = cast(CausalLM, target).model
    norm = getattr(model.base_model, final_norm(model, KEY))
    net = Exits(known, rank, norm, head.weight.shape[1])
    found.fill(net)
    one = net.only(known[0] if layers is None else layers)
    return one.eval().requires_grad_(False).to(head.weight), head.reduced(found.ids)


def _exits(found: Trained, depth: int) -> list[int]:
    """The layers that the card names."""
    exits = found.card["shape"].get("exits")
    whole = isinstance(exits, list) and all(type(one) is int for one in exits)
    if not (
        whole and exits and exits == sorted(set(exits)) and 1 <= exits[0] and exits[-1] < depth
    ):
        raise InputError(
            f"{found.where} says exits={exits!r} in its card; it must be a list of layers from 1 to "
            f"{depth - 1}, ascending."
        )
    return list(exits)
