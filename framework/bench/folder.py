"""The folder of a sweep: made whole or not at all, and written by one process at a time."""

from __future__ import annotations

import errno
import os
import shutil
import time
import uuid
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import InputError
from ..strict_json import read_object
from .disk import Unwritable, read_whole, sync_folder, unwritable

LOCK = ".lock"
PARTS = ("records", "verdicts", "traces")
RACE = "tune"  # a block of the manifest that only foredraft tune writes
_BUILDING = ".foredraft-bench-"
_STALE_S = 3600


def place_of(folder: str | Path) -> Path:
    """The real path, so that a link to an empty folder elsewhere can be given."""
    try:
        return Path(os.path.realpath(Path(folder).expanduser()))
    except (ValueError, RuntimeError) as error:  # a NUL in it, or the home of nobody
        raise InputError(f"{str(folder)!r} can be no folder: {error}.") from None


@contextmanager
def new_folder(place: Path) -> Iterator[Path]:
    """Gives a folder beside ``place`` to fill; when the block ends it takes the place of it.

    Raises:
        InputError: there is something at ``place`` already, or no folder to put it in, or the disk
            takes no more. Nothing is left behind.
    """
    check_free(place)
    building = place.with_name(f"{_BUILDING}{uuid.uuid4().hex[:12]}")
    try:
        _remove_stale(place.parent)
        building.mkdir()
        for part in PARTS:
            (building / part).mkdir()
        yield building
        sync_folder(building)
        if os.name == "nt" and place.is_dir():
            place.rmdir()
        os.rename(building, place)
        sync_folder(place.parent)
    except Unwritable as error:  # names a file of the folder that is going to be gone
        raise Unwritable(str(error).replace(str(building), str(place))) from None
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another process was faster
            raise _taken(place) from None
        raise unwritable(place, error) from None
    finally:
        shutil.rmtree(building, ignore_errors=True)


def check_free(place: Path) -> None:
    """Refuses a place where a sweep cannot begin."""
    try:
        if not place.parent.is_dir():
            raise InputError(f"{place} cannot be made: there is no folder {str(place.parent)!r}.")
        if not place.exists():
            return
        if not place.is_dir():
            raise InputError(f"{place} is no folder.")
        if os.listdir(place):
            raise _taken(place)
        if place.samefile(os.curdir):
            raise InputError(f"{place} is the folder you are in; name a folder inside it.")
    except OSError as error:
        raise unwritable(place, error) from None


def lock(folder: Path) -> FileLock:
    """Takes the folder for this process; a kill gives it back."""
    check_own(folder, folder / LOCK)
    held = FileLock(folder / LOCK, timeout=0)
    try:
        held.acquire()
    except Timeout:
        raise InputError(
            f"{folder} is being written by another sweep; wait for it, or name another folder."
        ) from None
    except OSError as error:
        raise unwritable(folder, error) from None
    return held


def check_own(folder: Path, path: Path) -> None:
    """Refuses to read or write through a link, which may lead out of the folder."""
    for part in (path, *path.parents):
        if part == folder:
            return
        if part.is_symlink():
            raise InputError(f"{part} is a link; nothing is read or written through it.")
    raise InputError(f"{path} is not inside {folder}.")


def resume(place: Path, manifest: Container[str]) -> str:
    """What a command line says to go on with the sweep, or the race, of a folder."""
    return f"{'tune' if RACE in manifest else 'bench'}.resume={place}"


def _taken(place: Path) -> InputError:
    path = place / "run.json"
    if not os.path.exists(path):
        return InputError(
            f"{place} holds files already; name a folder that is empty or not there yet."
        )
    try:
        check_own(place, path)
        manifest = read_object(read_whole(path), str(path))
    except InputError:  # whoever goes on with it is told what is wrong
        manifest = {}
    kind = "race" if RACE in manifest else "sweep"
    return InputError(
        f"{place} holds a {kind} already; go on with it by {resume(place, manifest)}, or name "
        "another folder."
    )


def _remove_stale(parent: Path) -> None:
    """What a killed process was building. Younger ones may be another's."""
    for path in parent.glob(f"{_BUILDING}*"):
        if path.is_dir() and time.time() - path.stat().st_mtime > _STALE_S:
            shutil.rmtree(path, ignore_errors=True)
