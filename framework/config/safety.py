"""What a config may not do, checked before Hydra reads anything.

A config may come from elsewhere, so it can hold values and nothing else: no ``hydra.*`` setting, no
``_target_``, no YAML tag, no resolver (``${oc.env:...}`` would copy secrets into results), no path
out of its folder. There is no allow-list for ``hydra.*``: only Hydra's compose API is used here, so
that none of its settings could have an effect.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from ..errors import ConfigError

MAX_ENTRIES = 5_000
MAX_BYTES = 256 * 1024
MAX_DEPTH = 50

_REFERENCE = re.compile(r"\$\{\.*[A-Za-z]\w*(\.\w+)*\}")
_HYDRA = re.compile(r"(?<![A-Za-z0-9_])hydra(?![A-Za-z0-9_])", re.IGNORECASE)
_DEFAULT_KEY = re.compile(r"(optional |override )*/?[\w-]+(/[\w-]+)*(@[\w.]+)?")
_DEFAULT_VALUE = re.compile(r"/?[\w-]+(/[\w-]+)*(@[\w.]+)?")
_TAGS = {f"tag:yaml.org,2002:{n}" for n in "map seq str int float bool null timestamp".split()}


def check_key(key: str, where: str) -> None:
    """Refuses a key that steers Hydra or asks for an object to be made."""
    if _HYDRA.search(key):
        raise ConfigError(
            f"{where} sets {key!r}; settings of hydra have no use here and are refused."
        )
    for part in re.split(r"[./@]", key):
        if re.fullmatch(r"_\w*_", part):
            raise ConfigError(
                f"{where} holds the key {part!r}; a config names a part by 'name' and cannot say "
                "which code to call."
            )
    if "${" in key:
        raise ConfigError(f"{where} has the key {key!r}; a key cannot hold '${{'.")


def check_text(text: str, where: str) -> None:
    """Refuses every interpolation but a plain reference to another key."""
    if "${" not in text:
        return
    if not _REFERENCE.fullmatch(text) or _HYDRA.search(text):
        raise ConfigError(
            f"{where} holds {text!r}; only '${{other.key}}' alone can be used there, and nothing "
            "that reads the environment or runs a resolver."
        )


def check_value(value: object, where: str) -> None:
    """Walks a value that came from an override; Hydra keeps a quoted one in an object."""
    value = getattr(value, "text", value)
    if isinstance(value, Mapping):
        for key, item in value.items():
            check_key(str(getattr(key, "text", key)), where)
            check_value(item, where)
    elif isinstance(value, list | tuple):
        for item in value:
            check_value(item, where)
    elif isinstance(value, str):
        check_text(value, where)


def check_folder(folder: Path) -> None:
    """Scans a user's config folder, every file of it, before Hydra sees it."""
    if not folder.is_dir():
        raise ConfigError(f"the config folder {str(folder)!r} is not a folder.")
    for path in _entries(folder):
        where = f"{path.relative_to(folder).as_posix()!r} in the config folder"
        if _HYDRA.search(path.relative_to(folder).as_posix()):
            raise ConfigError(f"{where} belongs to hydra, whose settings are refused.")
        # realpath also ends on a link that leads to itself, which is no file and refused below.
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
            raise ConfigError(f"{where} is a link that leaves the folder.")
        if path.suffix == ".yml":
            raise ConfigError(f"{where} would not be read; its name must end in .yaml.")
        if path.suffix == ".yaml":
            check_file(path, where)


def check_file(path: Path, where: str) -> None:
    """Scans one YAML file without making any object from it."""
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        raise ConfigError(f"{where} must be a file of at most {MAX_BYTES} bytes.")
    try:
        text = path.read_text(encoding="utf-8")
        _check_header(text, where)
        _check_events(text, where)
        root = yaml.compose(text, yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError, OSError, RecursionError) as error:
        raise ConfigError(f"{where} is not a readable YAML file: {_brief(error)}.") from error
    if root is not None and not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{where} must hold 'key: value' lines.")
    if root is not None:
        _check_node(root, where)
        _check_defaults(root, where)


def _entries(folder: Path) -> Iterator[Path]:
    count = 0
    for parent, folders, files in os.walk(folder, followlinks=False):
        for name in sorted(folders + files):
            count += 1
            if count > MAX_ENTRIES:
                raise ConfigError(
                    f"the config folder {str(folder)!r} has more than {MAX_ENTRIES} entries; give "
                    "one that holds configs only."
                )
            yield Path(parent) / name


def _check_header(text: str, where: str) -> None:
    for header in re.findall(r"@\s*package\s+(.*)", text):
        check_package(header, where)


def check_package(package: str, where: str) -> None:
    """Refuses a package (the place a file's keys go to) inside ``hydra``."""
    if _HYDRA.search(package):
        raise ConfigError(f"{where} puts its keys into 'hydra', which is refused.")


def _check_events(text: str, where: str) -> None:
    """Before a tree is made: aliases grow without end, and deep nesting takes minutes."""
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ConfigError(f"{where} uses a YAML alias; write '${{other.key}}' instead.")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ConfigError(f"{where} is nested more than {MAX_DEPTH} levels deep.")


def _check_node(node: yaml.Node, where: str) -> None:
    line = f"line {node.start_mark.line + 1} of {where}"
    if node.tag not in _TAGS:
        raise ConfigError(f"{line} has the YAML tag {node.tag!r}; only plain values are possible.")
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag not in _TAGS:
                raise ConfigError(f"{line} has a key that is not a plain word.")
            check_key(key.value, line)
            _check_node(value, where)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_node(item, where)
    else:
        check_text(node.value, line)


def _check_defaults(root: yaml.MappingNode, where: str) -> None:
    """A defaults list loads other files: its entries are matched against what is possible."""
    for key, value in root.value:
        if key.value == "defaults":
            for text, pattern in _default_words(value):
                check_package(text, f"the defaults list of {where}")
                if not pattern.fullmatch(text):
                    raise ConfigError(
                        f"the defaults list of {where} names {text!r}, which is no config."
                    )


def _default_words(node: yaml.Node) -> Iterator[tuple[str, re.Pattern[str]]]:
    if isinstance(node, yaml.ScalarNode):
        yield node.value, _DEFAULT_VALUE
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _default_words(item)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key.value, _DEFAULT_KEY
            yield from _default_words(value)


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
