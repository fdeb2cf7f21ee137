"""SmolLM2-135M-Instruct: the default model, fetched once and converted once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..fetch import FOLDER, cache_folder, is_whole
from ..models import load_model, load_tokenizer
from .causal_lm import CausalLM, prepare

if TYPE_CHECKING:
    from .builtin import SmolLM2Config


def smollm2(config: SmolLM2Config) -> CausalLM:
    """Loads the fetched model.

    Raises:
        InputError: when ``foredraft fetch smollm2`` has not been run.
    """
    folder = str(smollm2_folder())
    model = load_model(folder, config)
    return CausalLM(prepare(model, config), load_tokenizer(folder))


def smollm2_folder() -> Path:
    """The fetched folder, or one sentence that says how to get it."""
    folder = cache_folder() / FOLDER
    if not is_whole(folder):
        raise InputError(
            f"target=smollm2 is not at {folder}; run 'foredraft fetch smollm2' once, or choose another target."
        )
    return folder
