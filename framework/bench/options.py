"""How a sweep is run and what it asks: the keys of ``bench`` and ``task``, and their only defaults.

Imports no torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from ..checks import check_choice, check_range, check_whole
from ..errors import ConfigError, near_match

ON_ERROR = ("continue", "stop")
GENERATE = ("generate", "generate_lookup", "generate_assisted")
BASELINES = ("plain", "again", *GENERATE)
SOURCES = ("own", "file", "hub")
# Keys of a config that mean nothing in a sweep, and what does their job here.
NOT_HERE = {
    "prompt": "prompts come from task=own, or task=file task.file=FILE",
    "prompts": "prompts come from task=own, or task=file task.file=FILE",
    "out": "results go to the folder bench.dir=DIR",
    "output": "results go to the folder bench.dir=DIR",
    "samples": "bench.repeats=N runs every prompt N times",
    "logprobs": "a sweep keeps no log-probabilities",
    "prompt_logprobs": "a sweep keeps no log-probabilities",
    "observers": "a sweep keeps records of its own, and an observer would be timed with the cells",
    "observer": "a sweep keeps records of its own, and an observer would be timed with the cells",
}
# Which keys only one source has.
OWNED = {
    "file": "file",
    "name": "hub",
    "subset": "hub",
    "split": "hub",
    "column": "hub",
    "group_column": "hub",
    "revision": "hub",
}


@dataclass
class BenchOptions:
    """How a sweep is run.

    Args:
        dir: the folder of the results, which must be empty; null is ``outputs/bench/<date-time>``.
        resume: the folder of a sweep that broke off; only what is missing in it runs.
        repeats: how often every cell answers every prompt.
        warmup: runs of every cell before its first measured one.
        minutes: time for the whole sweep, spread evenly over the cells; null runs all of it.
        limit_s: seconds that one run may take; after that it counts as hung.
        on_error: ``continue`` records a cell that fails and goes on with the others.
        seed: of the order in which runs are made.
        baselines: what every setting is compared with. ``plain`` is this library's own loop without
            drafts, ``again`` the same once more (what is left between the two is noise), the others
            are transformers' ``generate`` alone, with its prompt lookup, or with an assistant.
        assistant: the assistant's model folder or hub id, for ``generate_assisted``.
        audit: rounds of each sampling cell that are audited.
    """

    dir: str | None = None
    resume: str | None = None
    repeats: int = 3
    warmup: int = 1
    minutes: float | None = None
    limit_s: float = 300.0
    on_error: str = "continue"
    seed: int = 0
    baselines: list[str] = field(default_factory=lambda: ["plain", "again", "generate"])
    assistant: str | None = None
    audit: int = 8

    def __post_init__(self) -> None:
        check_whole("bench.repeats", self.repeats, 1, 1000)
        check_whole("bench.warmup", self.warmup, 0, 100)
        check_whole("bench.seed", self.seed, 0, (1 << 63) - 1)
        check_whole("bench.audit", self.audit, 0, 10**6)
        check_range("bench.limit_s", self.limit_s, 0.1, 7 * 24 * 3600)
        if self.minutes is not None:
            check_range("bench.minutes", self.minutes, 0.01, 7 * 24 * 60)
        check_choice("bench.on_error", self.on_error, ON_ERROR)
        self._check_folders()
        self._check_baselines()

    def _check_folders(self) -> None:
        for key in ("dir", "resume"):
            if getattr(self, key) == "":
                raise ConfigError(f"bench.{key}='' is not possible; it must be a folder or null.")
        if self.dir is not None and self.resume is not None:
            raise ConfigError(
                f"bench.dir={self.dir!r} has no effect beside bench.resume={self.resume!r}, which "
                "goes on in its own folder; drop one."
            )

    def _check_baselines(self) -> None:
        for name in self.baselines:
            if name not in BASELINES or self.baselines.count(name) > 1:
                hint = near_match(name, BASELINES)
                raise ConfigError(
                    f"bench.baselines={self.baselines!r} is not possible; {hint}it lists each of "
                    f"{', '.join(BASELINES)} once at most."
                )
        if "plain" not in self.baselines:
            raise ConfigError(
                f"bench.baselines={self.baselines!r} is not possible; it must list plain, which "
                "every speed-up and every check of losslessness is against."
            )
        assisted = "generate_assisted" in self.baselines
        if assisted != (self.assistant is not None):
            raise ConfigError(
                "bench.baselines lists generate_assisted, which needs bench.assistant=MODEL."
                if assisted
                else f"bench.assistant={self.assistant!r} has no effect unless bench.baselines lists "
                "generate_assisted."
            )


@dataclass
class TaskConfig:
    """What a sweep asks.

    Args:
        source: ``own`` (48 short prompts in six groups), ``file`` or ``hub``; chosen by ``task=``.
        file: JSON lines, as ``foredraft generate prompts=`` takes them, or Spec-Bench's questions;
            of several turns the first is asked. ``group`` or ``category`` names a line's group.
        name: a data set's id on the hub, ``owner/name``; needs the extra ``hub``.
        subset: which of the data set's configurations.
        split: which part of the data set; null is ``test``.
        column: the column that holds the prompts; null is ``prompt``.
        group_column: the column that names a prompt's group.
        revision: the data set's commit, tag or branch.
        groups: ask prompts of these groups only; empty asks all.
        per_group: at most so many prompts of each group, the first ones.
        most_words: leave out prompts of more words.
    """

    source: str = "own"
    file: str | None = None
    name: str | None = None
    subset: str | None = None
    split: str | None = None
    column: str | None = None
    group_column: str | None = None
    revision: str | None = None
    groups: list[str] = field(default_factory=list)
    per_group: int | None = None
    most_words: int | None = None

    def __post_init__(self) -> None:
        check_choice("task.source", self.source, SOURCES)
        for key, owner in OWNED.items():
            value = getattr(self, key)
            if value is not None and owner != self.source:
                raise ConfigError(
                    f"task.{key}={value!r} has no effect with task={self.source}; write "
                    f"task={owner}, or leave it away."
                )
        if self.source == "file" and not self.file:
            raise ConfigError("task=file needs task.file=FILE, JSON lines with a prompt each.")
        if self.source == "hub":
            _check_name(self.name)
        for key in ("per_group", "most_words"):
            if getattr(self, key) is not None:
                check_whole(f"task.{key}", getattr(self, key), 1, 10**6)


def check_place(key: str, where: str) -> None:
    """Refuses a key that means nothing in a sweep."""
    root = key.split(".")[0]
    if root in NOT_HERE:
        raise ConfigError(f"{where!r} is not possible in a sweep: {NOT_HERE[root]}.")


def _check_name(name: str | None) -> None:
    """A hub id. A path would be read from this machine instead."""
    if not name or not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name):
        raise ConfigError(
            f"task.name={name!r} is not possible with task=hub; it must be a data set's id on the "
            "hub, owner/name."
        )
    if Path(name).exists():
        raise ConfigError(
            f"task.name={name!r} is a file or folder here; write task=file task.file=FILE for it."
        )
