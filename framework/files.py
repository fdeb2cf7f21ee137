"""Files that are there whole or not at all. Imports no torch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .errors import InputError


@contextmanager
def written_whole(path: str | Path, key: str = "") -> Iterator[Path]:
    """Gives a path beside ``path`` to write to; it takes the place of ``path`` when the block ends.

    Args:
        key: what a refusal calls the file, ``out=`` for example.

    Raises:
        InputError: it cannot be written.
    """
    final = Path(path).expanduser()
    partial = final.with_name(f"{final.name}.{os.getpid()}.partial")
    try:
        partial.unlink(missing_ok=True)  # a link of that name would be followed
        yield partial
        os.replace(partial, final)
    except OSError as error:
        raise InputError(f"{key}{path} cannot be written: {error.strerror or error}.") from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def write_tensors(
    path: str | Path, tensors: Mapping[str, Any], metadata: dict[str, str] | None = None
) -> None:
    """Writes safetensors, whole or not at all.

    Raises:
        InputError: they cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with written_whole(path) as partial:
        try:
            save_file(dict(tensors), partial, metadata=metadata)
        except SafetensorError as error:  # what it makes of a full disk
            raise OSError(str(error)) from None


def file_to_write(path: str | Path, key: str = "out") -> Path:
    """The path, if a file can be written there as far as one can tell before the work is done.

    Args:
        key: what a refusal calls the file.

    Raises:
        InputError: it is a folder, or is to be in one that is not there.
    """
    place = Path(path).expanduser()
    if place.is_dir() or not place.parent.is_dir():
        problem = "it is a folder" if place.is_dir() else "there is no such folder"
        raise InputError(f"{key}={path} cannot be written: {problem}.")
    return place


def write_json(path: str | Path, record: dict[str, Any], key: str = "") -> None:
    """Writes JSON for people and programs, whole or not at all."""
    with written_whole(path, key) as partial:
        partial.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", "utf-8")
