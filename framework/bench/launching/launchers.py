"""Hydra's side of a launch: which launchers there are, what they are set to, and to have one run jobs.

Nothing of a sweep passes through Hydra's config but the folder of the launch and a job's number: cells
were composed and checked before, and are in the sweep's folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra._internal.callbacks import Callbacks
from hydra.core.config_loader import ConfigLoader
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf

from ...cli.display import one_line
from ...config.hydra import one_sentence, session
from ...errors import ConfigError, near_match
from . import job
from .launch import LAUNCHER
from .places import usable
from .words import BASIC, Chosen

MAIN = "launch"
EXTRAS = {
    "joblib": "joblib",
    "ray": "ray",
    "submitit_local": "submitit",
    "submitit_slurm": "submitit",
}


def settled(chosen: Chosen) -> Chosen:
    """The launcher with the number of jobs, and how many of them are at work at once.

    Raises:
        ConfigError: it is not there, or has no such setting, or nothing says how many jobs.
    """
    with _composed(chosen, Path()) as (config, _):
        at_once = 1 if chosen.name == BASIC else _workers(config.hydra.launcher.get("n_jobs"))
    jobs = chosen.jobs or at_once
    if jobs is None:
        raise ConfigError(f"hydra/launcher={chosen.name} needs bench.jobs=N, the number of jobs.")
    return replace(chosen, jobs=jobs, at_once=min(jobs, at_once or jobs))


def _workers(count: Any) -> int | None:
    """What joblib makes of ``n_jobs``; None for launchers that have no such thing."""
    if not isinstance(count, int) or not count:
        return None
    return count if count > 0 else max(1, len(usable()) + 1 + count)


def run_jobs(chosen: Chosen, folder: Path, numbers: Sequence[int], parent: int) -> list[Any]:
    """Has the launcher run jobs, and waits for them.

    Args:
        folder: of the launch.
        numbers: of the jobs.
        parent: the id of this process.

    Returns:
        What each job returned; an exception where it raised one.
    """
    with _composed(chosen, folder, parent) as (config, context):
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=context, task_function=job.run, config=config
        )
        returned = launcher.launch([[f"job={number}"] for number in numbers], numbers[0])
    return [_value(one) for one in returned]


def _value(returned: Any) -> Any:
    try:
        return returned.return_value
    except Exception as error:
        return error


@contextmanager
def _composed(
    chosen: Chosen, folder: Path, parent: int = 0
) -> Iterator[tuple[DictConfig, HydraContext]]:
    """The config that the launcher gets, in a session."""
    with session({MAIN: _main(folder, parent)}, None) as loader:
        _check_name(chosen.name, loader)
        words = [f"hydra/launcher={chosen.name}", *chosen.settings]
        try:
            config = loader.load_configuration(MAIN, words, RunMode.MULTIRUN)
        except Exception as error:
            raise _unknown(chosen, error, loader) from error
        yield config, HydraContext(loader, Callbacks())


def _main(folder: Path, parent: int) -> dict[str, Any]:
    quiet = [{f"override hydra/{name}": "none"} for name in ("hydra_logging", "job_logging")]
    return {
        "defaults": ["_self_", *quiet],
        "launch": str(folder),
        "parent": parent,
        "job": -1,
        "hydra": {
            "output_subdir": None,
            "job": {"name": "foredraft", "chdir": False},
            "sweep": {"dir": str(folder / LAUNCHER), "subdir": "."},
        },
    }


def _check_name(name: str, loader: ConfigLoader) -> None:
    known = loader.get_group_options("hydra/launcher")
    if name in known:
        return
    if name in EXTRAS:
        raise ConfigError(
            f"hydra/launcher={name} is not installed; pip install 'foredraft[{EXTRAS[name]}]'. There "
            f"are: {', '.join(known)}."
        )
    raise ConfigError(
        f"unknown hydra/launcher {name!r}; {near_match(name, known)}known: {', '.join(known)}."
    )


def _unknown(chosen: Chosen, error: Exception, loader: ConfigLoader) -> ConfigError:
    """The sentence for settings that cannot be, with those there are."""
    try:
        plain = loader.load_configuration(MAIN, [f"hydra/launcher={chosen.name}"], RunMode.MULTIRUN)
        settings: Mapping[Any, Any] = dict(OmegaConf.to_container(plain.hydra.launcher) or {})  # type: ignore[arg-type]
    except Exception:
        return one_sentence(error)
    known = ", ".join(str(key) for key in settings if not str(key).startswith("_"))
    words = " ".join(chosen.settings)
    said = one_line(str(error).splitlines()[0]).rstrip(".")
    return ConfigError(f"{words!r} is not possible ({said}); it has: {known or 'no settings'}.")
