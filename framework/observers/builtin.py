"""What the built-in observers offer: names, configs, factories. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..checks import check_choice, check_whole
from ..plugins import hookimpl
from ..specs import CONTRACT_VERSION, ObserverSpec

HERE = "foredraft.framework.observers"
MODES = ("offline", "online")


@dataclass
class ProgressConfig:
    """A bar on standard error, if that is a terminal."""


@dataclass
class JsonLinesConfig:
    """One JSON object per record, in a file.

    Args:
        path: a file that does not exist yet; has to be given.
        rounds: write the rounds too; without, the file has the runs and their answers.
    """

    path: str = ""
    rounds: bool = True


@dataclass
class TensorBoardConfig:
    """Event files for TensorBoard; needs the extra ``tensorboard``.

    Args:
        folder: gets a folder of its own for each run.
        every: rounds that are taken together to one point.
    """

    folder: str = "tensorboard"
    every: int = 10

    def __post_init__(self) -> None:
        _check_every("tensorboard", self.every)


@dataclass
class MlflowConfig:
    """A run in an MLflow store; needs the extra ``mlflow``.

    Args:
        tracking_uri: a folder, a database (``sqlite:///mlflow.db``) or a server.
        experiment: what the runs belong to; made if there is none of this name.
        every: rounds that are taken together to one point.
    """

    tracking_uri: str = "mlruns"
    experiment: str = "foredraft"
    every: int = 10

    def __post_init__(self) -> None:
        _check_every("mlflow", self.every)


@dataclass
class WandbConfig:
    """A run for Weights & Biases; needs the extra ``wandb``.

    Args:
        mode: ``offline`` writes to the folder alone; ``online`` sends to the service.
        project: what the runs belong to.
        entity: the account or team; null leaves it to the login.
        folder: an existing folder; the files go to ``wandb/`` in it.
        every: rounds that are taken together to one point.
    """

    mode: str = "offline"
    project: str = "foredraft"
    entity: str | None = None
    folder: str = "."
    every: int = 10

    def __post_init__(self) -> None:
        check_choice("observer.wandb.mode", self.mode, MODES)
        _check_every("wandb", self.every)


def _check_every(name: str, value: int) -> None:
    check_whole(f"observer.{name}.every", value, 1, 1_000_000)


@hookimpl
def foredraft_observers() -> list[ObserverSpec]:
    """The built-in observers."""
    spec = partial(ObserverSpec, contract=CONTRACT_VERSION)
    return [
        spec("progress", f"{HERE}.progress:ProgressBar", ProgressConfig, "a bar on a terminal"),
        spec("jsonl", f"{HERE}.jsonl:JsonLines", JsonLinesConfig, "one JSON object per record"),
        spec(
            "tensorboard", f"{HERE}.tensorboard:TensorBoard", TensorBoardConfig,
            "event files for TensorBoard",
        ),
        spec("mlflow", f"{HERE}.mlflow:Mlflow", MlflowConfig, "a run in an MLflow store"),
        spec("wandb", f"{HERE}.wandb:Wandb", WandbConfig, "a run for Weights & Biases"),
    ]  # fmt: skip
