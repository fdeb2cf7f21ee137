"""The winner of a race as a preset: an experiment that ``foredraft generate`` and ``bench`` take by name."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from ..config.composing import defaults_of
from ..errors import ConfigError, InputError
from ..files import written_whole
from ..params import SamplingParams
from ..plugins import registry
from .disk import unwritable
from .folder import check_own
from .kept import Kept
from .machine import commit, moment
from .manifest import MANIFEST
from .tuning_answer import Answer

GROUP = "experiment"
NONE = {
    "drafter": {"name": "none"},
    "policy": {"name": "fixed", "gamma": 0},
    "verifier": {"name": "token"},
}
# Said by hand alone, so that a file cannot say it.
BY_HAND = "trust_remote_code"


@dataclasses.dataclass(frozen=True)
class Preset:
    """Where a preset goes and what it is called."""

    path: Path

    @property
    def command(self) -> str:
        """A command that uses it."""
        if self.path.parent.name != GROUP:
            return f"put it into a folder named {GROUP} to use it"
        folder = shlex.quote(str(self.path.parent.parent))
        return f"foredraft generate --config-dir {folder} {GROUP}={self.path.stem} prompt='Hello'"


def check_names(preset: str | None, out: str | None) -> None:
    """Refuses a name that ``experiment=NAME`` could not say, and a file that cannot be made.

    Raises:
        ConfigError: a name that no experiment can have, or that is taken.
        InputError: there is no such folder.
    """
    if preset is not None:
        _check_name(preset, f"preset={preset}")
    if out is not None:
        path = Path(out).expanduser()
        if path.suffix != ".yaml":
            raise ConfigError(f"out={out} is not possible; the file of a preset ends in .yaml.")
        if not path.parent.is_dir():
            raise InputError(f"out={out} cannot be written: there is no folder {path.parent}.")
        _check_name(path.stem, f"out={out}")


def place(folder: Path, preset: str, out: str | None) -> Preset:
    """The file: as ``out`` says, or in the race's folder.

    Args:
        preset: a name; it may be the one that the race's folder holds, which anyone can have written.

    Raises:
        ConfigError: a name that no experiment can have, or that is taken.
        InputError: a link in the race's folder leads out of it.
    """
    if out:
        made = Preset(Path(out).expanduser())
    else:
        _check_name(preset, f"preset={preset!r} in {folder / MANIFEST}")
        made = Preset(folder / "conf" / GROUP / f"{preset}.yaml")
    _check_links(folder, made.path)
    return made


def _check_links(folder: Path, path: Path) -> None:
    """Refuses a link where the preset lies in the race's folder."""
    whole = Path(os.path.abspath(path))
    if whole.is_relative_to(folder):
        check_own(folder, whole)


def _check_name(name: str, where: str) -> None:
    if not re.fullmatch(r"[A-Za-z]\w{0,49}", name):  # a file's name has 255 bytes at most
        raise ConfigError(
            f"{where} is not possible; a preset's name is a word of 50 letters at most."
        )
    if (resources.files("foredraft.conf") / GROUP / f"{name}.yaml").is_file():
        raise ConfigError(f"{where} is not possible; an experiment {name} ships already.")


def write(preset: Preset, store: Kept, answer: Answer) -> None:
    """Writes it, whole or not at all. Without a reason to speculate it holds ``drafter: none``, so
    that it can be used whatever came out.

    Raises:
        InputError: it cannot be written.
    """
    _check_links(store.folder, preset.path)
    if preset.path.parent.parent == store.folder / "conf":
        try:
            preset.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(preset.path.parent, error) from None
    text = _heading(preset, store, answer) + yaml.safe_dump(
        body(store, answer), sort_keys=False, allow_unicode=True
    )
    with written_whole(preset.path, "out=") as partial:
        partial.write_text(text, "utf-8")


def body(store: Kept, answer: Answer) -> dict[str, Any]:
    """The preset as plain values: which parts, and all values of those that speculate."""
    by_id = {cell["id"]: cell["config"] for cell in store.cells}
    measured = next(iter(by_id.values())) if answer.cell is None else by_id[answer.cell]
    parts = {**measured, **({} if answer.speculate else NONE)}
    kinds = ("drafter", "verifier", "policy")
    target = {"target": _told(measured["target"])}
    chosen = {kind: {k: v for k, v in parts[kind].items() if k != "name"} for kind in kinds}
    draft = measured["sampling"]["draft"]
    if answer.speculate and draft != SamplingParams().draft:
        chosen["sampling"] = {"draft": draft}
    names = {kind: parts[kind]["name"] for kind in ("target", *kinds)}
    return {
        "defaults": [{f"override /{kind}": name} for kind, name in names.items()],
        **{key: value for key, value in {**target, **chosen}.items() if value},
    }


def _told(target: Mapping[str, Any]) -> dict[str, Any]:
    """The target's values that are not its defaults."""
    defaults = defaults_of(registry().get("target", target["name"]).config)
    kept = {k: v for k, v in target.items() if k not in ("name", BY_HAND)}
    return {key: value for key, value in kept.items() if defaults.get(key) != value}


def _heading(preset: Preset, store: Kept, answer: Answer) -> str:
    manifest = store.manifest
    cell = next(iter(store.cells))
    machine = manifest["hardware"]
    facts = [
        preset.command,
        "",
        answer.says + ".",
        "",
        f"command:  {manifest['command']}",
        f"target:   {cell['config']['target']['name']}",
        f"sampling: temperature {cell['config']['sampling']['temperature']}, "
        f"max_new_tokens {cell['config']['max_new_tokens']}, "
        f"batch_size {cell['config']['runtime']['batch_size']}",
        f"machine:  {machine.get('cpu')}, device {machine.get('device')}, "
        f"{machine.get('threads')} threads",
        f"date:     {manifest['started']} to {moment()}, commit {manifest['commit'] or commit()}",
    ]
    if cell["config"]["target"].get(BY_HAND):
        facts.append(f"It was measured with target.{BY_HAND}=true, which only a command can say.")
    lines = [line for fact in facts for line in fact.splitlines() or [""]]
    return "# @package _global_\n" + "".join(f"# {_shown(line)}".rstrip() + "\n" for line in lines)


def _shown(line: str) -> str:
    """Without signs that steer a terminal, which YAML does not take even in a comment."""
    return "".join(sign if sign.isprintable() else "?" for sign in line)
