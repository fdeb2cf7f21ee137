"""MLflow: a run in a local store or on a server."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..observing import DONE, INTERRUPTED
from .tracking import Tracker, library, run_name, settings_of, whole_run

if TYPE_CHECKING:
    from ..observing import RunRecord, RunSummary
    from .builtin import MlflowConfig

MOST_PARAMS, LONGEST_PARAM = 100, 500  # what MLflow takes in one call, and of one value
ENDS = {DONE: "FINISHED", INTERRUPTED: "KILLED"}


class Mlflow(Tracker):
    """The config as params, figures as metrics, names and versions as tags."""

    def __init__(self, config: MlflowConfig) -> None:
        super().__init__(config.every)
        # Usage figures would go to MLflow's makers; whoever wants that can set it to false.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        self._tracking = library("mlflow.tracking", "mlflow")
        self._entities = library("mlflow.entities", "mlflow")
        self.experiment, self._run = config.experiment, ""
        self._client = self._connected(config.tracking_uri)

    def begin(self, run: RunRecord) -> None:
        name, self._run = run_name(run), ""
        tags = {f"foredraft.{key}": value for key, value in _facts(run).items()}
        made = self._client.create_run(self._experiment_id(), run_name=name, tags=tags)
        self._run = made.info.run_id
        params = [
            self._entities.Param(key, value[:LONGEST_PARAM])
            for key, value in settings_of(run).items()
        ]
        for first in range(0, len(params), MOST_PARAMS):
            self._client.log_batch(self._run, params=params[first : first + MOST_PARAMS])

    def log(self, group: str, step: int, figures: dict[str, float]) -> None:
        now = int(time.time() * 1000)
        points = [
            self._entities.Metric(f"{group}/{name}", value, now, step)
            for name, value in figures.items()
        ]
        self._client.log_batch(self._run, metrics=points)

    def end(self, summary: RunSummary | None) -> None:
        if not self._run:
            return
        if summary is not None:
            self.log("run", 0, whole_run(summary))
            self._client.set_tag(self._run, "foredraft.ended", summary.ended)
            self._client.set_tag(self._run, "foredraft.error", summary.error)
        status = ENDS.get(summary.ended if summary else "", "FAILED")
        self._client.set_terminated(self._run, status)

    def _connected(self, uri: str) -> Any:
        if "://" not in uri:
            # MLflow still reads and writes folders, and asks that one says so.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            uri = str(Path(uri).expanduser())
        try:
            return self._tracking.MlflowClient(tracking_uri=uri)
        except Exception as error:
            cause = " ".join(str(error).split(" See ")[0].split()).rstrip(".").replace(". ", "; ")
            raise ConfigError(
                f"observer.mlflow.tracking_uri={uri!r} cannot be used: {cause}."
            ) from error

    def _experiment_id(self) -> str:
        found = self._client.get_experiment_by_name(self.experiment)
        return str(
            found.experiment_id if found else self._client.create_experiment(self.experiment)
        )


def _facts(run: RunRecord) -> dict[str, str]:
    versions = {f"version.{name}": version for name, version in run.versions.items()}
    return {"run": run.run, "lossless": str(run.lossless).lower(), **run.parts, **versions}
