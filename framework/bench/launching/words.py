"""What only ``foredraft bench -m`` takes: a launcher, its settings, ``bench.jobs``, and lists in commas."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from ...checks import check_whole
from ...config.composing import expand_sweep
from ...config.overrides import parse
from ...config.safety import check_value
from ...errors import ConfigError

BASIC, SLURM = "basic", "submitit_slurm"
MOST_JOBS = 10_000
JOBS = "bench.jobs="
_LAUNCHER = re.compile(r"\+{0,2}hydra[./]launcher\s*[.=]")
_OWN = ("grid", "zip", "exclude")


@dataclass(frozen=True)
class Chosen:
    """A launcher as the command line has it.

    Args:
        name: an option of ``hydra/launcher``.
        settings: ``hydra.launcher.KEY=VALUE``, as typed.
        jobs: ``bench.jobs``; None where nothing is said.
        at_once: how many of them are at work at the same time at most; 0: not known yet.
    """

    name: str
    settings: list[str] = field(default_factory=list)
    jobs: int | None = None
    at_once: int = 0


def taken(
    words: Sequence[str], multirun: bool, config_dir: Path | str | None = None
) -> tuple[list[str], Chosen | None]:
    """The words of a sweep without those of its launcher, and the launcher.

    Args:
        multirun: whether ``-m`` was given. With it, ``KEY=a,b`` is ``grid.KEY=[a,b]``.

    Returns:
        The words, and None where no launcher and no number of jobs was named: one process then.
    """
    launcher = [word.strip() for word in words if _LAUNCHER.match(word.strip())]
    jobs = [word.strip() for word in words if word.strip().startswith(JOBS)]
    if (launcher or jobs) and not multirun:
        word = (launcher or jobs)[0]
        raise ConfigError(f"{word!r} needs -m, which runs a sweep in jobs: foredraft bench -m ...")
    rest = [word for word in words if word.strip() not in (*launcher, *jobs)]
    if multirun:
        rest = [_as_axis(word, config_dir) for word in rest]
    if not launcher and not jobs:
        return rest, None
    return rest, _chosen(launcher, _jobs(jobs))


def _jobs(words: Sequence[str]) -> int | None:
    if len(words) > 1:
        raise ConfigError(f"{words[0]!r} and {words[1]!r} are both given; give one of them.")
    if not words:
        return None
    value: Any = parse(words[0]).value()
    check_whole("bench.jobs", value, 1, MOST_JOBS)
    return int(value)


def _chosen(words: Sequence[str], jobs: int | None) -> Chosen:
    names, settings = [], []
    for text in words:
        override = _parsed(text)
        if override.key_or_group == "hydra/launcher":
            names.append(str(override.value()))
        else:
            settings.append(text)
    if len(names) > 1:
        raise ConfigError(f"hydra/launcher is {names[0]} and {names[1]}; give it once.")
    return Chosen(names[0] if names else BASIC, settings, jobs)


def _parsed(text: str) -> Override:
    try:
        override = OverridesParser.create().parse_override(text)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"the override {text!r} cannot be read ({reason}).") from error
    key = override.key_or_group
    if override.is_sweep_override() or override.is_delete() or key == "hydra.launcher":
        raise ConfigError(
            f"{text!r} is not possible; a sweep has one launcher, hydra/launcher=NAME, and "
            "hydra.launcher.KEY=VALUE for each of its settings."
        )
    if any(re.fullmatch(r"_\w*_", part) for part in key.split(".")):
        raise ConfigError(f"{text!r} is not possible; a launcher is chosen by hydra/launcher=NAME.")
    check_value(override.value(), f"the override {text!r}")
    return override


def _as_axis(text: str, config_dir: Path | str | None) -> str:
    """``KEY=a,b`` as the axis that it is; other words as they are."""
    override = parse(text)
    key = override.key_or_group
    if key.split(".")[0] in _OWN or not override.is_sweep_override():
        return text
    values = [one.partition("=")[2] for (one,) in expand_sweep([text], config_dir)]
    return f"grid.{key}=[{','.join(values)}]"
