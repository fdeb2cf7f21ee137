"""The runs of ``foredraft generate``, one after the other. Imports torch when a run has work."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..config import to_objects
from ..errors import ConfigError, ForedraftError
from .display import note, progress, summary
from .outfile import Kept, OutFile
from .prompts import Item, several
from .results import kept_config

if TYPE_CHECKING:
    from ..engine import Engine

LOSSY = "lossy: this verifier does not keep the target's law"


@dataclass(frozen=True)
class Run:
    """One run of the command; a sweep has several.

    Args:
        config: the whole config, typed texts included.
        heading: what tells it from the other runs; empty when there is one.
    """

    config: dict[str, Any]
    heading: str = ""


def answer_runs(runs: Sequence[Run], items: list[Item]) -> None:
    """Answers all prompts in every run; what is in the file already is left out."""
    path, samples = runs[0].config["out"], {run.config["samples"] for run in runs}
    if len(samples) > 1:
        raise ConfigError(
            "samples cannot differ between the runs of a sweep; set it to one number."
        )
    items = several(items, samples.pop())
    out = OutFile(path, [kept_config(run.config) for run in runs], items) if path else None
    engines = Engines()
    try:
        for run in runs:
            _answer_run(run, items, out, engines)
    except ForedraftError as error:
        if not run.heading:
            raise
        raise ForedraftError(f"{run.heading}: {error}") from error
    finally:
        if out is not None:
            out.close()


class Engines:
    """Builds engines; a sweep that keeps its target loads it once."""

    def __init__(self) -> None:
        self._last: Engine | None = None

    def get(self, config: dict[str, Any]) -> Engine:
        """The engine of a config."""
        from ..api import engine_from

        same = self._last is not None and self._last.config["target"] == config["target"]
        target = self._last.parts.target if self._last is not None and same else None
        self._last = None  # a target that is given up leaves before the next one loads
        self._last = engine_from(config, target, same_target=True)
        _hush()
        return self._last


def _hush() -> None:
    """Keeps transformers' remarks (a prompt longer than some limit) from among our own lines."""
    if "transformers" in sys.modules:
        from transformers.utils import logging

        logging.set_verbosity_error()


def _answer_run(run: Run, items: list[Item], out: OutFile | None, engines: Engines) -> None:
    if run.heading:
        note(f"--- {run.heading}")
    kept = [out.answered(kept_config(run.config), item) if out else [] for item in items]
    done, due = sum(map(len, kept)), sum(item.turns for item in items)
    if done:
        note(f"{done} of {due} answers are in {run.config['out']} already")
    if done < due:
        _answer_due(run, items, kept, out, engines.get(run.config))


def _answer_due(
    run: Run, items: list[Item], kept: list[list[Kept]], out: OutFile | None, engine: Engine
) -> None:
    from .conversation import Conversation
    from .runner import Runner

    lossless = bool(getattr(to_objects(run.config).verifier.spec, "lossless", False))
    talks = [Conversation(item, engine, found) for item, found in zip(items, kept, strict=True)]
    alone = out is not None or not sys.stdout.isatty()
    with progress(len(items), alone and run.config["prompts"] is not None) as bar:
        as_json = run.config["output"] == "json"
        runner = Runner(engine, kept_config(run.config), lossless, as_json, out, bar)
        runner.run(talks)
    reason = runner.finish_reason if len(runner.metrics) == 1 else ""
    note(summary(runner.metrics, runner.seconds, reason) + ("" if lossless else "; " + LOSSY))
