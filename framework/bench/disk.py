"""Bytes to and from a sweep's folder: files written whole and had on the disk. Imports no torch."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..strict_json import brief

MOST = 64 << 20  # bytes of a line, or of a file read whole
PLAIN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
NO_LINK, NO_WAIT = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)


class Unwritable(InputError):
    """The disk is full, or the folder may not be written to."""


# What can be done about it.
_HELP = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "make room"),
    errno.EFBIG: "raise the limit on a file's size",
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "make it writable"),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), "put back what was taken away"),
}


def encoded(value: Any, where: str, indent: int | None = None) -> bytes:
    """Strict JSON in ASCII with its line end: some readers of lines split at U+2028 too."""
    try:
        data = (json.dumps(value, allow_nan=False, indent=indent) + "\n").encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{where} cannot be written as JSON: {brief(error)}.") from None
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
        with contextlib.suppress(OSError):
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
    """The sentence for a disk or a folder that takes nothing, and what to do about it."""
    hint = _HELP.get(error.errno or 0, "")
    said = str(error.strerror or error)
    return Unwritable(f"{path} cannot be written: {said}{f'; {hint}' if hint else ''}.")


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
