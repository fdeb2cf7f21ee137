"""Many configs of one sweep, composed in one session.

Hydra takes its time over a defaults list, and most cells of a grid differ only in values. So each
choice of group options is composed once, and values are set on a copy of it, by the same call that
Hydra makes for ``++key=value``.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from omegaconf import DictConfig, OmegaConf

from ..config.composing import SWEEP_BLOCKS, as_dict, defaults_of, opened, resolved
from ..config.hydra import compose_tree, one_sentence
from ..config.overrides import GROUPS, argument, check_by_hand, encoded, parse
from ..errors import ConfigError
from ..plugins import registry
from ..plugins.registry import CHOSEN
from .options import SOURCES, BenchOptions, TaskConfig

MAIN = "sweep"
ALL_GROUPS = (*GROUPS, "task")


@contextmanager
def composer(config_dir: Path | str | None = None, about: Sequence[str] = ()) -> Iterator[Composer]:
    """Opens a session; it is held until the block ends.

    Args:
        about: overrides of the sweep itself, ``bench`` and ``task``.
    """
    task = defaults_of(TaskConfig)
    tasks = {f"task/{name}": {**task, "source": name} for name in SOURCES}
    more = {"bench/standard": defaults_of(BenchOptions), **tasks}
    with opened(config_dir, more) as loader:
        yield Composer(loader, about)


@dataclasses.dataclass(frozen=True)
class Word:
    """A checked override; ``given`` is what Hydra gets, None for ``experiment=null``."""

    key: str
    value: Any
    given: str | None


class Composer:
    """Composes configs from overrides; what is composed once is kept."""

    def __init__(self, loader: ConfigLoader, about: Sequence[str] = ()) -> None:
        self._loader, self._about = loader, about
        self._words: dict[str, Word] = {}
        self._bases: dict[tuple[str, ...], DictConfig] = {}

    def word(self, text: str) -> Word:
        """One override, checked."""
        if text not in self._words:
            override = parse(text)
            given = argument(text, self._loader, ALL_GROUPS)
            self._words[text] = Word(override.key_or_group, override.value(), given)
        return self._words[text]

    def config(self, overrides: Sequence[str]) -> dict[str, Any]:
        """The whole config of one cell as plain typed values, as ``as_dict`` gives it."""
        values, _ = self._parted(overrides)
        check_by_hand(values, [self.word(text).key for text in overrides])
        return as_dict(values)

    def blocks(self, overrides: Sequence[str]) -> dict[str, Any]:
        """What is said of the sweep itself, in words and files: ``SWEEP_BLOCKS`` that are there."""
        _, found = self._parted(overrides)
        keys = [self.word(text).key for text in [*self._about, *overrides]]
        check_by_hand(found, [key for key in keys if key != "task"])
        return found

    def keys(self, group: str, option: Any) -> set[str]:
        """The keys of a target, drafter, verifier or policy, or of a preset of one."""
        if option not in registry().names(group):  # a preset, or none at all
            option = str(self._tree([one_word(group, option)])[group].name)
        spec = registry().get(group, option)
        return {field.name for field in dataclasses.fields(spec.config)}

    def words_for(self, config: Mapping[str, Any]) -> list[str]:
        """Overrides that compose to a config, found from the config alone."""
        names = [f"{kind}={config[kind]['name']}" for kind in CHOSEN]
        base, words = dict(_leaves(self.config(names))), []
        for key, value in _leaves(config):
            if key not in base or base[key] != value:
                words.append(f"{key}={encoded(value)}")
        return [*names, *words]

    def _parted(self, overrides: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        values = resolved(self._tree(overrides))
        found = {name: values.pop(name) for name in SWEEP_BLOCKS if name in values}
        return values, found

    def _tree(self, overrides: Sequence[str]) -> DictConfig:
        words = [self.word(text) for text in [*self._about, *overrides]]
        groups = tuple(sorted(w.given for w in words if w.key in ALL_GROUPS and w.given))
        if groups not in self._bases:
            self._bases[groups] = compose_tree(groups, MAIN)
        tree = copy.deepcopy(self._bases[groups])
        try:
            for word in words:
                if word.key not in ALL_GROUPS:
                    OmegaConf.update(tree, word.key, word.value, merge=True, force_add=True)
        except Exception as error:
            raise one_sentence(error) from error
        return tree


def _leaves(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Dotted keys and values. Groups have one level; what is below that is a value."""
    for name, value in config.items():
        if name in (*CHOSEN, "sampling", "runtime"):
            yield from ((f"{name}.{key}", v) for key, v in value.items() if key != "name")
        else:
            yield name, value


def one_word(key: str, value: Any) -> str:
    """``key=value`` that parses to the same value and type."""
    text = f"{key}={encoded(value)}"
    if parse(text).value() != value:
        raise ConfigError(f"{key}={value!r} cannot be written as an override.")
    return text
