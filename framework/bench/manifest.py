"""The manifest of a sweep, and its prompts: what is measured, how, on what. Imports no torch."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..cli.results import strict
from ..errors import InputError
from .checking import wholes
from .disk import encoded, parsed, read_whole
from .lines import read_lines
from .machine import discreet

MANIFEST, PROMPTS = "run.json", "prompts.jsonl"
FORMAT = "foredraft bench 1"
BLOCKS = ("command", "started", "versions", "hardware", "commit", "options", "task")
CELL = {
    "choices": dict,
    "overrides": list,
    "config": dict,
    "kind": str,
    "baseline": str,
    "lossless": bool,
}
# A cell's id is a file's name: no slash, no leading dot, and short enough for what is added to it.
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,=+@~-]{0,199}")


def split(manifest: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The manifest as run.json has it, and the prompts, both as JSON gives them back."""
    plain = {key: _plain(value) for key, value in manifest.items() if key != "prompts"}
    stored = {"format": FORMAT, **strict(discreet(plain))}
    prompts: list[dict[str, Any]] = strict(_plain(manifest.get("prompts", [])))
    for unit in stored.get("units", []):
        asked = unit.get("prompts", [])
        unit["prompts"] = [one["index"] if isinstance(one, dict) else one for one in asked]
    stored["prompts"] = {
        "count": len(prompts),
        "sha256": hashlib.sha256(prompt_lines(prompts)).hexdigest(),
    }
    check_manifest(stored, "the manifest")
    check_prompts(prompts, stored, "the manifest")
    return stored, prompts


def read_manifest(place: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The manifest of a folder and its prompts.

    Raises:
        InputError: it is no folder of a sweep, of another version, or was changed by hand.
    """
    path = place / MANIFEST
    if not os.path.isfile(path):
        raise InputError(f"{place} is no folder of a sweep: it has no {MANIFEST}.")
    manifest = parsed(read_whole(path), str(path))
    check_manifest(manifest, str(path))
    return manifest, _read_prompts(place / PROMPTS, manifest)


def prompt_lines(prompts: Sequence[dict[str, Any]]) -> bytes:
    """The text of ``prompts.jsonl``."""
    return b"".join(encoded(prompt, f"prompt {index}") for index, prompt in enumerate(prompts))


def check_manifest(manifest: dict[str, Any], where: str) -> None:
    """Refuses a manifest that is of another version or lacks what a sweep consists of."""
    form = manifest.get("format")
    if form != FORMAT and isinstance(form, str) and form.startswith("foredraft bench"):
        raise InputError(f"{where} has the format {form!r}; this version reads {FORMAT!r}.")
    if form != FORMAT:
        raise InputError(f"{where} is no manifest of a sweep; its format must be {FORMAT!r}.")
    for key in BLOCKS:
        if key not in manifest:
            raise InputError(f"{where} has no {key!r}.")
    for key in ("versions", "hardware", "options", "task"):
        if not isinstance(manifest[key], dict):
            raise InputError(f"{where}: {key!r} is not an object.")
    _check_cells(manifest.get("cells"), where)
    _check_units(manifest.get("units"), where)


def check_prompts(prompts: Sequence[Any], manifest: dict[str, Any], where: str) -> None:
    """Refuses prompts that are not numbered through, and units that name others."""
    for place, prompt in enumerate(prompts):
        if not isinstance(prompt, dict) or prompt.get("index") != place:
            raise InputError(f"{where}: prompt {place} is not an object with the index {place}.")
    for unit in manifest["units"]:
        if any(index >= len(prompts) for index in unit["prompts"]):
            raise InputError(
                f"{where}: unit {unit['index']} names a prompt that is not among the "
                f"{len(prompts)} there are."
            )


def _read_prompts(path: Path, manifest: dict[str, Any]) -> list[dict[str, Any]]:
    about = manifest.get("prompts")
    known = about if isinstance(about, dict) else {}
    prompts = [prompt for _, prompt in read_lines(path)]
    found = hashlib.sha256(read_whole(path)).hexdigest()
    if (known.get("sha256"), known.get("count")) != (found, len(prompts)):
        raise InputError(f"{path} is not what the sweep began with.")
    check_prompts(prompts, manifest, str(path))
    return prompts


def _plain(value: Any) -> Any:
    """Dataclasses as mappings, tuples as lists, paths as text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _check_cells(cells: Any, where: str) -> None:
    if not isinstance(cells, list) or not cells:
        raise InputError(f"{where} lists no cells.")
    seen: dict[str, str] = {}
    for cell in cells:
        name = cell.get("id") if isinstance(cell, dict) else None
        if not isinstance(name, str) or not _ID.fullmatch(name):
            raise InputError(f"{where} has the cell id {name!r}, which cannot name a file.")
        # Some file systems do not tell capitals from small letters.
        if name.lower() in seen:
            raise InputError(f"{where} has the cells {seen[name.lower()]!r} and {name!r}.")
        seen[name.lower()] = name
        for key, kind in CELL.items():
            if type(cell.get(key)) is not kind:
                raise InputError(f"{where}: the cell {name!r} has {key}={cell.get(key)!r}.")


def _check_units(units: Any, where: str) -> None:
    if not isinstance(units, list) or not units:
        raise InputError(f"{where} lists no units.")
    for place, unit in enumerate(units):
        good = isinstance(unit, dict) and unit.get("index") == place
        good = good and isinstance(unit.get("group"), str) and wholes(unit.get("prompts"))
        if not good or not unit["prompts"]:
            raise InputError(
                f"{where}: unit {place} is not an object with the index {place}, a group and the "
                "numbers of its prompts."
            )
