"""EAGLE and EAGLE-3 networks that others trained, as they or the speculators library write them.

A tensor's name says which part it is; sizes are read from the tensors, so that the few values taken from
``config.json`` are what tensors cannot tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..framework.errors import ConfigError
from ..framework.foreign import Foreign
from ..framework.growth import Growth
from ..framework.heads import LMHead
from ..framework.interfaces import Target
from .eagle import Eagle
from .eagle_ends import beside, own_embedding, own_head
from .eagle_net import EagleForm, EagleNet
from .rotary import scaled_rotations

LAYERS = ("layers.0.", "midlayer.", "transformer.")
LINEAR = {
    "self_attn.q_proj": "q", "self_attn.k_proj": "k", "self_attn.v_proj": "v", "self_attn.o_proj": "o",
    "mlp.gate_proj": "gate", "mlp.up_proj": "up", "mlp.down_proj": "down",
}  # fmt: skip
OTHERS = ("embed_tokens.weight", "lm_head.weight", "d2t", "t2d")  # what is read beside the layer
LAYERS_READ = "eagle_aux_hidden_state_layer_ids"
KINDS = ("eagle", "eagle3")


def read_eagle(found: Foreign, target: Target, growth: Growth | None) -> Eagle:
    """The drafter.

    Raises:
        ConfigError: it is for another target, or has something that is not supported.
    """
    config, head = _config(found), LMHead.of(target, "eagle")
    own = _renamed(found)
    form = _form(found, own, config)
    reads = _reads(found, form, own, target.depth)
    _check_sizes(found, form, len(reads), target, config, head.weight.shape[1])
    rotations = scaled_rotations(config, form.head_size, found.where)
    with torch.device("meta"):  # the weights are there already
        net = EagleNet(form, rotations)
    _fill(net, own, found.where)
    embed, lm = own_embedding(found, form, target, head.weight), own_head(found, form, target, head)
    drafter = Eagle(net.put(head.weight), embed, lm, reads, growth)
    drafter.own_bytes = beside(embed, lm, target)
    return drafter


def _config(found: Foreign) -> dict[str, Any]:
    """What describes the layer.

    Raises:
        ConfigError: a kind or an option that is not supported.
    """
    said, kind = found.config, found.config.get("speculators_model_type")
    if kind is not None and kind not in KINDS:
        raise ConfigError(
            f"{found.where} says speculators_model_type={kind!r}; {' or '.join(KINDS)} is possible."
        )
    config = said.get("transformer_layer_config") if kind else said
    config = {**(config if isinstance(config, dict) else {}), "outer": said}
    act = config.get("hidden_act", "silu")
    for key, value, due in (
        ("layernorms", said.get("layernorms", False), False),
        ("hidden_act", act, "silu"),
    ):
        if value != due:
            raise ConfigError(f"{found.where} says {key}={value!r}; only {due!r} is possible.")
    return config


def _renamed(found: Foreign) -> dict[str, Tensor]:
    """The layer's tensors under the names that ``EagleNet`` has for them.

    Raises:
        ConfigError: there is one that it has no place for.
    """
    own: dict[str, Tensor] = {}
    found.tensors = {name.removeprefix("model."): value for name, value in found.tensors.items()}
    split = any(name.endswith("hidden_norm.weight") for name in found.tensors)
    for name, tensor in found.tensors.items():
        if name in OTHERS or name.startswith("verifier_") or name.endswith("rotary_emb.inv_freq"):
            continue
        ours = _own_name(name, split)
        if ours is None or ours in own or not tensor.is_floating_point():
            raise ConfigError(
                f"{found.where} has a tensor {name} of {str(tensor.dtype).removeprefix('torch.')}, for which "
                "there is no place in an EAGLE network of one layer."
            )
        own[ours] = tensor
    return own


def _own_name(name: str, split: bool) -> str | None:
    """``split``: EAGLE-3, whose attention reads embedding and feature side by side."""
    stem, _, kind = name.rpartition(".")
    norms = {"post_attention_layernorm": "middle"}
    if split:
        norms |= {"hidden_norm": "input", "input_layernorm": "embedding"}
    for prefix in LAYERS:
        part = stem.removeprefix(prefix)
        if part != stem and part in norms and kind == "weight":
            return f"norms.{norms[part]}"
        if part != stem and part in LINEAR:
            return f"{LINEAR[part]}.{kind}"
    if stem == "norm" and kind == "weight":
        return "norms.last"
    return f"{'reduce' if split else 'fuse'}.{kind}" if stem in ("fc", "fusion_fc") else None


def _form(found: Foreign, own: Mapping[str, Tensor], config: Mapping[str, Any]) -> EagleForm:
    """The sizes, as the tensors have them.

    Raises:
        ConfigError: a matrix is missing, or heads do not share its rows.
    """
    for name, part in LINEAR.items():
        if own.get(f"{part}.weight", torch.ones(1)).dim() != 2:
            raise ConfigError(f"{found.where} has no {name}.weight, or one that is no matrix.")
    size, wide = own["o.weight"].shape
    heads, eps = config.get("num_attention_heads"), config.get("rms_norm_eps") or 1e-6
    if not isinstance(eps, float):
        raise ConfigError(f"{found.where} says rms_norm_eps={eps!r}; it must be a small number.")
    if type(heads) is not int or heads < 1 or wide % (2 * heads):
        raise ConfigError(
            f"{found.where} says num_attention_heads={heads!r}, which does not share {wide} evenly."
        )
    head_size, kept = wide // heads, own["k.weight"].shape[0]
    if kept % head_size or heads % max(kept // head_size, 1):
        raise ConfigError(f"{found.where} has keys of size {kept}, and heads of size {head_size}.")
    fused = "fuse.weight" in own or "norms.input" not in own
    feature = own["reduce.weight"].shape[-1] if "reduce.weight" in own else size
    return EagleForm(
        size, heads, kept // head_size, head_size, own["gate.weight"].shape[0], feature, fused,
        tuple(name.removeprefix("norms.") for name in own if name.startswith("norms.")),
        bool(config["outer"].get("norm_before_residual", False)),
        tuple(name.removesuffix(".bias") for name in own if name.endswith(".bias")),
        eps,
    )  # fmt: skip


def _reads(
    found: Foreign, form: EagleForm, own: Mapping[str, Tensor], depth: int
) -> tuple[int, ...]:
    """The target's layers: the last for EAGLE; for EAGLE-3 those that the config names, or a low, a middle
    and a high one as its authors chose them."""
    if "reduce.weight" not in own:
        return (depth,)
    inside: Any = found.config.get("eagle_config")
    inside = inside.get(LAYERS_READ) if isinstance(inside, dict) else None
    # Inside of eagle_config the first layer is 0; elsewhere 0 are the embeddings, as here.
    layers = [n + 1 for n in inside] if _whole(inside) else found.config.get(LAYERS_READ)
    layers = layers or [2, depth // 2, depth - 3]
    if not _whole(layers) or not all(0 <= layer <= depth for layer in layers):
        raise ConfigError(
            f"{found.where} reads layers {layers} of its target, and this one has {depth}."
        )
    return tuple(layers)


def _check_sizes(
    found: Foreign, form: EagleForm, reads: int, target: Target, config: Mapping[str, Any], hidden: int
) -> None:  # fmt: skip
    """Refuses what is made for another target, with both numbers."""
    found.agree("features of size", form.feature, reads * hidden)
    mapped = found.tensors.get("t2d")
    size = config.get("vocab_size") if mapped is None else len(mapped)
    if type(size) is int:
        found.agree("a vocabulary of", size, target.vocab_size)


def _fill(net: EagleNet, own: Mapping[str, Tensor], where: str) -> None:
    try:
        net.load_state_dict(dict(own), assign=True)
    except RuntimeError as error:
        lines = [line.strip().rstrip(".") for line in str(error).splitlines()[1:3]]
        raise ConfigError(f"{where} is no EAGLE network: {'; '.join(lines)}.") from None


def _whole(layers: Any) -> bool:
    return isinstance(layers, list) and bool(layers) and all(type(n) is int for n in layers)
