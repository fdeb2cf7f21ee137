"""A sweep's folder as readers see it. Reading needs no lock and may go on while another process writes.

Every line is held against the manifest, so what was changed by hand is refused with its file and line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..strict_json import read_object
from .checking import failure_problem, record_problem
from .difference import differences
from .disk import read_whole
from .folder import check_own
from .lines import read_lines
from .machine import at_home
from .manifest import split
from .shapes import trace_problem, verdict_problem

if TYPE_CHECKING:
    import pandas as pd

FAILURES = "failures.jsonl"
Key = tuple[str, int, int]


class Kept:
    """What a sweep's folder holds.

    Args:
        folder: its real path.
        manifest: as ``run.json`` has it; there the home folder is ``<home>``.
        prompts: in order of their index.

    ``cells`` are those of the manifest with the home folder of whoever reads them.
    """

    def __init__(
        self, folder: Path, manifest: dict[str, Any], prompts: list[dict[str, Any]]
    ) -> None:
        self.folder, self.manifest, self.prompts = folder, manifest, prompts
        self.units: list[dict[str, Any]] = manifest["units"]
        self.cells: list[dict[str, Any]] = at_home(manifest["cells"])
        self.ids: list[str] = [cell["id"] for cell in manifest["cells"]]

    def records(self) -> Iterator[dict[str, Any]]:
        """Every run, cell by cell, each in the order in which it was written."""
        for cell_id in self.ids:
            path = self._records(cell_id)
            seen: set[Key] = set()
            check_own(self.folder, path)
            for number, record in read_lines(path):
                problem = record_problem(record, cell_id, self.units)
                if not problem and key_of(record) in seen:
                    problem = f"{named(key_of(record))} is there twice"
                if problem:
                    raise InputError(f"line {number} of {path} is no record: {problem}.")
                seen.add(key_of(record))
                yield record

    def done(self) -> set[Key]:
        """Cell, unit and repeat of every run that need not be made again."""
        return {key_of(record) for record in self.records()}

    def failures(self) -> dict[str, dict[str, Any]]:
        """The last failure of each cell that failed."""
        found: dict[str, dict[str, Any]] = {}
        path = self.folder / FAILURES
        check_own(self.folder, path)
        for number, failure in read_lines(path):
            problem = failure_problem(failure, self.ids)
            if problem:
                raise InputError(f"line {number} of {path} is no failure: {problem}.")
            found[failure["cell"]] = failure
        return found

    def verdicts(self) -> dict[str, dict[str, Any]]:
        """The verdicts there are, by cell."""
        return self._each("verdicts", verdict_problem)

    def traces(self) -> dict[str, dict[str, Any]]:
        """The answers that were taken down round by round, by cell."""
        return self._each("traces", self._trace_problem)

    def _trace_problem(self, trace: dict[str, Any]) -> str:
        return trace_problem(trace, len(self.prompts))

    def _each(
        self, kind: str, problem_of: Callable[[dict[str, Any]], str]
    ) -> dict[str, dict[str, Any]]:
        found = {}
        for name in self.ids:
            path = self._beside(kind, name)
            check_own(self.folder, path)
            if os.path.lexists(path):
                found[name] = read_object(read_whole(path), str(path))
                problem = problem_of(found[name])
                if problem:
                    raise InputError(f"{path} is not right: {problem}.")
        return found

    def difference(self, manifest: Mapping[str, Any]) -> list[str]:
        """What a sweep with this manifest (as ``create`` takes it) would do otherwise; empty if it
        may go on here."""
        return differences(self.manifest, split(manifest)[0])

    def runs(self) -> pd.DataFrame:
        """One line per run (see ``frames.runs``)."""
        from . import frames

        return frames.runs(self)

    def rows(self) -> pd.DataFrame:
        """One line per prompt and run (see ``frames.rows``)."""
        from . import frames

        return frames.rows(self)

    def to_parquet(self, path: str | Path) -> None:
        """Writes the rows as Parquet, with the manifest in the file's metadata."""
        from . import frames

        frames.to_parquet(self, path)

    def _records(self, cell_id: str) -> Path:
        return self.folder / "records" / f"{cell_id}.jsonl"

    def _beside(self, kind: str, cell_id: str) -> Path:
        return self.folder / kind / f"{cell_id}.json"


def key_of(record: Mapping[str, Any]) -> Key:
    """Which run a record is of: cell, unit, repeat."""
    return record["cell"], record["unit"], record["repeat"]


def named(key: Key) -> str:
    """The same in words."""
    return f"the run of unit {key[1]}, repeat {key[2]} of cell {key[0]}"
