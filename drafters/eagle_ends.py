"""Embeddings and LM heads that an EAGLE checkpoint brings along, or those of the target in their place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..framework.errors import ConfigError
from ..framework.foreign import Foreign
from ..framework.heads import LMHead
from ..framework.interfaces import Target
from ..framework.linear import SmallWidthLinear, speed_up_linears
from .eagle import embedding_of
from .eagle_net import EagleForm


def own_embedding(found: Foreign, form: EagleForm, target: Any, like: Tensor) -> nn.Module:
    """The target's, unless the checkpoint has others."""
    own = found.tensors.get("embed_tokens.weight")
    if own is None or _same(own, target.model.get_input_embeddings()):
        embed = embedding_of(target)
        found.agree("embeddings of size", form.size, next(embed.parameters()).shape[1])
        return embed
    rows, size = found.matrix("embed_tokens.weight").shape
    if rows < target.vocab_size or size != form.size:
        raise ConfigError(
            f"{found.where} has {rows} embeddings of size {size}; {target.vocab_size} of size {form.size} are "
            "needed."
        )
    embed = nn.Embedding(rows, size, device="meta")
    embed.weight = nn.Parameter(own.to(like), requires_grad=False)
    return embed


def own_head(found: Foreign, form: EagleForm, target: Target, head: LMHead) -> LMHead:
    """Its own, over the ids that it drafts, or the target's."""
    ids = _drafted(found, target)
    if "lm_head.weight" not in found.tensors:
        found.agree("an LM head of size", form.size, head.weight.shape[1])
        return head.reduced(ids)
    rows, size = found.matrix("lm_head.weight").shape
    if size != form.size or rows != (target.vocab_size if ids is None else len(ids)):
        raise ConfigError(
            f"{found.where} has an LM head of {rows} ids and size {size}; "
            f"{target.vocab_size if ids is None else len(ids)} of size {form.size} are needed."
        )
    layer = nn.Linear(size, rows, bias=False, device="meta")
    weight = found.tensors["lm_head.weight"].to(head.weight)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if isinstance(head.layer, SmallWidthLinear):
        speed_up_linears(layer)
    ids = None if ids is None else ids.to(weight.device)
    return LMHead(layer, target.vocab_size, ids=ids, copied=True)


def _drafted(found: Foreign, target: Target) -> Tensor | None:
    """The target's ids that it drafts, by its own: ``d2t`` says how far each lies from its place."""
    moved = found.tensors.get("d2t")
    if moved is None:
        return None
    if moved.dim() == 1 and moved.dtype in (torch.int64, torch.int32):
        ids = torch.arange(len(moved)) + moved.long()
        if 0 < len(ids) == len(set(ids.tolist()) & set(range(target.vocab_size))):
            return ids
    raise ConfigError(
        f"{found.where} has a map d2t that does not lead to different ids from 0 to {target.vocab_size - 1}."
    )


def beside(embed: nn.Module, lm: LMHead, target: Any) -> int:
    """Bytes of embeddings and an LM head that are not the target's."""
    own = embed is not target.model.get_input_embeddings()
    return lm.own_bytes + (sum(p.nbytes for p in embed.parameters()) if own else 0)


def _same(own: Tensor, embed: nn.Module) -> bool:
    weight = next(embed.parameters()).detach()
    return own.shape == weight.shape and torch.equal(own.to(weight), weight)
