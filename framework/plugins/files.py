"""Plugins without packaging: a Python file named on the command line, or specs made in Python."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace, TracebackType

import pluggy

from ..errors import PluginFault
from ..specs import PartSpec
from .checks import KIND_OF_HOOK
from .discovery import GROUP
from .registry import KINDS, Plugin, Registry, Source


def source_of(file: Path) -> Source:
    """Where a file's parts come from, for listings: the file's own name."""
    return Source(file.stem, file.name, "(a file)")


def load_file(file: Path) -> ModuleType:
    """Runs a file as a module of a private name, without leaving compiled code beside it.

    Raises:
        PluginFault: if there is no such file. Whatever the file itself raises comes out as it is.
    """
    if file.is_dir():
        raise PluginFault("it is a folder; name a Python file, or install it with pip.")
    if not file.is_file():
        raise PluginFault("there is no such file.")
    code = compile(file.read_bytes(), str(file), "exec")
    module = ModuleType(module_name(file))
    module.__file__ = str(file)
    # Type hints of its dataclasses are looked up there by the module's name.
    sys.modules[module.__name__] = module
    try:
        exec(code, module.__dict__)
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def module_name(file: Path) -> str:
    """A name that no other module has; the same for the same file."""
    digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:8]
    return f"_foredraft_file_{digest}_" + re.sub(r"\W", "_", file.stem)


def line_of(error: BaseException, file: Path) -> str:
    """``" (line 3)"``: where in the file an error came up, unless it says so itself."""
    if isinstance(error, SyntaxError | PluginFault):
        return ""
    lines = list(_lines(error.__traceback__, str(file)))
    return f" (line {lines[-1]})" if lines else ""


def _lines(trace: TracebackType | None, file: str) -> Iterable[int]:
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            yield trace.tb_lineno
        trace = trace.tb_next


def check_offers(plugin: object) -> None:
    """Refuses what has no hook at all: for packages that is harmless, here it is a mistake."""
    manager = pluggy.PluginManager(GROUP)
    if not any(manager.parse_hookimpl_opts(plugin, name) is not None for name in dir(plugin)):
        hooks = ", ".join(KIND_OF_HOOK)
        raise PluginFault(
            f"it offers nothing; a plugin has functions marked with @hookimpl: {hooks}."
        )


def specs_in(plugin: object) -> list[PartSpec]:
    """The specs that were given in place of a plugin, one or several; empty for anything else."""
    if isinstance(plugin, PartSpec):
        return [plugin]
    items = list(plugin) if isinstance(plugin, list | tuple) else []
    for item in items:
        if not isinstance(item, PartSpec):
            raise PluginFault(f"{item!r} cannot be registered; it must be a spec.")
    return items


def kind_of(spec: PartSpec) -> str:
    """``drafter`` for a DrafterSpec, and so on."""
    for kind, schema in KINDS.items():
        if isinstance(spec, schema):
            return kind
    kinds = ", ".join(schema.__name__ for schema in KINDS.values())
    raise PluginFault(f"{spec!r} cannot be registered; it must be one of {kinds}.")


def offering(specs: Sequence[PartSpec]) -> SimpleNamespace:
    """An object with the hooks that offer these specs."""
    mark = pluggy.HookimplMarker(GROUP)

    def hook(kind: str) -> Callable[[], list[PartSpec]]:
        return mark(lambda: [spec for spec in specs if kind_of(spec) == kind])

    return SimpleNamespace(**{name: hook(kind) for name, kind in KIND_OF_HOOK.items()})


def check_names(plugin: Plugin, registry: Registry) -> None:
    """Refuses a name that something else offers too."""
    for kind, name in (*((kind, spec.name) for kind, spec in plugin.parts), *plugin.presets):
        if registry.fault(kind, name):
            others = [o.source for o in registry.offers(kind) if o.name == name]
            taken = " and ".join(str(one) for one in others if one is not plugin.source)
            raise PluginFault(f"the name of its {kind} {name!r} is taken by {taken or 'a preset'}.")
