"""What a sweep ran on and with, and nothing that tells whose machine it was. Imports no torch.

No host name, user name or environment variable is read for it, and the home folder's path is written
``<home>`` wherever it occurs; ``at_home`` puts the reader's own in its place.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..observing import versions

HOME = "<home>"
# A path from the root, from a home or up from here; also as an item of a list, and of Windows.
_PATH = re.compile(r"(?<![^\s=\[\]{}(),'\"])(?:~[^/\\\s,]*|[A-Za-z]:|\.\.)?[/\\][^,\[\]{}()'\"]*")
_LOGIN = re.compile(r"(?<=://)[^/@\s]*@")

__all__ = ["at_home", "command", "commit", "discreet", "hardware", "moment", "versions"]


def hardware(threads: int, device: str) -> dict[str, Any]:
    """The machine, as far as figures depend on it.

    Args:
        threads: that the target computes with (``torch.get_num_threads()``).
        device: in words, ``cpu`` or the name of an accelerator.
    """
    import psutil

    return {
        "cpu": processor(),
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "usable_cores": _usable(),
        "threads": threads,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "device": device,
    }


def processor() -> str:
    """The model of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        return next(names)
    except (OSError, UnicodeError, StopIteration):
        return platform.processor() or platform.machine()


def commit() -> str | None:
    """The git commit that the code came from, with ``-dirty`` if it was changed since; None if it
    came from no checkout of its own."""
    here = Path(__file__).resolve()
    # An environment of some other project's checkout must not lend its commit.
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    return _git(here.parent, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


def moment() -> str:
    """Now, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def command(words: Sequence[str]) -> str:
    """A command line as others can repeat it: of a path that is not theirs, the last name."""
    plain = (_LOGIN.sub("", _PATH.sub(_name, word)) for word in words)
    return str(discreet(shlex.join(plain)))


def discreet(value: Any) -> Any:
    """The value with every mention of the home folder as ``<home>``; keys of mappings, too."""
    homes = _homes()
    return _walk(value, lambda text: _without(text, homes))


def at_home(value: Any) -> Any:
    """The value with ``<home>`` as the home folder of whoever reads it."""
    home = os.path.expanduser("~")
    return _walk(value, lambda text: text.replace(HOME, home))


def _usable() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _git(folder: Path, *words: str) -> str | None:
    # Git's own variables may point to another repository, in a hook for example.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=folder,
            env={**kept, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _name(found: re.Match[str]) -> str:
    return re.split(r"[/\\]", found[0].rstrip("/\\"))[-1]


def _homes() -> list[str]:
    """The home folder's paths, longest first: as the environment has it, and where it really is."""
    home = os.path.expanduser("~")
    found = {home.rstrip("/\\"), os.path.realpath(home).rstrip("/\\")}
    try:
        import pwd

        found.add(pwd.getpwuid(os.getuid()).pw_dir.rstrip("/\\"))
    except (ImportError, KeyError):
        pass
    # "/" alone is a home in some containers, and stands in every path.
    return sorted((text for text in found if len(text) > 1 and text != "~"), key=len, reverse=True)


def _without(text: str, homes: Sequence[str]) -> str:
    for home in homes:
        if home in text:
            text = re.sub(rf"(?<![\w./\\-]){re.escape(home)}(?![\w-])", HOME, text)
    return text


def _walk(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(str(key)): _walk(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(item, change) for item in value]
    return value
