"""The runs of ``foredraft generate``, one after the other. Imports torch when a run has work."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..config import to_objects
from ..errors import ConfigError, ForedraftError
from .display import note, summary
from .outfile import Kept, OutFile
from .prompts import Item, several
from .results import kept_config

if TYPE_CHECKING:
    from ..engine import Engine
    from ..interfaces import Observer

LISTENING = ("observers", "observer")
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

    @property
    def bare(self) -> dict[str, Any]:
        """The config without its observers, on which no answer depends."""
        return {key: value for key, value in self.config.items() if key not in LISTENING}


def answer_runs(runs: Sequence[Run], items: list[Item]) -> None:
    """Answers all prompts in every run; what is in the file already is left out."""
    path, samples = runs[0].config["out"], {run.config["samples"] for run in runs}
    if len(samples) > 1:
        raise ConfigError(
            "samples cannot differ between the runs of a sweep; set it to one number."
        )
    items = several(items, samples.pop())
    out = OutFile(path, [kept_config(run.bare) for run in runs], items) if path else None
    engines = Engines()
    try:
        for run in runs:
            _answer_run(run, items, out, engines)
    except ForedraftError as error:
        if not run.heading:
            raise
        raise ForedraftError(f"{run.heading}: {error}") from error
    finally:
        engines.close()
        if out is not None:
            out.close()


class Engines:
    """Builds engines; a sweep that keeps its target loads it once, and so with its observers."""

    def __init__(self) -> None:
        self._last: Engine | None = None
        self._observers: tuple[Observer, ...] = ()
        self._heard: object = None

    def get(self, run: Run) -> Engine:
        """The engine of a run."""
        from ..api import engine_from

        config, observers = run.bare, self._listening(run.config)
        same = self._last is not None and self._last.config["target"] == config["target"]
        target = self._last.parts.target if self._last is not None and same else None
        self._last = None  # a target that is given up leaves before the next one loads
        self._last = engine_from(config, target, same_target=True, observers=observers)
        _hush()
        return self._last

    def close(self) -> None:
        """Closes the observers."""
        observers, self._observers, self._heard = self._observers, (), None
        if observers:
            from ..listening import close_all

            close_all(observers)

    def _listening(self, config: dict[str, Any]) -> tuple[Observer, ...]:
        from ..config.build import build_observers

        heard = [config.get(key) for key in LISTENING]
        if heard != self._heard:
            self.close()
            self._observers, self._heard = build_observers(to_objects(config)), heard
        return (*self._observers, *_bar(config))


def _bar(config: dict[str, Any]) -> tuple[Observer, ...]:
    """A bar for a file of prompts, on a terminal that nothing else writes to."""
    alone = config["out"] is not None or not sys.stdout.isatty()
    wanted = config["prompts"] is not None and "progress" not in config["observers"]
    if not (alone and wanted and sys.stderr.isatty()):
        return ()
    from ..observers.progress import ProgressBar

    return (ProgressBar(),)


def _hush() -> None:
    """Keeps transformers' remarks (a prompt longer than some limit) from among our own lines."""
    if "transformers" in sys.modules:
        from transformers.utils import logging

        logging.set_verbosity_error()


def _answer_run(run: Run, items: list[Item], out: OutFile | None, engines: Engines) -> None:
    if run.heading:
        note(f"--- {run.heading}")
    config = kept_config(run.bare)
    kept = [out.answered(config, item) if out else [] for item in items]
    done, due = sum(map(len, kept)), sum(item.turns for item in items)
    if done:
        note(f"{done} of {due} answers are in {run.config['out']} already")
    if done < due:
        _answer_due(run, items, kept, out, engines.get(run))


def _answer_due(
    run: Run, items: list[Item], kept: list[list[Kept]], out: OutFile | None, engine: Engine
) -> None:
    from .conversation import Conversation
    from .runner import Runner

    lossless = bool(getattr(to_objects(run.config).verifier.spec, "lossless", False))
    talks = [Conversation(item, engine, found) for item, found in zip(items, kept, strict=True)]
    as_json = run.config["output"] == "json"
    runner = Runner(engine, kept_config(run.bare), lossless, as_json, out)
    runner.run(talks)
    reason = runner.finish_reason if len(runner.metrics) == 1 else ""
    note(summary(runner.metrics, runner.seconds, reason) + ("" if lossless else "; " + LOSSY))
