"""Checkpoints that others trained: a folder or hub id with ``config.json`` and safetensors, and no card."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from .errors import ConfigError, InputError
from .shipped import place
from .strict_json import read_object
from .trained import CARD, PICKLES, load_tensors

CONFIG = "config.json"
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


@dataclass
class Foreign:
    """What was read.

    Args:
        tensors: by name, of all its files, on the CPU.
        config: as it is in the file.
        where: the folder, as a refusal calls it.
    """

    tensors: dict[str, Tensor]
    config: dict[str, Any]
    where: str

    def matrix(self, name: str) -> Tensor:
        """The matrix of this name.

        Raises:
            ConfigError: it has another shape.
        """
        if self.tensors[name].dim() != 2:
            raise ConfigError(f"{self.where} has a {name} that is no matrix.")
        return self.tensors[name]

    def agree(self, what: str, own: int, targets: int) -> None:
        """Refuses what is made for another target."""
        if own != targets:
            raise ConfigError(f"{self.where} is for {what} {own}, and this target has {targets}.")


def read_foreign(path: str) -> Foreign | None:
    """Reads what ``drafter.path`` names; None where that is a folder of ``foredraft train``, or nothing.

    Raises:
        InputError: it is damaged, or holds pickles only, or the hub does not give it.
    """
    where, folder = f"drafter.path={path}", Path(place(path))
    if not folder.exists() and HUB_ID.fullmatch(path):
        folder = _fetched(path, where)
    if (folder / CARD).is_file() or not (folder / CONFIG).is_file():
        return None
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickled = next((p.name for p in sorted(folder.iterdir()) if p.suffix in PICKLES), None)
        hint = f"; {pickled} is not read, because a pickle can run code" if pickled else ""
        raise InputError(f"{where} has no .safetensors weights{hint}.")
    try:
        config = read_object((folder / CONFIG).read_bytes(), f"{where}/{CONFIG}")
    except OSError as error:
        raise InputError(f"{where}/{CONFIG} cannot be read: {error.strerror or error}.") from None
    tensors = {name: value for file in files for name, value in load_tensors(file, where).items()}
    return Foreign(tensors, config, where)


def _fetched(name: str, where: str) -> Path:
    """A hub's repository on the disk: its config and safetensors, no code."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=[CONFIG, "*.safetensors"]))
    except Exception as error:  # the hub's client raises many kinds
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:300].rstrip(".")
        raise InputError(f"{where} is no folder, and the hub does not give it: {first}.") from None
