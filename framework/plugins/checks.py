"""The checks a plugin passes at load: its hooks, its specs and its config packages."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import re
from collections.abc import Iterable, Iterator
from importlib import resources
from typing import Any

import pluggy
from omegaconf import OmegaConf

from ..errors import PluginFault, near_match
from ..specs import CONTRACT_VERSION, OLDEST_CONTRACT, PartSpec
from .registry import KINDS, Plugin, Source

KIND_OF_HOOK = {
    "foredraft_targets": "target",
    "foredraft_drafters": "drafter",
    "foredraft_verifiers": "verifier",
    "foredraft_policies": "policy",
    "foredraft_observers": "observer",
}
PACKAGES_HOOK = "foredraft_config_packages"
# Words that a command line or a YAML file reads as something other than text.
RESERVED = {"null", "true", "false", "inf", "nan", "yes", "no", "on", "off", "y", "n"}


def examine(source: Source, module: object, hooks: type, project: str) -> Plugin:
    """Registers one plugin, calls its hooks and checks what they give.

    Each plugin has a manager of its own, so that a fault is told apart from everybody else's.
    """
    manager = pluggy.PluginManager(project)
    manager.add_hookspecs(hooks)
    _check_hooks(manager, module, hooks)
    manager.register(module, name=source.plugin)
    manager.check_pending()
    parts = tuple(
        (kind, _checked(kind, hook, item))
        for hook, kind in KIND_OF_HOOK.items()
        for item in _items(manager, hook)
    )
    _check_twice(parts)
    packages = tuple(_package(item) for item in _items(manager, PACKAGES_HOOK))
    presets = tuple(preset for path in packages for preset in _presets(path, parts))
    return Plugin(source, parts, packages, presets)


def _check_hooks(manager: pluggy.PluginManager, module: object, hooks: type) -> None:
    known = sorted(n for n in vars(hooks) if not n.startswith("_"))
    for name in dir(module):
        options = manager.parse_hookimpl_opts(module, name)
        if options is None:
            if name in known and callable(getattr(module, name)):
                raise PluginFault(f"{name} is not marked with @hookimpl.")
            continue
        hook = options.get("specname") or name
        if hook not in known:
            possible = f"{near_match(hook, known)}hooks: {', '.join(known)}"
            raise PluginFault(f"it implements {hook}, which is not a hook; {possible}.")
        _check_arguments(hook, getattr(module, name), getattr(hooks, hook))


def _check_arguments(name: str, implementation: Any, specification: Any) -> None:
    # pluggy accepts arguments with defaults and then never passes them.
    allowed = list(inspect.signature(specification).parameters)[1:]
    for argument in inspect.signature(implementation).parameters.values():
        if argument.name not in allowed or argument.default is not argument.empty:
            takes = ", ".join(allowed) or "none"
            raise PluginFault(f"{name} has the argument {argument.name!r}; the hook has: {takes}.")


def _items(manager: pluggy.PluginManager, hook: str) -> Iterator[object]:
    for result in getattr(manager.hook, hook)():
        if isinstance(result, str) or not isinstance(result, Iterable):
            raise PluginFault(f"{hook} returned {result!r}; it must return an iterable.")
        yield from result


def _checked(kind: str, hook: str, spec: object) -> PartSpec:
    wanted = KINDS[kind]
    if not isinstance(spec, wanted):
        shown = type(spec).__name__
        raise PluginFault(f"{hook} gave a {shown}; it must give {wanted.__name__} records.")
    _check_contract(kind, spec)
    _check_name(kind, spec.name)
    _check_config(kind, spec)
    _check_factory(kind, spec)
    return spec


def _check_contract(kind: str, spec: PartSpec) -> None:
    version = spec.contract
    if type(version) is int and OLDEST_CONTRACT <= version <= CONTRACT_VERSION:
        return
    newest = type(version) is int and version > CONTRACT_VERSION
    raise PluginFault(
        f"{kind} {spec.name!r} is written for version {version!r} of the plugin contract and this "
        f"Foredraft has version {CONTRACT_VERSION} (and runs parts from version {OLDEST_CONTRACT} on); "
        f"update {'Foredraft' if newest else 'the plugin'}."
    )


def _check_factory(kind: str, spec: PartSpec) -> None:
    text = isinstance(spec.factory, str) and re.fullmatch(r"[\w.]+:[A-Za-z_]\w*", spec.factory)
    if not text and not callable(spec.factory):
        raise PluginFault(
            f"{kind} {spec.name!r} has the factory {spec.factory!r}; it must be callable, or text "
            "like 'package.module:Class'."
        )


def _check_name(kind: str, name: object) -> None:
    good = isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9_]*", name)
    if not good or name in RESERVED:
        raise PluginFault(
            f"{kind} {name!r} is not a possible name; it must be lower case letters, digits and "
            f"underscores, begin with a letter, and be none of {', '.join(sorted(RESERVED))}."
        )
    _check_not_ours(kind, str(name))


def _check_not_ours(group: str, name: str) -> None:
    if (resources.files("foredraft.conf") / group / f"{name}.yaml").is_file():
        raise PluginFault(f"{group} {name!r} is the name of a preset that ships with Foredraft.")


def _check_config(kind: str, spec: PartSpec) -> None:
    label = f"the config of {kind} {spec.name!r}"
    config: Any = spec.config
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        raise PluginFault(f"{label} is {config!r}; it must be a dataclass.")
    for item in dataclasses.fields(config):
        missing = dataclasses.MISSING
        if item.default is missing and item.default_factory is missing:
            raise PluginFault(f"{label} has no default for {item.name!r}; every field needs one.")
        if item.name == "name" or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", item.name):
            raise PluginFault(f"{label} has a field called {item.name!r}, which cannot be a key.")
    try:
        OmegaConf.structured(config)
    except Exception as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise PluginFault(
            f"{label} has a field of a type that a config cannot hold: {reason}."
        ) from error


def _check_twice(parts: tuple[tuple[str, PartSpec], ...]) -> None:
    seen: set[tuple[str, str]] = set()
    for kind, spec in parts:
        if (kind, spec.name) in seen:
            raise PluginFault(f"it offers {kind} {spec.name!r} twice.")
        seen.add((kind, spec.name))


def _package(path: object) -> str:
    if not isinstance(path, str) or not re.fullmatch(r"pkg://[A-Za-z_][\w.]*", path):
        raise PluginFault(f"{PACKAGES_HOOK} gave {path!r}; it must give 'pkg://<package>' paths.")
    found = importlib.util.find_spec(path.removeprefix("pkg://"))
    if found is None or found.origin is None:
        raise PluginFault(
            f"{PACKAGES_HOOK} gave {path!r}, which is no package with an __init__.py."
        )
    return path


def _presets(path: str, parts: tuple[tuple[str, PartSpec], ...]) -> Iterator[tuple[str, str]]:
    """The presets of a config package; none may have the name of a part or of one of ours."""
    taken = {(kind, spec.name) for kind, spec in parts}
    for group in resources.files(path.removeprefix("pkg://")).iterdir():
        for item in group.iterdir() if group.is_dir() else ():
            preset = (group.name, item.name.removesuffix(".yaml"))
            if not item.name.endswith(".yaml"):
                continue
            _check_not_ours(*preset)
            if preset in taken:
                raise PluginFault(
                    f"its preset {'/'.join(preset)}.yaml has the name of its own part."
                )
            yield preset
