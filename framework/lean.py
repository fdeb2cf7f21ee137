"""A forward of Llama-like models for few tokens: the same sums in fewer calls.

With a small model, or with few tokens of a larger one, what takes the time is not the arithmetic but the
calls around it. Here queries, keys and values are one product, so are both halves of the feed-forward
part, rotary tables are read and not computed, and nothing lies between one operation and the next. The
model keeps its parameters: what is fused is one tensor of which they are views.

A model whose own logits are not reproduced, up to rounding, keeps its own forward.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional

from .linear import Int8Linear, joined_int8, rounding, speed_up_linears

if TYPE_CHECKING:
    from .compiled.layers import CompiledLayers
    from .views import View

STEADY_ROPES = ("default", "linear", "llama3")
"""Rotary embeddings that are a function of the position alone."""
PARTS = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")
LINEAR = nn.Linear, Int8Linear
BEFORE, SOME = 256, 6
"""Of a trial: the text before it, and its layers, so many that their weights are not all in the cache."""
_made: WeakKeyDictionary[nn.Module, Lean] = WeakKeyDictionary()


def lean_of(model: nn.Module) -> Lean | None:
    """The lean forward of a model that has one (see ``make_lean``)."""
    return _made.get(model)


@torch.inference_mode()
def make_lean(model: Any) -> bool:
    """Gives a model a lean forward, if one reproduces its logits; says whether."""
    if not _like_llama(model):
        return False
    lean = Lean(model)
    if model.device.type == "cpu":
        speed_up_linears(lean)
    if not lean.reproduces(model):
        return False
    lean.compile(model)
    _made[model] = lean
    return True


@dataclass(frozen=True)
class Pass:
    """What runs through layers once.

    Args:
        hidden: ``[rows, width, hidden]``.
        kept: which layers, counted from 0.
        normed: whether the norm behind the last layer is among them.
        positions: ``[rows, width]``.
        mask: ``[rows, 1, width, attended]`` bool; None where each may attend all.
        caches: of all layers of the model.
    """

    hidden: Tensor
    kept: Sequence[int]
    normed: bool
    positions: Tensor
    mask: Tensor | None
    caches: Sequence[Any]


class Lean(nn.Module):
    """The forward of ``model``, whose parameters it shares."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        base = model.base_model
        self.embed, self.norm, self.head = (
            base.embed_tokens, base.norm, model.get_output_embeddings(),
        )  # fmt: skip
        self.layers = nn.ModuleList(LeanLayer(layer) for layer in base.layers)
        self._compiled: CompiledLayers | None = None
        self._most = 0  # tokens for which compiled layers are used
        self._turn = base.rotary_emb
        self._cos, self._sin = self._tables(BEFORE + 64)

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        mask: Tensor | None,
        caches: Sequence[Any],
        last: int,
        watched: Iterable[int] = (),
        logits: bool = True,
        view: View | None = None,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Runs ``tokens [rows, width]``.

        Args:
            positions: ``[rows, width]`` of the tokens.
            mask: ``[rows, 1, width, attended]`` bool; None where each may attend all.
            caches: of each layer, with ``update(keys, values)``.
            last: the highest position that may come.
            watched: layers whose hidden states are wanted.
            view: some of the layers, in place of all.

        Returns:
            Logits, or without ``logits`` what the head would read; and hidden states by layer: 0 are the
            embeddings, the last one is behind the norm.
        """
        given = view.begin.given if view and view.begin else None
        hidden = self.embed(tokens) if given is None else given
        kept, normed = (view.kept, view.normed) if view else (range(len(self.layers)), True)
        if last >= len(self._cos):
            self._cos, self._sin = self._tables(max(last + 1, 2 * len(self._cos)))
        one = Pass(hidden, kept, normed, positions, mask, caches)
        states = (self._run_compiled if self._compiles(one) else self._run)(one)
        wanted = set(watched)
        found = {depth: states[n] for n, depth in enumerate(kept) if depth in wanted}
        if kept[-1] + 1 in wanted:
            found[kept[-1] + 1] = states[-1]
        return self.head(states[-1]) if logits else states[-1], found

    def _run(self, one: Pass) -> Sequence[Tensor]:
        """What comes in, what each layer gives, and the norm of it if that is asked."""
        turns = self._cos[one.positions].unsqueeze(1), self._sin[one.positions].unsqueeze(1)
        states = [one.hidden]
        for depth in one.kept:
            states.append(self.layers[depth](states[-1], turns, one.mask, one.caches[depth]))
        return [*states, self.norm(states[-1])] if one.normed else states

    def _run_compiled(self, one: Pass) -> Sequence[Tensor]:
        """The same in one call."""
        assert self._compiled is not None
        return self._compiled(one, (self._cos, self._sin)).unbind()

    def _compiles(self, one: Pass) -> bool:
        """Whether this is run compiled: where that is possible and faster."""
        possible = self._compiled and (one.mask is None or one.mask.dtype == torch.bool)
        return bool(possible) and one.positions.numel() <= self._most

    def reproduces(self, model: Any) -> bool:
        """Whether it says what the model says, of ids from all over the vocabulary."""
        size, count = int(model.config.get_text_config().vocab_size), 12
        tokens = torch.arange(count, device=model.device).mul(7919).remainder(size).unsqueeze(0)
        expected = model(input_ids=tokens, use_cache=False).logits.float()
        places = torch.arange(count, device=model.device).unsqueeze(0)
        mask = (places.unsqueeze(-1) >= places.unsqueeze(1)).unsqueeze(1)
        caches = [_Scratch(0, count) for _ in self.layers]
        found = self(tokens, places, mask, caches, count - 1)[0].float()
        if found.shape != expected.shape:
            return False
        step = max(1e-4, 16 * rounding(model, model.dtype))
        return bool((found - expected).abs().max() <= step * max(1.0, float(expected.abs().max())))

    def compile(self, model: Any) -> None:
        """Gives it compiled layers, with the extra ``cpu``, if it reproduces the model with them; for as many
        tokens as they are faster with."""
        try:
            from .compiled.layers import COUNTS, CompiledLayers, largest_gain
        except ImportError:  # no numba, or none for this numpy
            return
        try:
            self._compiled = CompiledLayers(self.layers, self.norm)
        except TypeError:  # on a GPU, of another precision, or with biases
            return
        self._most = COUNTS[-1]
        self._most = largest_gain(self._trial) if self.reproduces(model) else 0

    def _trial(self, count: int, compiled: bool) -> None:
        """Runs some layers on so many tokens behind ``BEFORE`` others."""
        size, end = self.norm.weight.shape[0], BEFORE + count
        mask = torch.ones(1, 1, count, end, dtype=torch.bool)
        caches = [_Scratch(BEFORE, count) for _ in self.layers]
        kept, places = range(len(self.layers))[:SOME], torch.arange(BEFORE, end).unsqueeze(0)
        one = Pass(torch.ones(1, count, size), kept, True, places, mask, caches)
        (self._run_compiled if compiled else self._run)(one)

    def _tables(self, count: int) -> tuple[Tensor, Tensor]:
        weight = self.norm.weight
        places = torch.arange(count, device=weight.device).unsqueeze(0)
        cos, sin = self._turn(weight, places)
        half = sin.shape[-1] // 2
        return cos[0], torch.cat([-sin[0, :, :half], sin[0, :, half:]], -1)


class LeanLayer(nn.Module):
    """One decoder layer: attention, then the gated feed-forward part, each behind a norm."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        attention, inner = layer.self_attn, layer.mlp
        self.size = int(attention.head_dim)
        self.heads = attention.q_proj.out_features // self.size
        self.shared = attention.k_proj.out_features // self.size
        self.scale = float(attention.scaling)
        self.qkv = fused(attention.q_proj, attention.k_proj, attention.v_proj)
        self.out, self.down = attention.o_proj, inner.down_proj
        self.gate_up = fused(inner.gate_proj, inner.up_proj)
        self.before, self.between = layer.input_layernorm, layer.post_attention_layernorm

    def forward(
        self, hidden: Tensor, turns: tuple[Tensor, Tensor], mask: Tensor | None, cache: Any
    ) -> Tensor:
        """``[rows, width, hidden]`` to the same."""
        rows, width, _ = hidden.shape
        each = self.qkv(self.before(hidden)).view(rows, width, -1, self.size).transpose(1, 2)
        turned = _turned(each[:, : self.heads + self.shared], *turns)
        keys, values = cache.update(turned[:, self.heads :], each[:, self.heads + self.shared :])
        attended = functional.scaled_dot_product_attention(
            turned[:, : self.heads], keys, values, attn_mask=mask, scale=self.scale,
            enable_gqa=self.heads != self.shared,
        )  # fmt: skip
        hidden = hidden + self.out(attended.transpose(1, 2).reshape(rows, width, -1))
        gate, up = self.gate_up(self.between(hidden)).chunk(2, -1)
        moved: Tensor = self.down(functional.silu(gate).mul_(up))
        return hidden + moved


class _Scratch:
    """The cache of a text that is run once, behind zeros."""

    def __init__(self, before: int, count: int) -> None:
        index = torch.arange(before, before + count).unsqueeze(0)
        self.plan, self.before = SimpleNamespace(index=index, bucket=before + count), before

    def room(self, like: Tensor, heads: int, size: int) -> tuple[Tensor, Tensor]:
        buffers = like.new_zeros(2, 1, heads, self.plan.bucket, size)
        return buffers[0], buffers[1]

    def update(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if not self.before:
            return keys, values
        both = self.room(keys, keys.shape[1], keys.shape[3])
        for buffer, own in zip(both, (keys, values), strict=True):
            buffer[:, :, self.before :] = own
        return both


def fused(*layers: Any) -> nn.Module:
    """One linear layer for several with the same input; their weights become views of its own."""
    if isinstance(layers[0], Int8Linear):
        return joined_int8(layers)
    whole = nn.Linear(layers[0].in_features, 1, layers[0].bias is not None, device="meta")
    whole.out_features = sum(layer.out_features for layer in layers)
    for name in ("weight", "bias") if layers[0].bias is not None else ("weight",):
        parts = [getattr(layer, name) for layer in layers]
        joined = torch.cat([part.detach() for part in parts])
        start = 0
        for part in parts:
            part.data = joined[start : start + len(part)]
            start += len(part)
        setattr(whole, name, nn.Parameter(joined, requires_grad=False))
    return whole


def _turned(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding (Su et al. 2021): pairs are a half apart."""
    return torch.addcmul(states * cos, states.roll(states.shape[-1] // 2, -1), sin)


def _like_llama(model: Any) -> bool:
    """Whether the parts are there that the forward is made of, and no others."""
    config, base = model.config.get_text_config(), model.base_model
    names = {name for name, _ in base.named_children()}
    if names != {"embed_tokens", "layers", "norm", "rotary_emb"} or not len(base.layers):
        return False
    return (
        getattr(config, "hidden_act", None) == "silu"
        and not getattr(config, "sliding_window", None)
        and getattr(base.rotary_emb, "rope_type", None) in STEADY_ROPES
        and isinstance(model.get_output_embeddings(), LINEAR)
        and len({(p.device, p.dtype) for p in model.parameters()}) == 1
        and all(_plain_layer(layer) for layer in base.layers)
    )


def _plain_layer(layer: Any) -> bool:
    parts = {name for name, _ in layer.named_children()}
    if parts != {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}:
        return False
    inner = {name for name, child in layer.mlp.named_children() if name != "act_fn"}
    own = {name for name, _ in layer.self_attn.named_children()}
    if own != set(PARTS[0]) or inner != set(PARTS[1]):
        return False
    attention, forward = layer.self_attn, layer.mlp
    together = [
        [attention.q_proj, attention.k_proj, attention.v_proj],
        [forward.gate_proj, forward.up_proj],
    ]
    return all(_alike(layers) for layers in together)


def _alike(layers: Sequence[Any]) -> bool:
    kinds = {
        (isinstance(one, Int8Linear), one.bias is None) for one in layers if isinstance(one, LINEAR)
    }
    return len(kinds) == 1 and all(isinstance(one, LINEAR) for one in layers)
