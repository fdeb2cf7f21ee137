"""Weights & Biases: a run in a folder, to be sent later with ``wandb sync``, or sent at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..observing import DONE
from .tracking import Tracker, library, run_name, whole_run

if TYPE_CHECKING:
    from ..observing import RunRecord, RunSummary
    from .builtin import WandbConfig

GROUPS = ("round", "request")


class Wandb(Tracker):
    """The config as config, figures as history over ``round`` and ``request``, and a summary."""

    def __init__(self, config: WandbConfig) -> None:
        super().__init__(config.every)
        self.folder = Path(config.folder).expanduser()
        if not self.folder.is_dir():
            raise ConfigError(
                f"observer.wandb.folder={config.folder!r} is not possible: there is no such folder."
            )
        # Reports of its own errors would go to its makers; whoever wants that can set it to true.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self._library = library("wandb", "wandb")
        self._options = {"mode": config.mode, "project": config.project, "entity": config.entity}
        self._run: Any = None

    def begin(self, run: RunRecord) -> None:
        facts = {"run": run.run, "parts": run.parts, "lossless": run.lossless}
        # Its capture of the console would get between our answers and standard output.
        quiet = self._library.Settings(console="off", silent=True)
        self._run = self._library.init(
            **self._options,
            dir=str(self.folder),
            name=run_name(run),
            config={**run.config, **facts, "versions": run.versions},
            settings=quiet,
            reinit="create_new",
        )
        for group in GROUPS:
            self._run.define_metric(f"{group}/*", step_metric=group)

    def log(self, group: str, step: int, figures: dict[str, float]) -> None:
        self._run.log({group: step, **{f"{group}/{name}": v for name, v in figures.items()}})

    def end(self, summary: RunSummary | None) -> None:
        if self._run is None:
            return
        run, self._run = self._run, None
        if summary is not None:
            run.summary.update({f"run/{name}": v for name, v in whole_run(summary).items()})
            run.summary.update({"run/ended": summary.ended, "run/error": summary.error})
        run.finish(exit_code=0 if summary is not None and summary.ended == DONE else 1)
