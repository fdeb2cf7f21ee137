"""The manifest of a sweep, and its prompts: what is measured, how, on what. Imports no torch."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..cli.results import strict
from ..errors import InputError
from ..strict_json import read_object
from .disk import encoded, read_whole
from .folder import check_own
from .lines import read_lines
from .machine import discreet
from .shapes import about_problem, cells_problem, prompt_problem, units_problem

MANIFEST, PROMPTS = "run.json", "prompts.jsonl"
FORMAT = "foredraft bench 1"
BLOCKS = ("command", "started", "versions", "hardware", "commit", "options", "task")


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
    check_own(place, path)
    check_own(place, place / PROMPTS)
    manifest = read_object(read_whole(path), str(path))
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
    cells, units = manifest.get("cells"), manifest.get("units")
    problem = about_problem(manifest) or cells_problem(cells) or units_problem(units)
    if problem:
        raise InputError(f"{where}: {problem}.")


def check_prompts(prompts: Sequence[Any], manifest: dict[str, Any], where: str) -> None:
    """Refuses prompts that are none or not numbered through, and units that name others."""
    for place, prompt in enumerate(prompts):
        problem = prompt_problem(prompt, place)
        if problem:
            raise InputError(f"{where}: {problem}.")
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
