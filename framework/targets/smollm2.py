"""SmolLM2-135M-Instruct: the default model, fetched once and converted once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..fetch import smollm2_folder
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
