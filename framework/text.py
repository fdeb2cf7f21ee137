"""Prompts to ids and ids to text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .errors import InputError
from .stopping import EOS, trim

Prompt = str | Sequence[int] | Sequence[dict[str, str]]


def encode(prompt: Prompt, tokenizer: Any, chat: bool = True) -> list[int]:
    """Ids of a prompt: text, chat messages (``[{"role": ..., "content": ...}]``) or ids.

    Text goes through the chat template when the tokenizer has one and ``chat`` is true.
    """
    if hasattr(prompt, "tolist"):  # a tensor or an array of ids
        prompt = prompt.tolist()
    if not isinstance(prompt, str) and all(isinstance(token, int) for token in prompt):
        return list(prompt)  # type: ignore[arg-type]
    if tokenizer is None:
        raise InputError("this target has no tokenizer; give the prompt as token ids.")
    if isinstance(prompt, str):
        if not prompt.strip():
            raise InputError("prompt is empty; give some text.")
        if not (chat and getattr(tokenizer, "chat_template", None)):
            return list(tokenizer.encode(prompt))
        prompt = [{"role": "user", "content": prompt}]
    return _chat_ids(prompt, tokenizer)


def _chat_ids(messages: Any, tokenizer: Any) -> list[int]:
    if not getattr(tokenizer, "chat_template", None):
        raise InputError("this tokenizer has no chat template; give the prompt as text.")
    try:
        text = tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
    except Exception as error:  # templates raise their own errors about roles and fields
        raise InputError(f"chat messages do not fit the chat template: {error}") from None
    return list(tokenizer.encode(text, add_special_tokens=False))


def shown_ids(ids: list[int], finish_reason: str | None, tokenizer: Any) -> list[int]:
    """The ids without the mark that ended them, where that is a mark and not text."""
    marks = getattr(tokenizer, "all_special_ids", ())
    ended = finish_reason == EOS and bool(ids) and ids[-1] in marks
    return ids[:-1] if ended else ids


def reader_text(
    ids: list[int], finish_reason: str | None, stop: Sequence[str], tokenizer: Any
) -> str:
    """What a reader wants: no end mark, nothing from the stop string on."""
    return trim(tokenizer.decode(shown_ids(ids, finish_reason, tokenizer)), stop)


class TextStream:
    """Turns ids that arrive in blocks into text pieces whose join is the decoded whole.

    A piece is held back while it ends inside a character (an incomplete byte sequence decodes to
    U+FFFD), and only a tail is decoded again, so the cost does not grow with the answer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.ids: list[int] = []
        self._begin = self._end = 0  # ids[begin:end] is context whose text is already out

    def feed(self, ids: Sequence[int], last: bool = False) -> str:
        """Takes new ids; returns the text that is now certain."""
        self.ids.extend(ids)
        before = self.tokenizer.decode(self.ids[self._begin : self._end])
        now = self.tokenizer.decode(self.ids[self._begin :])
        if len(now) <= len(before) or (now.endswith("\ufffd") and not last):
            return now[len(before) :] if last else ""
        self._begin, self._end = self._end, len(self.ids)
        return str(now[len(before) :])
