"""``out=FILE``: answers that survive an interruption and are taken up again by the same command."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..errors import InputError
from .prompts import Item
from .results import line

BEGIN = b'{"id": '  # how every line of ours begins


class Kept(NamedTuple):
    """What later turns of a conversation need of an answer."""

    token_ids: list[int]
    finish_reason: str


class OutFile:
    """A file of JSON lines, one per answer.

    Args:
        path: as typed.
        configs: of every run of this command; a line made with another one is refused.
        items: the prompts; a line that answers another one is refused.
    """

    def __init__(self, path: str, configs: list[dict[str, Any]], items: list[Item]) -> None:
        self.path = Path(path).expanduser()
        self.configs = configs
        self.places = {
            item.first + turn: (item, turn) for item in items for turn in range(item.turns)
        }
        self._done: dict[tuple[int, int], Kept] = {}
        self._file: BinaryIO | None = None
        self._size, self._whole = self._read()

    def answered(self, config: dict[str, Any], item: Item) -> list[Kept]:
        """What is kept of an item's turns, from its first turn on."""
        run, found = self.configs.index(config), []
        for index in range(item.first, item.first + item.turns):
            if (run, index) not in self._done:
                break
            found.append(self._done[run, index])
        return found

    def append(self, value: dict[str, Any]) -> None:
        """Adds a line and has it on disk when it returns."""
        try:
            file = self._file = self._file or self._open()
            file.write(line(value).encode())
            file.flush()
            os.fsync(file.fileno())
            self._keep(value)
        except OSError as error:
            raise InputError(f"out={self.path} cannot be written: {_reason(error)}.") from None

    def close(self) -> None:
        """Gives the file back."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> BinaryIO:
        file = self.path.open("ab")
        _lock(file, self.path)
        if file.tell() != self._size:
            raise InputError(f"out={self.path} has changed meanwhile; run the command again.")
        file.truncate(self._whole)  # a line that was cut in the middle of writing
        return file

    def _read(self) -> tuple[int, int]:
        """Reads what is there; returns its size, and how much of it are whole lines."""
        try:
            if not self.path.exists():
                self._check_folder()
                return 0, 0
            if not self.path.is_file():
                raise InputError(f"out={self.path} is not a file.")
            data = self.path.read_bytes()
        except OSError as error:
            raise InputError(f"out={self.path} cannot be used: {_reason(error)}.") from None
        *lines, torn = data.split(b"\n")
        for number, text in enumerate(lines, 1):
            self._take(text, number)
        if not (torn.startswith(BEGIN) or BEGIN.startswith(torn)):
            raise self._foreign(len(lines) + 1)
        return len(data), len(data) - len(torn)

    def _check_folder(self) -> None:
        if not self.path.parent.is_dir():
            raise InputError(f"out={self.path} cannot be written: there is no such folder.")
        if not os.access(self.path.parent, os.W_OK):
            raise InputError(f"out={self.path} cannot be written: Permission denied.")

    def _take(self, text: bytes, number: int) -> None:
        try:
            value = json.loads(text)
            config, index, turn = value["config"], value["index"], value["turn"]
            sha256, _ = value["prompt_sha256"], (value["token_ids"], value["finish_reason"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self._foreign(number) from None
        if config not in self.configs:
            raise self._refusal(number, f"was made with another config ({self._gap(config)})")
        if index not in self.places or self._place(index) != (sha256, turn):
            raise self._refusal(number, "answers another prompt than this command asks")
        self._keep(value)

    def _keep(self, value: dict[str, Any]) -> None:
        run = self.configs.index(value["config"])
        self._done[run, value["index"]] = Kept(value["token_ids"], value["finish_reason"])

    def _place(self, index: int) -> tuple[str, int]:
        item, turn = self.places[index]
        return item.sha256, turn

    def _gap(self, config: Any) -> str:
        there, here = _flat(config), _flat(self.configs[0])
        key = next(k for k in [*there, *here] if there.get(k) != here.get(k))
        return f"{key} is {there.get(key)!r} there and {here.get(key)!r} here"

    def _foreign(self, number: int) -> InputError:
        return self._refusal(number, "is no answer of 'foredraft generate'")

    def _refusal(self, number: int, problem: str) -> InputError:
        return InputError(
            f"line {number} of out={self.path} {problem}; name another file, or move that one away."
        )


def _flat(value: Any, key: str = "config") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {key: value}
    pairs = ((name if key == "config" else f"{key}.{name}", item) for name, item in value.items())
    return {flat: leaf for name, item in pairs for flat, leaf in _flat(item, name).items()}


def _lock(file: BinaryIO, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"out={path} is being written by another process.") from None


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
