"""How parts are found: hook specifications for plugin authors, and the loading of plugins.

A distribution is found by an entry point of group ``foredraft`` whose value is a module; the
module's hooks say what it offers. Built-ins go through the same hooks. Everything is loaded on
first use, each plugin on its own, so that a broken one is reported and never stops the others.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path

from ..errors import PluginFault
from . import files
from .checks import examine
from .discovery import GROUP, installed
from .hooks import Hooks as Hooks
from .hooks import hookimpl as hookimpl
from .registry import Broken, Plugin, Registry, Source

BUILTINS = (
    "foredraft.framework.targets.builtin",
    "foredraft.drafters.builtin",
    "foredraft.verifiers.builtin",
    "foredraft.framework.policies.builtin",
    "foredraft.framework.observers.builtin",
)

_in_process: dict[str, Plugin] = {}
_files: list[str] = []
_loaded: Registry | None = None


def registry() -> Registry:
    """What all plugins offer, loaded on the first call."""
    global _loaded
    if _loaded is None:
        _loaded = _load()
    return _loaded


def register(plugin: object, name: str | None = None) -> None:
    """Registers parts from Python, without a package: for notebooks and tests.

    Registering a name again replaces what it stood for.

    Args:
        plugin: a spec, a list of specs, a module, or any object with hooks.
        name: of the plugin. A spec without one is registered under its own name, each for itself;
            a module under its name.

    Raises:
        PluginFault: for a plugin that breaks its contract, offers nothing, or takes a name that
            something else has.
    """
    specs, named = files.specs_in(plugin), list[tuple[str, str, object]]()
    if specs and name is None:
        named = [(f"{files.kind_of(s)} {s.name}", str(s.name), files.offering([s])) for s in specs]
    else:
        name = name or str(getattr(plugin, "__name__", type(plugin).__name__))
        named = [(name, name, files.offering(specs) if specs else plugin)]
    made = {key: _passed(Source(shown, shown, "in process"), each) for key, shown, each in named}
    before = dict(_in_process)
    _add(made)
    try:
        for each in made.values():
            files.check_names(each, registry())
    except PluginFault:
        _in_process.clear()
        _add(before)
        raise


def register_file(path: Path | str) -> None:
    """Registers a Python file, as ``foredraft --plugin FILE`` does.

    Raises:
        PluginFault: for a file that is not there, cannot be run, breaks the contract, or offers a
            name that is taken; the sentence names the file, the cause and its line.
    """
    file, key = Path(path).expanduser(), files.module_name(Path(path).expanduser())
    _unload(key)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            module = files.load_file(file)
            plugin = examine(files.source_of(file), module, Hooks, GROUP)
            files.check_offers(module)
        _add({key: plugin})
        files.check_names(plugin, registry())
    except (Exception, SystemExit) as error:
        _unload(key)
        cause = _cause(error).rstrip(".") + files.line_of(error, file)
        raise PluginFault(f"the plugin file {str(file)!r} cannot be used: {cause}.") from error


def unregister(name: str) -> None:
    """Takes back what was registered under a name, a plugin's or a spec's.

    Raises:
        PluginFault: if nothing was.
    """
    found = [key for key in _in_process if name in (key, key.rpartition(" ")[2])]
    if not found:
        known = ", ".join(key.rpartition(" ")[2] for key in _in_process) or "none"
        raise PluginFault(f"nothing is registered under {name!r}; registered: {known}.")
    for key in found:
        _drop(key)


def _drop(key: str) -> None:
    global _loaded
    if _in_process.pop(key, None) is not None:
        _loaded = None


@contextlib.contextmanager
def registered_files(paths: Sequence[str]) -> Iterator[None]:
    """Files as plugins, for as long as one command runs."""
    try:
        for path in paths:
            register_file(path)
        _files[:] = paths
        yield
    finally:
        _files.clear()
        for path in paths:
            _unload(files.module_name(Path(path).expanduser()))


def current_files() -> list[str]:
    """The files that this command took as plugins, for processes that it starts."""
    return list(_files)


def _unload(module: str) -> None:
    _drop(module)
    sys.modules.pop(module, None)


def _add(plugins: dict[str, Plugin]) -> None:
    global _loaded
    _in_process.update(plugins)
    _loaded = None


def _passed(source: Source, plugin: object) -> Plugin:
    result = _examined(source, lambda: plugin)
    if isinstance(result, Broken):
        raise PluginFault(f"{result}")
    files.check_offers(plugin)
    return result


def reset() -> None:
    """Forgets what was loaded and registered; the next ``registry()`` starts afresh."""
    global _loaded
    _in_process.clear()
    _loaded = None


def _load() -> Registry:
    version = _own_version()
    results: list[Plugin | Broken] = []
    for module in BUILTINS:
        source = Source(module, GROUP, version, module)
        results.append(_examined(source, partial(importlib.import_module, module)))
    for found in installed():
        results.append(found if isinstance(found, Broken) else _examined(*found))
    plugins = [r for r in results if isinstance(r, Plugin)] + list(_in_process.values())
    return Registry(plugins, [r for r in results if isinstance(r, Broken)])


def _examined(source: Source, load: Callable[[], object]) -> Plugin | Broken:
    # Whatever a plugin prints while it loads must not end up in results on standard output.
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return examine(source, load(), Hooks, GROUP)
    except (Exception, SystemExit) as error:
        return Broken(source, _cause(error))


def _cause(error: BaseException) -> str:
    if isinstance(error, PluginFault):
        return str(error)
    text = " ".join(str(error).split()).rstrip(".")
    return f"loading it raised {type(error).__name__}{': ' if text else ''}{text}."


def _own_version() -> str:
    try:
        return metadata.version(GROUP)
    except metadata.PackageNotFoundError:
        return "(not installed)"
