"""How parts are found: hook specifications for plugin authors, and the loading of plugins.

A distribution is found by an entry point of group ``foredraft`` whose value is a module; the
module's hooks say what it offers. Built-ins go through the same hooks. Everything is loaded on
first use, each plugin on its own, so that a broken one is reported and never stops the others.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib import metadata
from typing import Protocol

import pluggy

from ..errors import PluginFault
from ..specs import DrafterSpec, PolicySpec, TargetSpec, VerifierSpec
from .checks import examine
from .discovery import GROUP, installed
from .registry import Broken, Plugin, Registry, Source

BUILTINS = (
    "foredraft.framework.targets.builtin",
    "foredraft.drafters.builtin",
    "foredraft.verifiers.builtin",
    "foredraft.framework.policies.builtin",
)

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


class Hooks(Protocol):
    """The hooks a plugin module may implement. None takes an argument; each is called once."""

    @hookspec
    def foredraft_drafters(self) -> Iterable[DrafterSpec]:
        """Offers drafters.

        A whole plugin module, found by the entry point ``echo = "echo_draft"``::

            from dataclasses import dataclass
            from foredraft.framework.plugins import hookimpl
            from foredraft.framework.specs import DrafterSpec

            @dataclass
            class EchoConfig:
                distance: int = 8

            def build(config, target):
                from .drafter import EchoDrafter  # torch is imported only when it is chosen

                return EchoDrafter(config.distance)

            @hookimpl
            def foredraft_drafters():
                yield DrafterSpec("echo", build, EchoConfig, "repeats what it saw", contract=1)

        It is chosen by ``drafter=echo drafter.distance=4``.
        """

    @hookspec
    def foredraft_verifiers(self) -> Iterable[VerifierSpec]:
        """Offers verification rules, chosen by ``verifier=<name>``.

        ::

            @hookimpl
            def foredraft_verifiers():
                yield VerifierSpec("strict", lambda config: Strict(), StrictConfig, lossless=True, contract=1)
        """

    @hookspec
    def foredraft_policies(self) -> Iterable[PolicySpec]:
        """Offers draft-length policies, chosen by ``policy=<name>``.

        ::

            @hookimpl
            def foredraft_policies():
                yield PolicySpec("ramp", lambda config: Ramp(config.start), RampConfig, contract=1)
        """

    @hookspec
    def foredraft_targets(self) -> Iterable[TargetSpec]:
        """Offers kinds of target, chosen by ``target=<name>``.

        ::

            @hookimpl
            def foredraft_targets():
                yield TargetSpec("markov", lambda config: Markov(config.vocab), MarkovConfig, contract=1)
        """

    @hookspec
    def foredraft_config_packages(self) -> Iterable[str]:
        """Offers folders of presets and experiments, as packages with an ``__init__.py``.

        ::

            @hookimpl
            def foredraft_config_packages():
                return ["pkg://echo_draft.conf"]  # holds drafter/echo_far.yaml

        They come after Foredraft's own, which a preset of the same name cannot replace.
        """


_in_process: dict[str, Plugin] = {}
_loaded: Registry | None = None


def registry() -> Registry:
    """What all plugins offer, loaded on the first call."""
    global _loaded
    if _loaded is None:
        _loaded = _load()
    return _loaded


def register(plugin: object, name: str) -> None:
    """Registers a module, or any object with hooks, from Python: for notebooks and tests.

    Registering a name again replaces it. A plugin that breaks its contract raises PluginFault.
    """
    global _loaded
    result = _examined(Source(name, name, "in process"), lambda: plugin)
    if isinstance(result, Broken):
        raise PluginFault(f"{result}")
    _in_process[name] = result
    _loaded = None


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
    except PluginFault as fault:
        return Broken(source, str(fault))
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split()).rstrip(".")
        return Broken(source, f"loading it raised {type(error).__name__}: {text}.")


def _own_version() -> str:
    try:
        return metadata.version(GROUP)
    except metadata.PackageNotFoundError:
        return "(not installed)"
