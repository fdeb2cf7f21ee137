"""Checks that every kind of part goes through: its config and its import."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from typing import Any

from omegaconf import OmegaConf

from ...config import compose, to_objects
from ...config.values import read_record
from .checks import NotApplicable, check, fail
from .subject import Subject

HEAVY = ("torch", "transformers")
SECONDS = 60
# Notes who asks for a heavy module first; whether one was really imported is seen at the end.
IMPORTS = """
import importlib, importlib.abc, importlib.util, sys, traceback
name, heavy, asked = sys.argv[1], sys.argv[2:], {}

class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, module, path=None, target=None):
        if module in heavy and module not in asked:
            stack = [at for at in traceback.extract_stack()[:-1] if "importlib" not in at.filename]
            asked[module] = f"{stack[-1].filename}, line {stack[-1].lineno}"

sys.meta_path.insert(0, Watch())
if importlib.util.find_spec(name) is None:
    sys.exit(3)
module = importlib.import_module(name)
import pluggy
manager = pluggy.PluginManager("foredraft")
for hook in dir(module):
    if manager.parse_hookimpl_opts(module, hook) is not None:
        list(getattr(module, hook)())
print(*(f"{m} ({asked.get(m, 'before it')})" for m in heavy if m in sys.modules), sep="; ")
"""


@check(
    "drafter verifier policy",
    "The config has a default for every field and survives the way through YAML unchanged.",
    "Results name the config that they came from: one that reads back otherwise cannot be repeated.",
)
def config_round_trip(subject: Subject) -> None:
    schema = subject.spec.config
    if not (isinstance(schema, type) and dataclasses.is_dataclass(schema)):
        fail(f"the config is {schema!r}; it must be a dataclass")
    for field in dataclasses.fields(schema):
        missing = dataclasses.MISSING
        if field.init and field.default is missing and field.default_factory is missing:
            fail(f"the config has no default for {field.name!r}")
    for config in (schema(), subject.config):
        _round_trip(subject, config)
    if subject.plugin is not None:
        parts = to_objects(compose([f"{subject.kind}={subject.name}"]))
        _same(schema(), getattr(parts, subject.kind).config, "composed")


def _round_trip(subject: Subject, config: Any) -> None:
    """Object, plain values, YAML, and back."""
    try:
        values: Any = OmegaConf.to_container(OmegaConf.structured(config), enum_to_str=True)
    except Exception as error:
        reason = str(error).splitlines()[0]
        fail(f"a field has a type that a config cannot hold: {reason}", config=config)
    names = [field.name for field in dataclasses.fields(config) if field.init]
    text = OmegaConf.to_yaml(OmegaConf.create({name: values[name] for name in names}))
    read = OmegaConf.to_container(OmegaConf.create(text))
    _same(config, read_record(subject.spec.config, read, subject.kind), f"read from {text!r}")


def _same(config: Any, again: Any, how: str) -> None:
    # By repr as well: a field may be NaN, which equals nothing.
    if config != again and repr(config) != repr(again):
        fail(f"the config {how} is {again!r}", config=config)


@check(
    "drafter verifier policy",
    "Importing the plugin module and calling its hooks imports neither torch nor transformers.",
    "Every command looks at all plugins first: one heavy import makes `foredraft --help` slow.",
)
def light_import(subject: Subject) -> None:
    module = subject.plugin
    if not module:
        raise NotApplicable("it is no module that an installed package offers")
    done = _imported(module)
    if done.returncode == 3:
        raise NotApplicable(f"{module} is no module that a new process finds")
    if done.returncode:
        fail(f"importing {module} alone failed: {_last_line(done.stderr)}")
    if _last_line(done.stdout):
        fail(f"importing {module} and calling its hooks imports {_last_line(done.stdout)}")


def _imported(module: str) -> subprocess.CompletedProcess[str]:
    """The module imported in a process of its own, which finds what this one finds."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)}
    # -P: the folder that it happens to start in must not shadow anything.
    command = [sys.executable, "-P", "-c", IMPORTS, module, *HEAVY]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=SECONDS, check=False
    )


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]
