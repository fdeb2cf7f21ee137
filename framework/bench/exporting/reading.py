"""Which configuration is exported: a preset's, or that of a cell of a sweep or a race."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...config import as_dict, compose
from ...errors import ConfigError, InputError, near_match
from ...strict_json import read_object
from ..disk import read_whole
from ..folder import check_own
from ..kept import Kept
from ..paging import summary
from ..store import Store
from ..tuning import OVER
from ..tuning_preset import GROUP

NOTHING = {"drafter": {"name": "none"}, "policy": {"name": "fixed", "gamma": 0}}


@dataclass(frozen=True)
class Chosen:
    """What is exported.

    Args:
        config: all of it as plain values.
        drafted: tokens per round that were drafted on average, where it was measured.
        says: a sentence on why this one.
    """

    config: dict[str, Any]
    drafted: int | None
    says: str


def chosen(source: str, cell: str | None = None) -> Chosen:
    """The configuration that a path stands for.

    Args:
        source: a preset's YAML file, or a folder of ``foredraft tune`` or ``bench``.
        cell: an id in the folder; None: the winner.

    Raises:
        ForedraftError: there is none, or nobody won.
    """
    path = Path(source).expanduser()
    if path.suffix == ".yaml":
        if cell is not None:
            raise ConfigError(f"cell={cell} has no effect with {source}, which is one preset.")
        return Chosen(_preset(path), None, f"the preset {path.name}")
    store = Store.open(path)
    name, says = (cell, "as asked") if cell is not None else _winner(store)
    if name is None:
        return Chosen({**store.cells[0]["config"], **NOTHING}, None, says)
    configs = {one["id"]: one["config"] for one in store.cells}
    if name not in configs:
        hint = near_match(name, list(configs))
        raise ConfigError(f"{source} has no cell {name!r}; {hint}cells: {', '.join(configs)}.")
    return Chosen(configs[name], _drafted(store, name), f"{name}: {says}")


def _preset(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"{path} is no file; give a preset's YAML file or a folder of a sweep.")
    if path.parent.name == GROUP:
        return as_dict(compose([f"{GROUP}={path.stem}"], path.parent.parent))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, GROUP)
        place.mkdir()
        Path(place, "preset_to_export.yaml").write_bytes(read_whole(path))
        return as_dict(compose([f"{GROUP}=preset_to_export"], folder))


def _winner(store: Kept) -> tuple[str | None, str]:
    """Of a race its answer; of a sweep the cell that won on the half it was not chosen on."""
    path = store.folder / OVER
    check_own(store.folder, path)
    if path.exists():
        answer = read_object(read_whole(path), str(path)).get("answer")
        if isinstance(answer, dict) and {"speculate", "cell", "says"} <= answer.keys():
            return (str(answer["cell"]) if answer["speculate"] else None), str(answer["says"])
        raise InputError(
            f"the race in {store.folder} has no answer yet; go on with it, or give cell=ID."
        )
    winners = summary(store).winners
    if len(winners) != 1:
        raise ConfigError(
            f"{store.folder} has {len(winners)} winners, one for each setting; give cell=ID of one of "
            f"{', '.join(cell['id'] for cell in store.cells if cell['kind'] == 'engine')}."
        )
    (winner,) = winners.values()
    says = f"{winner.measured.text()} times plain decoding where it was not chosen: {winner.advice}"
    return (winner.cell if winner.advice == "speculate" else None), f"{winner.cell}, {says}"


def _drafted(store: Kept, cell: str) -> int | None:
    rows = [row for r in store.records() if r["cell"] == cell for row in r["rows"]]
    rounds = sum(row.get("rounds", 0) for row in rows)
    return round(sum(row.get("drafted", 0) for row in rows) / rounds) if rounds else None
