"""The keys that belong to no plugin: the top of a config, ``sampling`` and ``runtime``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ..checks import check_choice, check_whole
from ..errors import ConfigError

GRAMMARS = {".json": "json_schema", ".regex": "regex", ".lark": "lark", ".gbnf": "gbnf"}


@dataclass
class RuntimeConfig:
    """How a run uses the machine.

    Args:
        batch_size: requests decoded together.
        memory_check: refuse a run whose caches cannot fit, before it starts.
        times: where policies have step times from: ``cached`` measures what is not in the cache
            folder, ``refresh`` measures anew, and a file is taken as it is.
    """

    batch_size: int = 1
    memory_check: bool = True
    times: str = "cached"

    def __post_init__(self) -> None:
        check_whole("runtime.batch_size", self.batch_size, 1, 4096)
        if not self.times:
            raise ConfigError(
                "runtime.times='' is not possible; it must be cached, refresh or a file."
            )


@dataclass
class RunConfig:
    """The keys at the top.

    Args:
        max_new_tokens: cap on each answer; null runs to its end or to the end of the context.
        seed: of all randomness; null draws a fresh one.
        stop: strings that end an answer.
        stop_ids: ids that end an answer, besides the target's own.
        samples: answers per prompt, each with noise of its own.
        logprobs: log-probability and rank of every emitted token in the JSON answer: ``raw`` or
            ``processed``; null leaves them out.
        prompt_logprobs: the same of the prompt's tokens, always raw.
        grammar: a file that answers have to obey: ``.json`` (a schema), ``.regex``, ``.lark`` or
            ``.gbnf``; needs the extra ``grammar``.
        prompt: one prompt. Texts and paths are set from the raw command line, not by Hydra.
        prompts: a file of prompts.
        out: where answers go; null is standard output.
        output: ``text`` or ``json``.
        chat: put prompts into the target's chat template, if it has one.
        observers: names of observers that hear what the run does; ``observer.<name>.<key>`` sets
            the values of a listed one.
    """

    max_new_tokens: int | None = 128
    seed: int | None = 0
    stop: list[str] = field(default_factory=list)
    stop_ids: list[int] = field(default_factory=list)
    samples: int = 1
    logprobs: str | None = None
    prompt_logprobs: bool = False
    grammar: str | None = None
    prompt: str | None = None
    prompts: str | None = None
    out: str | None = None
    output: str = "text"
    chat: bool = True
    observers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.max_new_tokens is not None:
            check_whole("max_new_tokens", self.max_new_tokens, 1, 1 << 31)
        if self.seed is not None:
            check_whole("seed", self.seed, 0, (1 << 63) - 1)
        if "" in self.stop:
            raise ConfigError(
                "stop='' is not possible; a stop string needs at least one character."
            )
        for token in self.stop_ids:
            check_whole("stop_ids", token, 0, 1 << 31)
        check_whole("samples", self.samples, 1, 4096)
        twice = [name for name in self.observers if self.observers.count(name) > 1]
        if twice:
            raise ConfigError(
                f"observers={self.observers!r} lists {twice[0]!r} twice; each is listed once."
            )
        if self.logprobs is not None:
            check_choice("logprobs", self.logprobs, ("raw", "processed"))
        if self.grammar is not None:
            check_choice("the ending of grammar", Path(self.grammar).suffix, GRAMMARS)
        check_choice("output", self.output, ("text", "json"))
