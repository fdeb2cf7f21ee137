"""Opt-in replacements that make few-row forwards cheaper: ``target.kernels=tuned``.

Verification feeds a handful of rows, for which the library's choices are slow: linear layers multiply in
the operand order made for many rows, attention copies the keys of grouped heads, RMS norms run as five
operations, and around all of them are hundreds of calls (``lean.py``). Each replacement computes the same
function, equal up to rounding; one that does not agree with the original on a trial input is not made.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .lean import make_lean
from .linear import speed_up_linears

GROUPED = "foredraft_grouped"


def tune(model: Any) -> Any:
    """Applies all of them, in place; elsewhere than on a CPU the lean forward alone."""
    on_cpu = model.device.type == "cpu"
    if on_cpu:
        fuse_norms(model)
        group_attention(model)
    if not make_lean(model) and on_cpu:
        speed_up_linears(model)
    return model


class FusedRMSNorm(nn.Module):
    """RMS norm in one call. Shares the weight; ``state_dict`` keys stay as they were."""

    def __init__(self, weight: nn.Parameter, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = weight, eps

    def forward(self, hidden: Tensor) -> Tensor:
        """``[..., hidden]`` to the same shape and dtype."""
        return functional.rms_norm(hidden, self.weight.shape, self.weight, self.eps)


def fuse_norms(model: nn.Module) -> int:
    """Replaces every RMS norm that ``FusedRMSNorm`` reproduces; returns how many."""
    replaced = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            fused = _fused(child)
            if fused is not None:
                setattr(parent, name, fused)
                replaced += 1
    return replaced


def _fused(module: nn.Module) -> FusedRMSNorm | None:
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    weight = getattr(module, "weight", None)
    if (
        not type(module).__name__.endswith("RMSNorm")
        or isinstance(module, FusedRMSNorm)
        or eps is None
    ):
        return None
    if not isinstance(weight, nn.Parameter) or weight.dim() != 1:
        return None
    fused = FusedRMSNorm(weight, float(eps))
    trial = torch.linspace(-2, 3, weight.numel(), dtype=weight.dtype, device=weight.device)[None]
    with torch.inference_mode():
        step = 64 * torch.finfo(weight.dtype).eps
        agrees = torch.allclose(fused(trial), module(trial), rtol=step, atol=step)
    return fused if agrees else None


def group_attention(model: Any) -> None:
    """Lets SDPA share keys among grouped heads instead of copying them for each.

    transformers does so only without a mask; a ragged cache always has one, and for four rows over
    a few hundred keys the copies cost more than the attention.
    """
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    if model.config.get_text_config()._attn_implementation != "sdpa":
        return
    ALL_ATTENTION_FUNCTIONS.register(GROUPED, _grouped)
    ALL_MASK_ATTENTION_FUNCTIONS.register(GROUPED, sdpa_mask)
    model.set_attn_implementation(GROUPED)


def _grouped(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Shapes as in transformers: ``[batch, heads, length, head_dim]`` in, heads third out."""
    out = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attention_mask,
        dropout_p=dropout,
        scale=scaling,
        is_causal=attention_mask is None and query.shape[2] > 1,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return out.transpose(1, 2).contiguous(), None
