"""TensorBoard: an event file per run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from .tracking import Tracker, library, run_name, whole_run

if TYPE_CHECKING:
    from ..observing import RunRecord, RunSummary
    from .builtin import TensorBoardConfig

FLUSH_SECONDS = 10


class TensorBoard(Tracker):
    """Scalars ``round/...``, ``request/...`` and ``run/...``; the config and the parts as text."""

    def __init__(self, config: TensorBoardConfig) -> None:
        super().__init__(config.every)
        self.folder = Path(config.folder).expanduser()
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigError(
                f"observer.tensorboard.folder={config.folder!r} is not possible: it is a file."
            )
        self._library = library("torch.utils.tensorboard", "tensorboard")
        self._writer: Any = None

    def begin(self, run: RunRecord) -> None:
        folder = str(self.folder / run_name(run))
        self._writer = self._library.SummaryWriter(folder, flush_secs=FLUSH_SECONDS)
        facts = {"run": run.run, "parts": run.parts, "lossless": run.lossless, "seed": run.seed}
        self._text("run", {**facts, "versions": run.versions})
        self._text("config", run.config)

    def log(self, group: str, step: int, figures: dict[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(f"{group}/{name}", value, step)

    def end(self, summary: RunSummary | None) -> None:
        if self._writer is None:
            return
        if summary is not None:
            self.log("run", 0, whole_run(summary))
            self._text("ended", {"ended": summary.ended, "error": summary.error})
        self._writer.close()
        self._writer = None

    def _text(self, tag: str, value: dict[str, Any]) -> None:
        """JSON as Markdown's preformatted text."""
        lines = json.dumps(value, indent=1).splitlines()
        self._writer.add_text(tag, "\n".join(f"    {line}" for line in lines))
