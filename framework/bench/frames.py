"""A sweep's records as tables. pandas and pyarrow are an optional extra, imported where they are used:
``pip install 'foredraft[bench]'``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..files import written_whole
from .checking import COUNTERS

if TYPE_CHECKING:
    import pandas as pd

    from .kept import Kept

PHASES = ("draft", "verify", "sampling", "other")
RUN = ("cell", "unit", "repeat", "order", "group")
RUN_COLUMNS = (
    *RUN, "tokens", "seconds", "prefill", "decode", "contended", *COUNTERS, "reached", "overlap",
    *PHASES,
)  # fmt: skip
ROW_COLUMNS = (
    *RUN, "kind", "choices", "seconds", "prefill", "contended", "prompt", "prompt_id", "ids",
    "tokens", "finish", *COUNTERS, "reached_at", "accepted_at", "by_round", "overlap",
)  # fmt: skip


def runs(kept: Kept) -> pd.DataFrame:
    """One line per run.

    ``seconds`` is the run's wall time, ``decode`` what of it is not prefill, the phases are parts
    of that; tokens and counters are sums over the rows of the unit. What ``generate`` does not tell
    is NaN.
    """
    lines = [_run(record) for record in kept.records()]
    frame = _pandas().DataFrame(lines, columns=list(RUN_COLUMNS))
    floats = dict.fromkeys((*COUNTERS, "reached", "overlap", *PHASES), "float64")
    return frame.astype(floats)


def rows(kept: Kept) -> pd.DataFrame:
    """One line per prompt and run; ``ids``, ``reached_at`` and ``accepted_at`` hold lists, ``by_round``
    a list of lists, and ``choices`` is JSON."""
    frame = _pandas().DataFrame(list(_rows(kept)), columns=list(ROW_COLUMNS))
    return frame.astype(dict.fromkeys((*COUNTERS, "overlap"), "float64"))


def to_parquet(kept: Kept, path: str | Path) -> None:
    """Writes the rows, with the manifest as JSON under the key ``foredraft`` of the metadata.

    Raises:
        ConfigError: pyarrow is not installed.
        InputError: the file cannot be written.
    """
    pa, parquet = _module("pyarrow"), _module("pyarrow.parquet")
    about = json.dumps(kept.manifest, allow_nan=False)
    schema = _schema(pa).with_metadata({"foredraft": about})
    table = pa.Table.from_pylist(list(_rows(kept)), schema=schema)
    with written_whole(path) as partial:
        parquet.write_table(table, partial, compression="zstd")


def _run(record: dict[str, Any]) -> dict[str, Any]:
    parts, spent = record["rows"], record.get("time", {})
    tokens = sum(len(row["ids"]) for row in parts)
    reached = [sum(row["reached_at"]) for row in parts if "reached_at" in row]
    return {
        **{key: record[key] for key in RUN},
        "tokens": tokens,
        "seconds": float(record["seconds"]),
        "prefill": float(record["prefill"]),
        "decode": float(record["seconds"]) - record["prefill"],
        "contended": record.get("contended", False),
        **{key: _sum(parts, key) for key in (*COUNTERS, "overlap")},
        "reached": sum(reached) if reached else None,
        **{phase: spent.get(phase) for phase in PHASES},
    }


def _sum(parts: list[dict[str, Any]], key: str) -> float | None:
    values = [row[key] for row in parts if key in row]
    return sum(values) if values else None


def _rows(kept: Kept) -> Iterator[dict[str, Any]]:
    cells = {cell["id"]: cell for cell in kept.manifest["cells"]}
    about = {
        name: {"kind": cell.get("kind"), "choices": json.dumps(cell["choices"])}
        for name, cell in cells.items()
    }
    for record in kept.records():
        shared = {key: record[key] for key in (*RUN, "seconds", "prefill")}
        shared |= {"contended": record.get("contended", False), **about[record["cell"]]}
        for row in record["rows"]:
            own = {key: row.get(key) for key in ROW_COLUMNS if key not in shared}
            named = str(kept.prompts[row["prompt"]].get("id", row["prompt"]))
            yield {**shared, **own, "prompt_id": named, "tokens": len(row["ids"])}


def _schema(pa: Any) -> Any:
    text, whole, real = pa.string(), pa.int64(), pa.float64()
    lists = dict.fromkeys(("ids", "reached_at", "accepted_at"), pa.list_(whole))
    lists["by_round"] = pa.list_(pa.list_(whole))
    texts = dict.fromkeys(("cell", "group", "kind", "choices", "prompt_id", "finish"), text)
    reals = dict.fromkeys(("seconds", "prefill", "overlap"), real)
    kinds = {**lists, **texts, **reals, "contended": pa.bool_()}
    return pa.schema([(name, kinds.get(name, whole)) for name in ROW_COLUMNS])


def _pandas() -> Any:
    return _module("pandas")


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        cause = " ".join(str(error).split()).rstrip(".")
        raise ConfigError(
            f"tables need {name.partition('.')[0]}, which cannot be imported ({cause}); "
            "pip install 'foredraft[bench]' brings it."
        ) from error
