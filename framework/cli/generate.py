"""``foredraft generate``: answers a prompt or a file of prompts."""

from __future__ import annotations

from typing import Any

from ..config import as_dict, compose, expand_sweep
from .answering import Run, answer_runs
from .arguments import Arguments, parse
from .generate_help import show_help
from .prompts import read_items


def generate(argv: list[str]) -> int:
    """Runs the command; everything that can be refused without a model is refused first."""
    arguments = parse(argv)
    if arguments.help:
        show_help(arguments)
        return 0
    runs = plan(arguments)
    if arguments.show_config:
        _show(runs)
        return 0
    answer_runs(runs, read_items(runs[0].config))
    return 0


def plan(arguments: Arguments) -> list[Run]:
    """The runs of a command line, every config composed and checked."""
    if not arguments.multirun:
        return [Run(_config(arguments, arguments.overrides))]
    combinations = expand_sweep(arguments.overrides, arguments.config_dir)
    fixed = set.intersection(*map(set, combinations))
    runs = []
    for number, overrides in enumerate(combinations, 1):
        varied = " ".join(text for text in overrides if text not in fixed)
        heading = f"run {number} of {len(combinations)}: {varied}".rstrip(": ")
        runs.append(Run(_config(arguments, overrides), heading))
    return runs


def _config(arguments: Arguments, overrides: list[str]) -> dict[str, Any]:
    config = as_dict(compose(overrides, arguments.config_dir))
    return as_dict(arguments.over(config))


def _show(runs: list[Run]) -> None:
    import yaml

    for run in runs:
        heading = f"---  # {run.heading}\n" if run.heading else ""
        print(heading + yaml.safe_dump(run.config, sort_keys=False, allow_unicode=True), end="")
