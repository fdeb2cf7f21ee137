"""The keys that belong to no plugin: the top of a config, ``sampling`` and ``runtime``."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..checks import check_choice, check_whole
from ..errors import ConfigError


@dataclass
class RuntimeConfig:
    """How a run uses the machine.

    Args:
        batch_size: requests decoded together.
        memory_check: refuse a run whose caches cannot fit, before it starts.
    """

    batch_size: int = 1
    memory_check: bool = True

    def __post_init__(self) -> None:
        check_whole("runtime.batch_size", self.batch_size, 1, 4096)


@dataclass
class RunConfig:
    """The keys at the top.

    Args:
        max_new_tokens: cap on each answer; null runs to its end or to the end of the context.
        seed: of all randomness; null draws a fresh one.
        stop: strings that end an answer.
        prompt: one prompt. Texts and paths are set from the raw command line, not by Hydra.
        prompts: a file of prompts.
        out: where answers go; null is standard output.
        output: ``text`` or ``json``.
        chat: put prompts into the target's chat template, if it has one.
    """

    max_new_tokens: int | None = 128
    seed: int | None = 0
    stop: list[str] = field(default_factory=list)
    prompt: str | None = None
    prompts: str | None = None
    out: str | None = None
    output: str = "text"
    chat: bool = True

    def __post_init__(self) -> None:
        if self.max_new_tokens is not None:
            check_whole("max_new_tokens", self.max_new_tokens, 1, 1 << 31)
        if self.seed is not None:
            check_whole("seed", self.seed, 0, (1 << 63) - 1)
        if "" in self.stop:
            raise ConfigError(
                "stop='' is not possible; a stop string needs at least one character."
            )
        check_choice("output", self.output, ("text", "json"))
