"""Loading transformers models, and refusing those that cannot be run exactly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .cache import RaggedModel, layer_kinds
from .errors import ConfigError, InputError
from .linear import quantize_int8, rounding
from .shipped import place

if TYPE_CHECKING:
    from .targets.builtin import ModelConfig


FEW_BITS_IN = {True: "float32", False: "bfloat16"}
"""What an int8 model computes in, on a CPU and elsewhere: on a CPU attention and norms are slow in bfloat16."""


def load_model(
    name: str,
    config: ModelConfig,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> Any:
    """Loads a causal LM from a hub id or folder, from safetensors only."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    name = place(name)
    _check_folder(name, trust_remote_code, config.group)
    device = pick_device(config.device, config.group)
    dtype = FEW_BITS_IN[device.type == "cpu"] if config.dtype == "int8" else config.dtype
    options: dict[str, Any] = {"dtype": dtype, "device_map": config.device_map}
    if config.attention != "auto":
        options["attn_implementation"] = config.attention
    logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            name,
            revision=revision,
            trust_remote_code=trust_remote_code,
            use_safetensors=True,
            **{key: value for key, value in options.items() if value is not None},
        )
    except Exception as error:  # transformers raises many kinds; each becomes one sentence
        raise InputError(f"model {name!r} cannot be loaded: {_first_line(error)}") from error
    if config.dtype == "int8":
        model = quantize_int8(model, model.dtype)
    return model if config.device_map else model.to(device)


def load_tokenizer(name: str, revision: str | None = None, trust_remote_code: bool = False) -> Any:
    """Loads the tokenizer beside a model, or returns None when a folder holds none."""
    from transformers import AutoTokenizer

    name = place(name)
    if Path(name).is_dir() and not any(Path(name).glob("*token*")):
        return None
    try:
        return AutoTokenizer.from_pretrained(
            name, revision=revision, trust_remote_code=trust_remote_code
        )
    except Exception as error:
        raise InputError(f"tokenizer of {name!r} cannot be loaded: {_first_line(error)}") from error


def pick_device(name: str, group: str = "target") -> torch.device:
    """``auto`` is CUDA where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    known = ["cpu", "cuda", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    if name not in known or (name == "cuda" and not torch.cuda.is_available()):
        here = known if torch.cuda.is_available() else ["cpu"]
        raise ConfigError(
            f"{group}.device={name!r} is not possible; here it must be auto or one of {', '.join(here)}."
        )
    return torch.device(name)


def _check_folder(name: str, trust_remote_code: bool, group: str) -> None:
    if not name:
        raise ConfigError(
            f"{group}.model is empty; give a hub id or a folder, for example {group}.model=./my_model."
        )
    folder = Path(name)
    if not folder.is_dir():
        if name.startswith((".", "/", "~")) or folder.exists():
            raise InputError(f"model folder {name!r} does not exist or is not a folder.")
        return
    if not any(folder.glob("*.safetensors")):
        raise InputError(
            f"model folder {name!r} has no .safetensors weights; pickle weights can run code and are "
            "not loaded, so convert them with save_pretrained(safe_serialization=True)."
        )
    if not trust_remote_code and _names_code(folder / "config.json"):
        raise ConfigError(
            f"model folder {name!r} brings its own code (auto_map in config.json), which is not run "
            f"unless {group}.trust_remote_code=true is set."
        )


def _names_code(path: Path) -> bool:
    try:
        return "auto_map" in json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:300]


def max_context(config: Any) -> int | None:
    """The most positions the model has, or None where its config names no limit."""
    value = getattr(config.get_text_config(), "max_position_embeddings", None)
    return int(value) if value else None


def model_bytes(model: Any) -> int:
    """Bytes of a model's parameters and buffers, tied ones counted once."""
    tensors = {t.data_ptr(): t for t in (*model.parameters(), *model.buffers())}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def eos_ids(model: Any, tokenizer: Any = None) -> frozenset[int]:
    """End-of-answer ids: the generation config's, else the config's, else the tokenizer's."""
    for source in (getattr(model, "generation_config", None), model.config, tokenizer):
        value = getattr(source, "eos_token_id", None)
        if value is not None:
            return frozenset(value if isinstance(value, list | tuple) else [value])
    return frozenset()


def layer_list(model: Any, key: str) -> str:
    """The name, in its base model, of the list that holds a causal LM's layers.

    Args:
        key: what a refusal says is not possible without it.
    """
    base, depth = model.base_model, int(model.config.get_text_config().num_hidden_layers)
    for name, child in base.named_children():
        if isinstance(child, torch.nn.ModuleList) and len(child) == depth:
            return str(name)
    raise ConfigError(f"{key} found no list of {depth} layers in {type(base).__name__}.")


def check_model(model: Any) -> None:
    """Refuses models whose state cannot be rolled back per row, by name and with the reason."""
    name = f"model {type(model).__name__}"
    config = getattr(model, "config", None)
    if config is None or not hasattr(model, "base_model"):
        raise ConfigError(
            f"{name} is not a transformers causal LM; pass one, or write a target plugin."
        )
    if getattr(config, "is_encoder_decoder", False):
        raise ConfigError(f"{name} is an encoder-decoder, which is not supported; use a causal LM.")
    if getattr(model, "_is_stateful", False):
        raise ConfigError(f"{name} keeps recurrent state, which cannot be rolled back after a rejection; "
                          "use a model with full or sliding attention.")  # fmt: skip
    layer_kinds(config.get_text_config())
    _probe(model, name)


@torch.inference_mode()
def _probe(model: Any, name: str) -> None:
    """Runs five tokens whole and in two ragged pieces: an architecture that ignores the mask or
    keeps state elsewhere shows itself here, not in somebody's text."""
    model.eval()
    tokens = torch.tensor([[1, 2, 3, 0, 1]], device=model.device)
    try:
        whole = model(input_ids=tokens, use_cache=False)[0]
        ragged = RaggedModel(model, rows=2, capacity=8)
        both = tokens.expand(2, -1)
        ragged.forward(both[:, :3], [3, 2])
        ragged.advance([3, 2])
        pieces = torch.stack([ragged.forward(both[:, 3:5], [2, 2])[0],
                              _second_row(ragged, both)])  # fmt: skip
    except Exception as error:
        raise ConfigError(
            f"{name} cannot run with a per-row cache: {_first_line(error)}"
        ) from error
    if not near(pieces, whole[:, 3:5], model):
        gap = float((pieces - whole[:, 3:5]).abs().max())
        raise ConfigError(f"{name} does not honour a per-row mask (its logits differ by {gap:.2g}), "
                          "so speculative decoding would change its output.")  # fmt: skip


def near(found: torch.Tensor, due: torch.Tensor, model: Any) -> bool:
    """Whether a model's logits agree up to a few thousand rounding steps of the largest: far above
    rounding, far below a wrong mask."""
    step = min(4096 * rounding(model, model.dtype), 0.05)
    return bool((found - due).abs().max() <= step * max(1.0, float(due.abs().max())))


def _second_row(ragged: RaggedModel, both: torch.Tensor) -> torch.Tensor:
    """Row 1 kept only two tokens: it is fed the third again, two tokens behind row 0."""
    ragged.forward(both[:, 2:5], [1, 3])
    return ragged.forward(both[:, 2:5], [1, 3])[1, 1:]
