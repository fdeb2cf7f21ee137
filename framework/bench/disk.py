"""Bytes to and from a sweep's folder: strict JSON, files written whole and had on the disk. Imports no
torch."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any, NoReturn

from ..errors import InputError

MOST = 64 << 20  # bytes of a line, or of a file read whole
DEPTH = 60  # of nested JSON; what walks it calls itself
PLAIN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
NO_LINK, NO_WAIT = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)


class Unwritable(InputError):
    """The disk is full, or the folder may not be written to."""


def encoded(value: Any, where: str, indent: int | None = None) -> bytes:
    """Strict JSON in ASCII with its line end: some readers of lines split at U+2028 too."""
    try:
        data = (json.dumps(value, allow_nan=False, indent=indent) + "\n").encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{where} cannot be written as JSON: {_brief(error)}.") from None
    if len(data) > MOST:
        raise InputError(f"{where} has {len(data)} bytes; {MOST} are possible.")
    return data


def write_durably(path: Path, data: bytes) -> None:
    """A file that is there whole, and on the disk, or not at all."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.unlink(missing_ok=True)
        file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN, 0o666)
        try:
            write_all(file, data)
        finally:
            os.close(file)
        os.replace(partial, path)
        sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from None
    finally:
        partial.unlink(missing_ok=True)


def read_whole(path: Path) -> bytes:
    """A file of ours, of at most ``MOST`` bytes."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | PLAIN | NO_WAIT), "rb") as file:
            check_file(file.fileno())
            data = file.read(MOST + 1)
    except OSError as error:
        raise unreadable(path, error) from None
    if len(data) > MOST:
        raise InputError(f"{path} has more than {MOST} bytes.")
    return data


def parsed(data: bytes, where: str) -> dict[str, Any]:
    """One object of strict JSON: UTF-8, no key twice, no NaN or infinity, no half characters, and
    nested ``DEPTH`` levels at most."""
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
        if isinstance(value, dict):
            _check_depth(value)
        if b"\\u" in data:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{where} is not UTF-8 text.") from None
    except UnicodeEncodeError:
        raise InputError(f"{where} holds half of a character (a lone surrogate).") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not valid JSON: {_brief(error)}.") from None
    if not isinstance(value, dict):
        raise InputError(f"{where} is not a JSON object.")
    return value


def sync_folder(folder: Path) -> None:
    """Has the folder's list of names on the disk; without it a new file may be gone after a crash."""
    if os.name != "posix":
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def unwritable(path: Path, error: OSError) -> Unwritable:
    """The sentence for a disk or a folder that takes nothing."""
    return Unwritable(f"{path} cannot be written: {error.strerror or error}.")


def unreadable(path: Path, error: OSError) -> InputError:
    """The sentence for a file that cannot be read."""
    return InputError(f"{path} cannot be read: {error.strerror or error}.")


def write_all(file: int, data: bytes) -> None:
    """Writes all of it and has it on the disk."""
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
    os.fsync(file)


def check_file(file: int) -> None:
    """Refuses an open folder, device or pipe."""
    # A pipe by that name would be waited for without end.
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise OSError("it is not a file")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(n for n in names if names.count(n) > 1)!r} is there twice")
    return found


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEPTH):
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [item for items in inner for item in items if type(item) in (dict, list)]
        if not level:
            return
    raise ValueError(f"it is nested more than {DEPTH} levels deep")


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _finite(word: str) -> float:
    number = float(word)
    if not math.isfinite(number):
        raise ValueError(f"{word} is too large")
    return number


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
