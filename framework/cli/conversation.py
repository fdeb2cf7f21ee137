"""One prompt on its way: what its next turn asks, given the answers so far."""

from __future__ import annotations

from typing import Any

from ..engine import Engine
from ..errors import ForedraftError
from ..requests import Answer, Request
from ..stopping import CONTEXT
from ..text import encode, shown_ids
from .outfile import Kept
from .prompts import Item


class Conversation:
    """An item and the answers to its turns so far.

    Args:
        item: the prompt.
        engine: makes the requests.
        kept: answers of an earlier, interrupted run.
    """

    def __init__(self, item: Item, engine: Engine, kept: list[Kept]) -> None:
        self.item, self.engine = item, engine
        self.said: list[str] = []
        self.turn = 0
        for answer in kept:
            self._hear(answer.token_ids, answer.finish_reason)

    @property
    def done(self) -> bool:
        """Whether every turn is answered."""
        return self.turn == self.item.turns

    def ask(self) -> Answer:
        """The answer to fill for the turn that is due.

        A later turn that has outgrown the context comes back finished, with no token; a first
        one is refused, and the error says which prompt it is about.
        """
        index = self.item.first + self.turn
        try:
            ids = encode(self._prompt(), self.engine.tokenizer, self.engine.defaults.chat)
            limit = self.engine.parts.target.max_context
            if self.turn and limit is not None and len(ids) >= limit:
                request = Request(ids, seed=self.engine.defaults.seed, index=index)
                return Answer(request, finish_reason=CONTEXT)
            return Answer(self.engine.request(ids, index=index, **self.item.options))
        except ForedraftError as error:
            if not self.item.where:
                raise
            raise ForedraftError(f"{self.item.where}: {error}") from error

    def hear(self, answer: Answer) -> int:
        """Takes the answer to the turn that was due; returns that turn's number."""
        self._hear(answer.token_ids, answer.finish_reason)
        return self.turn - 1

    def _hear(self, ids: list[int], finish_reason: str | None) -> None:
        self.turn += 1
        if not self.done:
            tokenizer = self.engine.tokenizer
            self.said.append(tokenizer.decode(shown_ids(ids, finish_reason, tokenizer)))

    def _prompt(self) -> Any:
        """Messages for a tokenizer with a chat template, else one text in the order it was said."""
        asked = self.item.content
        if self.item.form != "turns":
            return asked
        if self.turn == 0:
            return asked[0]
        texts = [text for pair in zip(asked, self.said, strict=False) for text in pair]
        texts.append(asked[self.turn])
        if not (
            self.engine.defaults.chat and getattr(self.engine.tokenizer, "chat_template", None)
        ):
            return "\n\n".join(texts)
        return [
            {"role": ("user", "assistant")[place % 2], "content": text}
            for place, text in enumerate(texts)
        ]
