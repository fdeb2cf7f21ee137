"""A cell of a sweep once more, from what its folder says of it: do ids and counters come out again?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..config.values import read_record
from ..errors import ConfigError, InputError, near_match
from .hand import Failed, Worker
from .kept import Kept
from .options import BenchOptions
from .sweeping import check_cells, opening


@dataclass(frozen=True)
class Rerun:
    """What came out.

    Args:
        cell: its id.
        units: how many were run.
        different: one sentence for each unit whose rows are not those that were recorded.
        seconds, before: of decoding, now and as recorded, over these units.
        tokens: emitted, now.
    """

    cell: str
    units: int
    different: Sequence[str]
    seconds: float
    before: float
    tokens: int


def rerun(
    store: Kept, cell_id: str, worker: Worker, words: Sequence[str], plugins: Sequence[str]
) -> Rerun:
    """Runs every recorded unit of a cell again, the first repeat of each.

    Raises:
        ConfigError: there is no such cell.
        InputError: nothing of it was recorded, or it cannot run.
    """
    if cell_id not in store.ids:
        hint = near_match(cell_id, store.ids)
        raise ConfigError(
            f"{store.folder} has no cell {cell_id!r}; {hint}cells: {', '.join(store.ids)}."
        )
    check_cells([cell for cell in store.cells if cell["id"] == cell_id], words)
    recorded = _first(store, cell_id)
    options = read_record(BenchOptions, store.manifest["options"], "bench")
    worker.limit = options.limit_s
    worker.open(opening(store.cells, store.prompts, options, plugins))
    try:
        found = [_again(worker, cell_id, record) for record in recorded]
    except Failed as failure:
        raise InputError(f"{cell_id} cannot run: {failure.cause}.") from None
    return Rerun(
        cell_id,
        len(recorded),
        [
            line
            for record, now in zip(recorded, found, strict=True)
            for line in _parted(record, now)
        ],
        sum(now["seconds"] - now["prefill"] for now in found),
        sum(record["seconds"] - record["prefill"] for record in recorded),
        sum(len(row["ids"]) for now in found for row in now["rows"]),
    )


def _first(store: Kept, cell_id: str) -> list[dict[str, Any]]:
    """The first record of each unit."""
    found: dict[int, dict[str, Any]] = {}
    for record in store.records():
        if record["cell"] == cell_id:
            found.setdefault(record["unit"], record)
    if not found:
        raise InputError(f"nothing of {cell_id} is recorded in {store.folder}.")
    return list(found.values())


def _again(worker: Worker, cell_id: str, record: dict[str, Any]) -> dict[str, Any]:
    worker.ask({"do": "load", "cell": cell_id})
    prompts = [row["prompt"] for row in record["rows"]]
    return worker.ask({"do": "run", "cell": cell_id, "prompts": prompts})


def _parted(record: dict[str, Any], now: dict[str, Any]) -> Iterable[str]:
    """What is not as recorded. Overlaps are sums of rounded numbers, so they are left out."""
    for before, after in zip(record["rows"], now["rows"], strict=True):
        keys = [key for key in before if key != "overlap" and before[key] != after.get(key)]
        if keys:
            yield f"prompt {before['prompt']}: {', '.join(keys)} came out otherwise"
