"""A target's tokens, without its weights where that is possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..config import Parts
from ..errors import ConfigError, InputError


@dataclass(frozen=True)
class Vocabulary:
    """What a table of counts has to know of a target."""

    tokenizer: Any
    vocab_size: int

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without the marks that a tokenizer puts around a prompt."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))


def vocabulary_of(parts: Parts) -> Vocabulary:
    """The tokens of a config's target."""
    config, name = parts.target.config, parts.target.spec.name
    if name == "smollm2":
        from ..fetch import smollm2_folder

        found = _of_model(str(smollm2_folder()), None, False)
    elif name == "causal_lm":
        found = _of_model(config.model, config.revision, config.trust_remote_code)
    else:
        from ..config.build import build

        target = build(parts).target
        found = Vocabulary(target.tokenizer, target.vocab_size)
    if found.tokenizer is None:
        raise ConfigError(f"target={name} has no tokenizer, so texts cannot become its tokens.")
    return found


def _of_model(name: str, revision: str | None, trust: bool) -> Vocabulary:
    from transformers import AutoConfig
    from transformers.utils import logging

    from ..models import load_tokenizer
    from ..shipped import place

    if not name:
        raise ConfigError("target.model is empty; give a hub id or a folder.")
    name = place(name)
    logging.set_verbosity_error()  # it would remark on texts longer than the context
    tokenizer = load_tokenizer(name, revision, trust)
    try:
        config = AutoConfig.from_pretrained(name, revision=revision, trust_remote_code=trust)
    except Exception as error:  # transformers raises many kinds; each becomes one sentence
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"config of {name!r} cannot be loaded: {reason}") from error
    # The embedding may have more rows than the tokenizer has tokens.
    return Vocabulary(tokenizer, int(config.get_text_config().vocab_size))
