"""Tiny seeded models: CPU, no download, milliseconds.

Default initialisation gives nearly uniform laws, on which every law test passes by luck; ``sharp``
widens the initialisation so that two seeds of one shape overlap by about .3 to .8.
"""

from __future__ import annotations

from typing import Any

import torch

KINDS = ("llama", "qwen3", "gpt2", "mistral", "gemma2")


def tiny_model(
    kind: str = "llama",
    *,
    vocab: int = 64,
    layers: int = 2,
    seed: int = 0,
    sharp: float = 0.25,
    dtype: torch.dtype = torch.float64,
    context: int = 512,
    **options: Any,
) -> Any:
    """A random causal LM of hidden size 32.

    Args:
        kind: one of ``KINDS``; ``mistral`` slides a window of 8, ``gemma2`` alternates.
        sharp: standard deviation of the weights (transformers' default is .02).
        options: further config fields.
    """
    import transformers

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = _config(transformers, kind, vocab, layers, sharp, context, options)
        model = transformers.AutoModelForCausalLM.from_config(config)
    return model.to(dtype).eval()


def _config(
    transformers: Any, kind: str, vocab: int, layers: int, sharp: float, context: int, options: Any
) -> Any:
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    if kind == "gpt2":
        small = {"n_embd": 32, "n_layer": layers, "n_head": 4, "n_positions": context}
        return transformers.GPT2Config(
            vocab_size=vocab, initializer_range=sharp, **{**small, **ends, **options}
        )
    shape: dict[str, Any] = {
        "vocab_size": vocab,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": context,
        "initializer_range": sharp,
    }
    if kind in ("mistral", "gemma2"):
        shape["sliding_window"] = 8
    if kind == "gemma2":
        shape["attn_implementation"] = "eager"
    name = {"llama": "Llama", "qwen3": "Qwen3", "mistral": "Mistral", "gemma2": "Gemma2"}[kind]
    return getattr(transformers, f"{name}Config")(**{**shape, **ends, **options})
