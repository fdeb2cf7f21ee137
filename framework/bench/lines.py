"""JSON lines that survive a kill: a line is on the disk, whole, or it is not there. Imports no torch.

A process can be killed, or the disk fill up, in the middle of a line. What stands behind the last
line end therefore counts for nothing: readers pass over it and the next writer cuts it off. All
else in a file has to be right, so that a file changed by hand is never taken for a result.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..strict_json import read_object
from .disk import (
    MOST,
    NO_LINK,
    NO_WAIT,
    PLAIN,
    check_file,
    encoded,
    sync_folder,
    unreadable,
    unwritable,
    write_all,
)

_BLOCK = 1 << 16


def append_line(path: Path, value: dict[str, Any]) -> None:
    """Adds a line and has it on the disk when it returns; a line that fails leaves no trace.

    Raises:
        Unwritable: the file is a link or no file, or the disk took no more.
    """
    data = encoded(value, f"a line of {path}")
    try:
        fresh = not path.exists()
        file = os.open(path, os.O_RDWR | os.O_CREAT | PLAIN | NO_LINK | NO_WAIT, 0o666)
        try:
            check_file(file)
            _append(file, data)
        finally:
            os.close(file)
        if fresh:
            sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from None


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each whole line's number and object; none if there is no file.

    Raises:
        InputError: the file cannot be read, or a line is not one strict JSON object.
    """
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | PLAIN | NO_WAIT), "rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise unreadable(path, error) from None
    with file:
        try:
            check_file(file.fileno())
            for number, line in enumerate(iter(lambda: file.readline(MOST + 1), b""), 1):
                if len(line) > MOST:
                    raise InputError(f"line {number} of {path} has more than {MOST} bytes.")
                if not line.endswith(b"\n"):
                    return
                yield number, read_object(line, f"line {number} of {path}")
        except OSError as error:
            raise unreadable(path, error) from None


def _append(file: int, data: bytes) -> None:
    end = _whole(file)
    try:
        os.ftruncate(file, end)
        os.lseek(file, end, os.SEEK_SET)
        write_all(file, data)
    except BaseException:  # a full disk, or Ctrl-C between two parts of the line
        os.ftruncate(file, end)
        raise


def _whole(file: int) -> int:
    """Bytes up to the last line end."""
    end = os.fstat(file).st_size
    while end:
        begin = max(0, end - _BLOCK)
        os.lseek(file, begin, os.SEEK_SET)
        at = os.read(file, end - begin).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return 0
