"""From overrides to plain objects: ``compose``, then ``to_objects``; ``config/build.py`` goes on.

The dataclass beside each part is the only schema and the only place of its defaults. The framework
hands those defaults to Hydra as ``<kind>/<name>``; YAML holds presets and experiments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from omegaconf import DictConfig, OmegaConf

from ..errors import ConfigError, near_match
from ..params import SamplingParams
from ..plugins import registry
from ..plugins.registry import CHOSEN
from .hydra import compose_tree, one_sentence, session
from .observers import read_observers
from .overrides import GROUPS, argument, check_by_hand, product
from .parts import Part, part
from .safety import check_folder
from .schema import RunConfig, RuntimeConfig
from .values import read_record

SWEEP_BLOCKS = ("bench", "task", "grid", "zip", "exclude")  # of foredraft bench alone


@dataclass(frozen=True)
class Parts:
    """A whole config as plain objects."""

    target: Part
    drafter: Part
    verifier: Part
    policy: Part
    sampling: SamplingParams
    runtime: RuntimeConfig
    run: RunConfig
    observers: tuple[Part, ...] = ()


def compose(overrides: Sequence[str] = (), config_dir: Path | str | None = None) -> DictConfig:
    """Composes a config and checks all of it, down to types and ranges.

    Args:
        overrides: ``key=value`` texts, as on the command line.
        config_dir: a folder with the caller's own presets and experiments.
    """
    with opened(config_dir) as loader:
        given = [argument(text, loader) for text in overrides]
        config = compose_tree([text for text in given if text is not None])
    check_by_hand(resolved(config), [text.partition("=")[0].strip() for text in overrides])
    to_objects(config)
    return config


def expand_sweep(overrides: Sequence[str], config_dir: Path | str | None = None) -> list[list[str]]:
    """The overrides of every run of a sweep: ``drafter=a,b seed=range(0,3)`` is six runs."""
    with opened(config_dir) as loader:
        return product(overrides, loader)


@contextmanager
def opened(
    config_dir: Path | str | None = None, more: Mapping[str, Any] | None = None
) -> Iterator[ConfigLoader]:
    """Opens Hydra on everything that can be named, and ``{"group/name": defaults}`` besides."""
    schemas = {**_schemas(), **(more or {})}
    with session(schemas, _folder(config_dir, schemas)) as loader:
        yield loader


def to_objects(config: DictConfig | Mapping[str, Any]) -> Parts:
    """Converts once; past this point there are dataclasses only. Takes ``as_dict``'s result too."""
    values = resolved(config)
    parts = {kind: part(kind, values.pop(kind, None)) for kind in CHOSEN}
    sampling = read_record(SamplingParams, values.pop("sampling", None), "sampling")
    runtime = read_record(RuntimeConfig, values.pop("runtime", None), "runtime")
    heard = values.pop("observer", {})
    top = [*(f.name for f in dataclasses.fields(RunConfig)), *GROUPS, "observer"]
    run = read_record(RunConfig, values, "", "", lambda name: _elsewhere(name, top))
    observers = read_observers(run.observers, heard)
    return Parts(**parts, sampling=sampling, runtime=runtime, run=run, observers=observers)


def as_dict(config: DictConfig | Mapping[str, Any]) -> dict[str, Any]:
    """The config as plain typed values, for results: equal configs give equal dicts."""
    parts = to_objects(config)
    plain = {kind: getattr(parts, kind) for kind in CHOSEN}
    chosen = {k: {"name": p.spec.name, **_plain(p.config)} for k, p in plain.items()}
    shared = {"sampling": _plain(parts.sampling), "runtime": _plain(parts.runtime)}
    listed = {part.spec.name: _plain(part.config) for part in parts.observers}
    return {**chosen, **shared, **_plain(parts.run), **({"observer": listed} if listed else {})}


def _elsewhere(name: str, known: Sequence[str]) -> str:
    """Where a key at the top would belong, for the message that refuses it."""
    if name in SWEEP_BLOCKS:
        return "it belongs to foredraft bench; "
    return near_match(name, known)


def resolved(config: DictConfig | Mapping[str, Any]) -> dict[str, Any]:
    """The tree as plain values, references to other keys replaced by what they refer to."""
    if not isinstance(config, DictConfig):
        return dict(config)
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except Exception as error:
        raise one_sentence(error) from error
    return {str(key): value for key, value in dict(plain).items()}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = [f.name for f in dataclasses.fields(value) if f.init]
        return {name: _plain(getattr(value, name)) for name in fields}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.name
    return str(value) if isinstance(value, Path) else value


def _schemas() -> dict[str, dict[str, Any]]:
    """Every group option that a dataclass defines, by its path, with its defaults."""
    found = {
        "run": RunConfig,
        "sampling/standard": SamplingParams,
        "runtime/standard": RuntimeConfig,
    }
    schemas = {path: defaults_of(schema) for path, schema in found.items()}
    for kind in CHOSEN:
        for name in registry().names(kind):
            config = registry().get(kind, name).config
            schemas[f"{kind}/{name}"] = {"name": name, **defaults_of(config)}
    return schemas


def defaults_of(schema: type) -> dict[str, Any]:
    """A dataclass's defaults as plain values, for ``opened``."""
    # Plain values, not a typed node: Hydra would turn gamma='3' into 3 before it can be refused,
    # and a frozen dataclass would make the node read-only.
    values = OmegaConf.to_container(OmegaConf.structured(schema), enum_to_str=True)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def _folder(config_dir: Path | str | None, schemas: Mapping[str, object]) -> Path | None:
    if config_dir is None:
        return None
    folder = Path(config_dir)
    check_folder(folder)
    shipped = resources.files("foredraft.conf")
    for path in folder.rglob("*.yaml"):
        name = path.relative_to(folder).as_posix()
        if (shipped / name).is_file() or name.removesuffix(".yaml") in schemas:
            raise ConfigError(
                f"{name!r} in the config folder has the name of a config that exists already."
            )
    return folder
