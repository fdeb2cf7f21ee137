"""The façade behind ``foredraft.framework``: the same job as the command line, from Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .decoding import Parts, decode
from .errors import ConfigError, InputError
from .interfaces import Round
from .memory import check_fits
from .params import SamplingParams
from .requests import Answer, Request
from .text import Prompt, TextStream, encode, reader_text


@dataclass(frozen=True)
class Defaults:
    """What a request gets where a call does not say otherwise."""

    max_new_tokens: int | None = 128
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int | None = 0
    stop: tuple[str, ...] = ()
    chat: bool = True
    batch_size: int = 1
    memory_check: bool = True


class Engine:
    """A target with a drafter, a verifier and a policy, ready to answer prompts.

    Build it with :func:`foredraft.framework.load`, or from objects of your own.
    """

    def __init__(
        self, parts: Parts, defaults: Defaults | None = None, config: dict[str, Any] | None = None
    ) -> None:
        self.parts, self.config = parts, config or {}
        self.defaults = defaults or Defaults()

    @property
    def tokenizer(self) -> Any:
        """The target's tokenizer, or None."""
        return self.parts.target.tokenizer

    def request(self, prompt: Prompt, index: int = 0, **options: Any) -> Request:
        """A request from text, chat messages or ids; ``options`` are fields of ``Request``."""
        chat = options.pop("chat", self.defaults.chat)
        fields = ("max_new_tokens", "sampling", "seed", "stop")
        values = {name: getattr(self.defaults, name) for name in fields} | options
        values["stop"] = (
            (values["stop"],) if isinstance(values["stop"], str) else tuple(values["stop"])
        )
        request = Request(encode(prompt, self.tokenizer, chat), index=index, **values)
        self._check(request)
        return request

    def generate(self, prompt: Prompt, **options: Any) -> Answer:
        """Answers one prompt."""
        return self.generate_many([prompt], **options)[0]

    def generate_many(self, prompts: Sequence[Prompt], **options: Any) -> list[Answer]:
        """Answers prompts in batches of ``batch_size``; ``options`` apply to all."""
        answers = [
            Answer(self.request(prompt, index, **options)) for index, prompt in enumerate(prompts)
        ]
        for begin in range(0, len(answers), self.defaults.batch_size):
            for _ in self.run(answers[begin : begin + self.defaults.batch_size]):
                pass
        return answers

    def stream(self, prompt: Prompt, **options: Any) -> Iterator[str]:
        """Yields an answer's text as rounds bring it; closing the iterator cancels the request."""
        if self.tokenizer is None:
            raise InputError("this target has no tokenizer to make text with; use generate.")
        answer = Answer(self.request(prompt, **options))
        pieces = TextStream(self.tokenizer)
        for outcome in self.run([answer]):
            piece = pieces.feed(outcome.rows[0].emitted, last=answer.finish_reason is not None)
            if piece:
                yield piece

    def run(self, answers: Sequence[Answer]) -> Iterator[Round]:
        """Runs answers as one batch and yields every round; the answers fill as it goes."""
        if self.defaults.memory_check:
            longest = max(len(a.request.prompt) + self._limit(a.request) for a in answers)
            check_fits(self.parts.target, self.parts.drafter, len(answers), longest)
        waiting = list(answers)
        for outcome in decode(self.parts, list(answers)):
            for answer in waiting:
                if answer.finish_reason is not None:
                    self._finish(answer)
            waiting = [answer for answer in waiting if answer.finish_reason is None]
            yield outcome
        for answer in waiting:  # cancelled ones end between rounds
            self._finish(answer)

    def _limit(self, request: Request) -> int:
        context = self.parts.target.max_context
        room = None if context is None else context - len(request.prompt)
        return min(n for n in (request.max_new_tokens, room, 2**31) if n is not None)

    def _finish(self, answer: Answer) -> None:
        if self.tokenizer is not None:
            answer.text = self.tokenizer.decode(answer.token_ids)
            answer.trimmed_text = reader_text(
                answer.token_ids, answer.finish_reason, answer.request.stop, self.tokenizer
            )

    def _check(self, request: Request) -> None:
        limit, vocab = self.parts.target.max_context, self.parts.target.vocab_size
        if limit is not None and len(request.prompt) >= limit:
            raise InputError(
                f"prompt {request.index} has {len(request.prompt)} tokens, but the target's context is "
                f"{limit} tokens and must hold at least one more; shorten the prompt."
            )
        wrong = next((token for token in request.prompt if not 0 <= token < vocab), None)
        if wrong is not None:
            raise InputError(
                f"prompt {request.index} holds id {wrong}; ids go from 0 to {vocab - 1}."
            )
        if self.parts.verifier.greedy_only and not request.sampling.greedy:
            raise ConfigError(
                f"{self.parts.named('verifier')} works only with temperature 0, and request "
                f"{request.index} has {request.sampling.temperature}; use verifier=token."
            )
