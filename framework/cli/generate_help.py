"""``foredraft generate --help``: what can be chosen, and what the chosen parts can be set to."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

from rich import box
from rich.table import Table

from ..config import RunConfig, RuntimeConfig, SamplingParams, compose, expand_sweep, to_objects
from ..errors import ConfigError
from ..plugins.registry import CHOSEN
from .arguments import Arguments
from .display import console

GROUPS = (*CHOSEN, "sampling", "runtime", "experiment")
INTRO = """\
usage: foredraft generate prompt="..." [key=value ...] [options]

Answers a prompt, or a file of prompts. Text goes to standard output as it is made; counts go to
standard error. Put a group in front of --help to see another part: drafter=ngram --help.

texts, taken as typed (no quoting but the shell's):
  prompt=TEXT      one prompt
  prompts=FILE     JSON lines, - for standard input: {"prompt": "..."}, {"prompt_ids": [1, 2]},
                   {"messages": [...]} or Spec-Bench's {"question_id": 1, "turns": ["...", "..."]},
                   whose turns are answered one after the other
  stop=TEXT        ends an answer; may be repeated
  output=json      one JSON object per answer on standard output, and nothing else there
  out=FILE         the same objects into FILE, each as it is done; the same command goes on where
                   it was interrupted (standard output cannot be taken up again)

options:
  -m, --multirun   run every combination: drafter=ngram,prompt_lookup policy.gamma=range(1,6)
  --config-dir DIR a folder with presets and experiments of your own
  --cfg            print the whole config as YAML and stop
  --trace          show the whole traceback of an error"""


def show_help(arguments: Arguments) -> None:
    """Prints the help; an override shows the keys of what it chooses."""
    parts = to_objects(compose(arguments.overrides, arguments.config_dir))
    out = console()
    out.print(INTRO, soft_wrap=True)
    out.print()
    out.print(_choices({kind: getattr(parts, kind).spec.name for kind in CHOSEN}, arguments))
    for kind in CHOSEN:
        part = getattr(parts, kind)
        if dataclasses.fields(part.spec.config):
            out.print(_keys(part.spec.config, f"{kind}.", f"{kind}={part.spec.name}"))
    for part in parts.observers:
        name = part.spec.name
        out.print(_keys(part.spec.config, f"observer.{name}.", f"observers=[{name}]"))
    out.print(_keys(SamplingParams, "sampling.", "sampling"))
    out.print(_keys(RuntimeConfig, "runtime.", "runtime"))
    out.print(_keys(RunConfig, "", "top"))


def _table(*columns: str, title: str = "") -> Table:
    table = Table(*columns, box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    table.columns[0].no_wrap = True
    return table


def _choices(chosen: dict[str, str], arguments: Arguments) -> Table:
    table = _table("group", "now", "options")
    for group in GROUPS:
        try:
            found = expand_sweep([f"{group}=glob(*)"], arguments.config_dir)
        except ConfigError:  # a group without options
            continue
        names = [text.partition("=")[2] for (text,) in found]
        table.add_row(group, chosen.get(group, ""), ", ".join(names))
    return table


def _keys(schema: type, prefix: str, title: str) -> Table:
    docs = described(schema)
    table = _table("key", "default", "meaning", title=title)
    for field in dataclasses.fields(schema):
        table.add_row(prefix + field.name, _default(field), docs.get(field.name, ""))
    return table


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    else:
        value = field.default
    words = {None: "null", True: "true", False: "false", "": "''"}
    plain = value is None or isinstance(value, bool | str)
    return words.get(value, str(value)) if plain else str(value)


def described(schema: type) -> dict[str, str]:
    """What the ``Args:`` of a dataclass and of its bases say about each field."""
    found: dict[str, str] = {}
    for base in reversed(schema.__mro__):
        text = inspect.cleandoc(base.__doc__ or "").partition("Args:\n")[2]
        for name, words in re.findall(r"^ {4}(\w+): ((?:.|\n(?= {5}))*)", text, re.MULTILINE):
            found[name] = " ".join(words.split()).replace("``", "")
    return found
