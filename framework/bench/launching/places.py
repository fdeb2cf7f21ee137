"""Which other jobs of a launch are on this machine, and which cores are whose.

A job holds a lock for as long as it lives, in a file named after its machine. Whoever finds the lock
of another file held has company: times that were measured then are not worth comparing.
"""

from __future__ import annotations

import hashlib
import os
import platform
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ..hand import Message, Worker

BOOT = Path("/proc/sys/kernel/random/boot_id")
THREADS = "OMP_NUM_THREADS"


def machine() -> str:
    """A mark of this machine, the same in all containers on it. It does not tell its name."""
    try:
        found = BOOT.read_text("ascii")
    except (OSError, UnicodeError):
        found = f"{uuid.getnode()} {platform.node()}"
    return hashlib.sha256(found.encode()).hexdigest()[:12]


class Place:
    """A job's place on its machine.

    Args:
        folder: of the locks, which all jobs of the launch share.
        most: jobs there can be.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self.folder, self.mark = folder, machine()
        self.number, self._lock = self._taken(most)

    def alone(self) -> bool:
        """Whether no other job of this launch is on this machine now."""
        others = self.folder.glob(f"{self.mark}-*")
        mine = f"{self.mark}-{self.number}"
        return not any(_held(path) for path in others if path.name != mine)

    def leave(self) -> None:
        """Gives the place back."""
        self._lock.release()

    def _taken(self, most: int) -> tuple[int, FileLock]:
        # Somebody who only looks holds a lock for a moment, so there are more places than jobs.
        for number in range(2 * most):
            lock = FileLock(self.folder / f"{self.mark}-{number}", timeout=0)
            with suppress(Timeout):
                lock.acquire()
                return number, lock
        raise AssertionError("more jobs than were launched")


def _held(path: Path) -> bool:
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return True
    lock.release()
    return False


@contextmanager
def pinned(place: Place, beside: int) -> Iterator[None]:
    """Gives what is started inside the block its share of the cores, and as many threads.

    ``OMP_NUM_THREADS`` of the environment goes before. Ray and joblib set it to what they grant.

    Args:
        beside: jobs that share the machine.
    """
    before, cores = os.environ.get(THREADS), usable()
    granted = before if before is not None and before.isdecimal() else "0"
    threads = int(granted) or max(1, len(cores) // beside)
    mine = cores[place.number * threads : (place.number + 1) * threads]
    os.environ[THREADS] = str(threads)
    bound = beside > 1 and len(mine) == threads and hasattr(os, "sched_setaffinity")
    try:
        if bound:
            os.sched_setaffinity(0, mine)
        yield
    finally:
        if bound:
            os.sched_setaffinity(0, cores)
        os.environ.pop(THREADS) if before is None else os.environ.update({THREADS: before})


def usable() -> list[int]:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class Neighbour(Worker):
    """A worker that says of each run whether other jobs were on the machine.

    Args:
        limit: as ``Worker``.
        place: of its job.
        check: called before it is asked anything; raises when the job is to end.
    """

    def __init__(self, limit: float, place: Place, check: Callable[[], None]) -> None:
        super().__init__(limit)
        self.place, self.check = place, check

    def ask(self, message: Message) -> Message:
        """As ``Worker.ask``; of a run, ``contended`` is true if it had company at either end."""
        self.check()
        if message["do"] != "run":
            return super().ask(message)
        before = self.place.alone()
        answer = super().ask(message)
        return answer if before and self.place.alone() else {**answer, "contended": True}
