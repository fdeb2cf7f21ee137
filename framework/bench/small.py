"""A small model out of a large one: its first layers, final norm and head, as a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def save_first_layers(target: Any, layers: int, folder: Path) -> None:
    """Writes a causal LM that is the target's first ``layers`` layers, with its tokenizer.

    Untrained, so it drafts poorly for its cost; it stands in where no small model of the family is
    at hand, and both sides of a comparison can load it.
    """
    model = target.model
    config = type(model.config).from_dict({**model.config.to_dict(), "num_hidden_layers": layers})
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]
    small = type(model)(config).to(model.dtype)
    wanted = small.state_dict().keys()
    small.load_state_dict({k: v for k, v in model.state_dict().items() if k in wanted})
    small.generation_config = model.generation_config
    small.save_pretrained(folder)
    if target.tokenizer is not None:
        target.tokenizer.save_pretrained(folder)
