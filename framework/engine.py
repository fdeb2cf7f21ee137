"""The façade behind ``foredraft.framework``: the same job as the command line, from Python."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from .checks import check_whole
from .constraints import Constraint
from .decoding import Parts, decode
from .errors import InputError, near_match
from .factories import make_part
from .interfaces import GammaPolicy, Observer
from .listening import Listeners, OpenRun, close_all
from .logprobs import prompt_scores
from .memory import check_fits
from .observing import RunRecord, run_record
from .pairing import check_pair, check_policy, check_reads, check_target, known_rules
from .params import SamplingParams
from .plugins.registry import CHOSEN
from .policies.reading import policy_part
from .processor_checks import prepare
from .records import Round
from .requests import Answer, Request
from .text import Prompt, TextStream, encode, reader_text
from .times.profiles import Profile

REQUESTED = (
    "max_new_tokens", "sampling", "seed", "stop", "stop_ids", "logprobs", "prompt_logprobs",
    "constraint",
)  # fmt: skip


@dataclass(frozen=True)
class Defaults:
    """What a request gets where a call does not say otherwise."""

    max_new_tokens: int | None = 128
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int | None = 0
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    logprobs: str | None = None
    prompt_logprobs: bool = False
    constraint: Constraint | None = None
    samples: int = 1
    chat: bool = True
    batch_size: int = 1
    memory_check: bool = True


class Engine:
    """A target with a drafter, a verifier and a policy, ready to answer prompts.

    Build it with :func:`foredraft.framework.load`, or from objects of your own. Whoever made an
    observer closes it: ``close`` ends the life of those that ``load`` made from the config, as
    does the engine's own end.
    """

    def __init__(
        self,
        parts: Parts,
        defaults: Defaults | None = None,
        config: dict[str, Any] | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        times = parts.times or Profile(parts.target, parts.drafter)
        self.parts, self.config = replace(parts, times=times), config or {}
        self.defaults = defaults or Defaults()
        self._closers: list[Callable[[], object]] = []
        self._policies: dict[str, GammaPolicy] = {}
        self._listeners = Listeners(observers, self._describer(), self.tokenizer is not None)
        self._check_pair(0.0 if self.parts.verifier.greedy_only else 1.0)

    @property
    def tokenizer(self) -> Any:
        """The target's tokenizer, or None."""
        return self.parts.target.tokenizer

    def request(self, prompt: Prompt, index: int = 0, **options: Any) -> Request:
        """A request from text, chat messages or ids; ``options`` are fields of ``Request``.

        ``policy`` may also be a name or ``{"name": ..., and its values}``; the same value stands
        for the same policy, so that requests share what it shares.
        """
        chat = options.pop("chat", self.defaults.chat)
        _check_names(options)
        values = {name: getattr(self.defaults, name) for name in REQUESTED} | options
        stop = values["stop"]
        values["stop"] = (stop,) if isinstance(stop, str) else tuple(stop)
        values["stop_ids"] = tuple(values["stop_ids"])
        ids = encode(prompt, self.tokenizer, chat)
        if values.get("processors"):
            target = self.parts.target
            values["processors"] = prepare(
                values["processors"], target.vocab_size, ids, target.device
            )
        values["policy"] = self._policy_of(values.get("policy"))
        request = Request(ids, index=index, **values)
        self._check(request)
        return request

    def generate(self, prompt: Prompt, **options: Any) -> Answer:
        """Answers one prompt."""
        if "samples" in options:
            raise InputError("generate gives one answer; use generate_many for samples.")
        return self.generate_many([prompt], samples=1, **options)[0]

    def generate_many(
        self, prompts: Sequence[Prompt], samples: int | None = None, **options: Any
    ) -> list[Answer]:
        """Answers prompts in batches of ``batch_size``; ``options`` apply to all.

        ``samples`` answers per prompt, one after the other in the list, with noise of their own.
        """
        samples = self.defaults.samples if samples is None else samples
        check_whole("samples", samples, 1, 4096)
        answers = [
            Answer(self.request(prompt, index, sample=sample, **options))
            for index, prompt in enumerate(prompts)
            for sample in range(samples)
        ]
        with self.observed(len(answers)):
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
        """Runs answers as one batch and yields every round; the answers fill as it goes.

        To observers it is a run of its own, unless ``observed`` has opened one.
        """
        rounds = self._rounds(answers)
        return self._listeners.follow(answers, rounds) if self.observers else rounds

    def observed(self, requests: int | None = None) -> AbstractContextManager[OpenRun | None]:
        """All batches inside the block are one run to the observers; inside another, a part of it.

        Args:
            requests: how many answers are to come, if that is known.
        """
        return self._listeners.opened(requests)

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Who hears what the engine does."""
        return self._listeners.observers

    def close(self) -> None:
        """Closes the observers that the config brought. The engine goes on, with no observers."""
        self._listeners.observers = ()
        while self._closers:
            self._closers.pop()()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def owns(self, observers: Sequence[Observer]) -> None:
        """Closes these when the engine is closed, is no longer there, or Python ends."""
        if observers:
            self._closers.append(weakref.finalize(self, close_all, tuple(observers)))

    def _describer(self) -> Callable[[int | None], RunRecord]:
        """Makes records of runs. Without the engine in it: one that is dropped is gone at once."""
        parts, seed = self.parts, self.defaults.seed
        names = {k: parts.names.get(k, type(getattr(parts, k)).__name__) for k in CHOSEN}
        return partial(run_record, names, bool(parts.verifier.lossless), self.config, seed)

    def _rounds(self, answers: Sequence[Answer]) -> Iterator[Round]:
        if self.defaults.memory_check:
            longest = max(len(a.request.prompt) + self._limit(a.request) for a in answers)
            check_fits(self.parts.target, self.parts.drafter, len(answers), longest)
        for answer in answers:
            if answer.request.prompt_logprobs:
                scores = prompt_scores(self.parts.target, answer.request.prompt)
                answer.prompt_logprobs, answer.prompt_ranks = scores
        waiting = list(answers)
        detailed = any(observer.detailed for observer in self.observers)
        for outcome in decode(self.parts, list(answers), detailed):
            for answer in waiting:
                if answer.finish_reason is not None:
                    self._finish(answer)
            waiting = [answer for answer in waiting if answer.finish_reason is None]
            yield outcome
        for answer in waiting:  # cancelled ones end between rounds
            self._finish(answer)

    def _policy_of(self, value: object) -> GammaPolicy | None:
        """A request's policy, made of what a call or a line of prompts said."""
        if value is None:
            return None
        if isinstance(value, GammaPolicy):
            self._check_policy(value, type(value).__name__)
            return value
        read = policy_part(value)
        key = repr(read)
        if key not in self._policies:
            self._policies[key] = make_part(read.spec, read.config)
            self._check_policy(self._policies[key], read.spec.name)
        return self._policies[key]

    def _check_policy(self, policy: GammaPolicy, name: str) -> None:
        drafter = self.parts.drafter
        shown = self.parts.names.get("drafter", type(drafter).__name__)
        check_policy(policy.stops, name, shown, drafter.kind)

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
        self._check_pair(request.sampling.temperature)

    def _check_pair(self, temperature: float) -> None:
        """Objects are paired by the rule that a config is: whatever built them."""
        parts, kind = self.parts, self.parts.drafter.kind
        names = {k: parts.names.get(k, type(getattr(parts, k)).__name__) for k in CHOSEN}
        verifier, drafter = names["verifier"], names["drafter"]
        check_pair(parts.verifier, verifier, drafter, kind, temperature, known_rules())
        check_target(parts.target.trees, names["target"], drafter, kind)
        check_reads(parts.drafter.reads, parts.target.depth, names["target"], drafter)
        self._check_policy(parts.policy, names["policy"])


def _check_names(options: dict[str, Any]) -> None:
    """Refuses what is no field of a request, naming the near match."""
    known = sorted({f.name for f in fields(Request)} - {"prompt", "index"})
    for name in options:
        if name not in known:
            raise InputError(
                f"option {name!r} is not possible; {near_match(name, known)}it must be one of "
                f"{', '.join(known)}, chat."
            )
    for name in ("stop_ids", "processors"):
        if not isinstance(options.get(name, ()), Collection):
            raise InputError(f"{name}={options[name]!r} is not possible; it must be a list.")
