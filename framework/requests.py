"""What goes into the loop and what comes out: one request, one answer."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from .errors import ConfigError, InputError
from .metrics import Metrics
from .params import SamplingParams


@dataclass
class Request:
    """One prompt and how to answer it.

    Args:
        prompt: ids, at least one.
        max_new_tokens: cap on the answer; None runs to EOS or to the end of the context.
        sampling: this request's own sampling.
        seed: of this request's noise; None draws one (it is kept in ``seed``).
        index: the prompt's place in its run; part of the noise key.
        stop: strings that end the answer.
    """

    prompt: list[int]
    max_new_tokens: int | None = 128
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int | None = 0
    index: int = 0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.prompt = [int(token) for token in self.prompt]
        if not self.prompt:
            raise InputError(f"prompt {self.index} is empty; a prompt needs at least one token.")
        limit = self.max_new_tokens
        if limit is not None and (type(limit) is not int or limit < 1):
            raise ConfigError(
                f"max_new_tokens={limit!r} is not possible; it must be a whole number from 1, or null "
                "for no limit but the context."
            )
        if any(not stop for stop in self.stop):
            raise ConfigError(
                "stop='' is not possible; a stop string needs at least one character."
            )
        if self.seed is None:
            self.seed = secrets.randbits(63)
        if type(self.seed) is not int:
            raise ConfigError(
                f"seed={self.seed!r} is not possible; it must be a whole number, or null."
            )


@dataclass
class Answer:
    """What became of a request; filled while the loop runs.

    Args:
        request: the request.
        token_ids: emitted ids, ending with the token that completed the stop.
        finish_reason: ``eos``, ``stop``, ``length``, ``context``, ``cancelled``, or None while running.
        metrics: this request's counters.
    """

    request: Request
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    metrics: Metrics = field(default_factory=Metrics)
    text: str = ""
    trimmed_text: str = ""
    cancelled: bool = False

    def cancel(self) -> None:
        """Ends the request before its next round; what was emitted is kept."""
        self.cancelled = True
