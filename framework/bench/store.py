"""One folder per sweep, which survives a kill at any moment. Imports no torch.

    run.json               the manifest, written once: what is measured, how, on what, by which command
    prompts.jsonl          {"index", "id", "group", "form", "content"} per prompt; run.json has its hash
    records/CELL.jsonl     one line per run, on the disk before the next run begins
    failures.jsonl         what went wrong in which cell
    verdicts/CELL.json     whether the cell kept the target's law
    traces/CELL.json       some answers of it, round by round
    .lock                  held by the one process that writes

The folder appears whole, by a rename. Of a line that was being written when the process died nothing
counts (``lines.py``); whoever writes next cuts it off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock

from ..cli.results import strict
from ..errors import InputError
from .checking import failure_problem, record_problem
from .disk import Unwritable, encoded, write_durably
from .folder import check_own, lock, new_folder, place_of, resume
from .kept import FAILURES, Kept, Key, key_of, named
from .lines import append_line
from .machine import discreet, moment
from .manifest import MANIFEST, PROMPTS, prompt_lines, read_manifest, split
from .shapes import verdict_problem

T = TypeVar("T")
_CAUSE = 2000  # letters kept of what went wrong


class Store(Kept):
    """A sweep's folder: ``create`` a new one or ``open`` one that is there.

    Reading needs no lock and may go on beside the process that writes. The first thing written
    takes the lock (``claim``) and keeps it until ``close``.
    """

    def __init__(
        self, folder: Path, manifest: dict[str, Any], prompts: list[dict[str, Any]]
    ) -> None:
        super().__init__(folder, manifest, prompts)
        self._lock: FileLock | None = None
        self._done: set[Key] = set()

    @classmethod
    def create(cls, folder: str | Path, manifest: Mapping[str, Any]) -> Store:
        """Makes a sweep's folder and takes its lock.

        Args:
            folder: not there yet, or empty; the folder above it has to be there.
            manifest: ``command``, ``started``, ``versions``, ``hardware``, ``commit``, ``options``,
                ``task``, ``cells``, ``units`` and ``prompts``, in plain values or dataclasses.
                ``format`` is added. The home folder is written ``<home>``.

        Raises:
            InputError: there is something there, it cannot be written, or the manifest is not whole.
        """
        place = place_of(folder)
        stored, prompts = split(manifest)
        with new_folder(place) as building:
            write_durably(building / MANIFEST, encoded(stored, MANIFEST, indent=1))
            write_durably(building / PROMPTS, prompt_lines(prompts))
        store = cls(place, stored, prompts)
        store.claim()
        return store

    @classmethod
    def open(cls, folder: str | Path, write: bool = False) -> Store:
        """Reads a sweep's folder.

        Args:
            write: take the lock first, so that nothing changes any more between reading and writing.

        Raises:
            InputError: it is no sweep's folder or one of another version, it was changed by hand,
                or another process is writing to it.
        """
        place = place_of(folder)
        store = cls(place, *read_manifest(place))
        if write:
            store.claim()
        return store

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def resuming(self) -> str:
        """What a command line says to go on with it."""
        return resume(self.folder, self.manifest)

    def claim(self) -> None:
        """Takes the lock and reads what has been done."""
        if self._lock is None:
            self._lock = lock(self.folder)
            try:
                self._done = {key_of(record) for record in self.records()}
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Gives the lock back."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def append(self, record: Mapping[str, Any]) -> None:
        """Adds a run and has it on the disk when it returns.

        Raises:
            Unwritable: the disk took no more; nothing of the record is left in the file.
            InputError: the record is not right or is there already.
        """
        value = dict(record)
        cell_id = self._known(value.get("cell"))
        problem = record_problem(value, cell_id, self.units)
        if problem:
            raise InputError(f"a record of cell {cell_id} cannot be kept: {problem}.")
        self.claim()
        if key_of(value) in self._done:
            raise InputError(f"{named(key_of(value))} is recorded already.")
        self._written(append_line, self._records(cell_id), value)
        self._done.add(key_of(value))

    def fail(
        self,
        cell_id: str,
        cause: str,
        kind: str,
        unit: int | None = None,
        repeat: int | None = None,
    ) -> None:
        """Notes what went wrong.

        Args:
            cause: one sentence; the home folder is taken out of it.
            kind: one of ``checking.KINDS``.
        """
        said = " ".join(discreet(cause).split())[:_CAUSE]
        place = {"cell": cell_id, "unit": unit, "repeat": repeat}
        self._fail({**place, "kind": kind, "cause": said, "when": moment()})

    def put_verdict(self, cell_id: str, verdict: Mapping[str, Any]) -> None:
        """Writes a cell's verdict, in place of an earlier one."""
        self._put("verdicts", cell_id, discreet(verdict), verdict_problem)

    def put_trace(self, cell_id: str, trace: Mapping[str, Any]) -> None:
        """Writes answers of a cell that were taken down round by round; what they say is data."""
        self._put("traces", cell_id, trace, self._trace_problem)

    def _put(
        self,
        kind: str,
        cell_id: str,
        value: Mapping[str, Any],
        problem_of: Callable[[dict[str, Any]], str],
    ) -> None:
        path = self._beside(kind, self._known(cell_id))
        problem = problem_of(dict(value))
        if problem:
            raise InputError(f"{path} cannot be kept: {problem}.")
        self.claim()
        self._written(write_durably, path, encoded(strict(value), str(path), indent=1))

    def _fail(self, failure: dict[str, Any]) -> None:
        problem = failure_problem(failure, self.ids)
        if problem:
            raise InputError(f"a failure cannot be kept: {problem}.")
        self.claim()
        self._written(append_line, self.folder / FAILURES, failure)

    def _written(self, write: Callable[[Path, T], None], path: Path, value: T) -> None:
        """Writes one thing, and says where it cannot how the sweep goes on afterwards."""
        check_own(self.folder, path)
        try:
            write(path, value)
        except Unwritable as error:
            said = str(error).removesuffix(".")
            raise Unwritable(f"{said}, and go on with {self.resuming}.") from None

    def done(self) -> set[Key]:
        """As ``Kept.done``; known without reading once the lock is taken."""
        return super().done() if self._lock is None else set(self._done)

    def _known(self, cell_id: object) -> str:
        if cell_id not in self.ids:
            raise InputError(f"there is no cell {cell_id!r} in {self.folder}.")
        return str(cell_id)
