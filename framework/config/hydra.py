"""A Hydra session with our configs in it; overrides are in ``config/overrides.py``.

Only the compose API is used. A session saves and restores Hydra's global state, so that it also
works inside a notebook or a program that uses Hydra for its own ends.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra import version as hydra_version
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.errors import MissingConfigException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig

from ..errors import ConfigError, near_match
from ..plugins import registry

MAIN = "config"

_lock = threading.RLock()
_extra_paths: list[tuple[str, str]] = []


class PresetSearchPath(SearchPathPlugin):
    """Adds plugins' presets and the user's folder, during our own sessions only."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Appends, never prepends: the first match wins, and ours has to stay what it is."""
        for provider, path in _extra_paths:
            search_path.append(provider, path)


@contextmanager
def session(schemas: Mapping[str, Any], folder: Path | None) -> Iterator[ConfigLoader]:
    """Opens Hydra on ``foredraft.conf`` with ``{"group/name": defaults}`` as schemas."""
    with _lock, warnings.catch_warnings(), _restored_globals():
        # 1.3.8 needs version_base, 1.4 warns of it.
        warnings.filterwarnings("ignore", message=r".*version_base")
        if folder is not None:
            _extra_paths.append(("config folder", f"file://{folder.resolve()}"))
        _extra_paths.extend(registry().config_packages())
        for path, node in schemas.items():
            group, _, name = path.rpartition("/")
            ConfigStore.instance().store(name, node, group or None, provider="foredraft")
        with hydra.initialize_config_module("foredraft.conf", version_base="1.3"):
            yield GlobalHydra.instance().config_loader()


@contextmanager
def _restored_globals() -> Iterator[None]:
    plugins = Plugins.instance()  # its first use fills the store, so it comes before the copy
    plugins.register(PresetSearchPath)
    store, outer = ConfigStore.instance(), GlobalHydra.instance()
    repo, running = store.repo, outer.hydra
    base = hydra_version.VersionBase.instance().version_base
    store.repo = {k: v for k, v in repo.items() if k == "hydra" or k.startswith("_")}
    outer.clear()
    try:
        yield
    finally:
        _extra_paths.clear()
        store.repo = repo
        outer.hydra = running
        GlobalHydra.set_instance(outer)
        hydra_version.VersionBase.instance().version_base = base


def compose_tree(arguments: Sequence[str], main: str = MAIN) -> DictConfig:
    """Composes inside a session; whatever Hydra raises becomes one sentence."""
    try:
        return hydra.compose(main, list(arguments))
    except MissingConfigException as error:
        raise _missing(error) from error
    except Exception as error:
        raise one_sentence(error) from error


def one_sentence(error: Exception) -> ConfigError:
    """Hydra's and OmegaConf's messages have many lines; the first ones say what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    keys = [line.replace("full_key: ", "key ") for line in lines[1:] if line.startswith("full_key")]
    text = ", ".join([*(lines[:1] or [type(error).__name__]), *keys])
    return ConfigError(f"the config cannot be composed: {text.rstrip('.')}.")


def _missing(error: MissingConfigException) -> ConfigError:
    """A defaults list of somebody's file names a config that does not exist."""
    group, _, wanted = (error.missing_cfg_file or "").removesuffix(".yaml").rpartition("/")
    known = sorted(GlobalHydra.instance().config_loader().get_group_options(group))
    line = str(error).splitlines()[0].rstrip(".")
    return ConfigError(f"{line}; {near_match(wanted, known)}known: {', '.join(known) or 'none'}.")
