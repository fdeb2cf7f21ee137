"""What goes into the loop and what comes out: one request, one answer."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .checks import check_choice, check_whole
from .errors import ConfigError, InputError
from .metrics import Metrics
from .params import SamplingParams
from .policies.builtin import MAX_GAMMA

if TYPE_CHECKING:
    from .constraints import Constraint
    from .interfaces import GammaPolicy

LOGPROBS = ("raw", "processed")


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
        stop_ids: ids that end it, besides the target's own.
        sample: which of the prompt's samples this is; part of the noise key.
        logprobs: ``raw`` or ``processed`` (see ``logprobs.py``); None: none.
        prompt_logprobs: whether the prompt's tokens are scored too.
        processors: transformers' ``LogitsProcessor`` objects, in order (see ``processors.py``).
        constraint: what the answer has to obey, a grammar for example.
        gamma: drafted tokens per round of this request, 0 for none at all; None leaves it to a
            policy.
        policy: this request's own policy; None is the run's.
    """

    prompt: list[int]
    max_new_tokens: int | None = 128
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int | None = 0
    index: int = 0
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    sample: int = 0
    logprobs: str | None = None
    prompt_logprobs: bool = False
    processors: tuple[Any, ...] = ()
    constraint: Constraint | None = None
    gamma: int | None = None
    policy: GammaPolicy | None = None

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
        if self.gamma is not None:
            check_whole("gamma", self.gamma, 0, MAX_GAMMA)
            if self.policy is not None:
                raise ConfigError(
                    f"gamma={self.gamma} and a policy are both given for a request; give one of them."
                )
        if self.logprobs is not None:
            check_choice("logprobs", self.logprobs, LOGPROBS)
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
        finish_reason: ``eos``, ``stop``, ``constraint``, ``length``, ``context``, ``cancelled``, or
            None while running.
        metrics: this request's counters.
        logprobs, ranks: of each emitted token, if the request asked for them.
        prompt_logprobs, prompt_ranks: of each prompt token but the first, always raw.
    """

    request: Request
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    metrics: Metrics = field(default_factory=Metrics)
    text: str = ""
    trimmed_text: str = ""
    cancelled: bool = False
    logprobs: list[float] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    prompt_logprobs: list[float] = field(default_factory=list)
    prompt_ranks: list[int] = field(default_factory=list)

    def take(
        self, tokens: list[int], logprobs: list[float], ranks: list[int], reason: str | None
    ) -> None:
        """Adds what a round brought; scores of tokens behind a stop are dropped with them."""
        self.token_ids.extend(tokens)
        if self.request.logprobs:
            self.logprobs.extend(logprobs[: len(tokens)])
            self.ranks.extend(ranks[: len(tokens)])
        self.finish_reason = reason

    def cancel(self) -> None:
        """Ends the request before its next round; what was emitted is kept."""
        self.cancelled = True
