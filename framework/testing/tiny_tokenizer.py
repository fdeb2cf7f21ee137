"""A tiny tokenizer and saved tiny models: no download, and every text survives the round trip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .tiny import tiny_model

# Ids 0 to 255 are the bytes, in the order of their values.
USER, ASSISTANT, END = "<|user|>", "<|assistant|>", "<|end|>"
SPECIAL = (USER, ASSISTANT, END)
VOCAB = 256 + len(SPECIAL)
CHAT = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tiny_tokenizer(chat: bool = True) -> Any:
    """One token per byte and three special ones, as a transformers tokenizer.

    Args:
        chat: whether it has a chat template, ``<|user|>text<|end|><|assistant|>``.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocab = {sign: byte for byte, sign in enumerate(_signs_of_bytes())}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        chat_template=CHAT if chat else None,
        clean_up_tokenization_spaces=False,
    )


def save_tiny(folder: Path | str, *, chat: bool = True, eos: bool = True, **options: Any) -> str:
    """Saves a tiny model and its tokenizer as ``target.model`` expects them; returns the folder.

    Args:
        chat: whether the tokenizer has a chat template.
        eos: whether ``<|end|>`` ends an answer.
        options: as for ``tiny_model``.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()
    end = {"eos_token_id": VOCAB - 1} if eos else {}
    model = tiny_model(**{"vocab": VOCAB, **end, **options})
    model.save_pretrained(folder)
    tiny_tokenizer(chat).save_pretrained(folder)
    return str(folder)


def _signs_of_bytes() -> list[str]:
    """GPT-2's printable stand-in for each byte, which byte-level tokenizers use."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]
