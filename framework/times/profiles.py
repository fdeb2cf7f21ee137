"""Step times on demand: measured once, kept on disk with what they were measured on."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError
from ..fetch import cache_folder
from ..interfaces import Drafter, Target
from ..linear import Int8Linear
from ..observing import versions
from ..shipped import place
from .profiling import Plan, measure
from .steps import StepTimes
from .table import BatchTimes, TimeTable

CACHED, REFRESH = "cached", "refresh"
WHEN = "when"  # the one thing about a table that makes it no other table


class Profile:
    """Gives the step times of a target with a drafter for batches of a size, measuring what is not
    known yet: a size once, and batches of one row, to which rows that end shrink it.

    Args:
        about: what identifies target and drafter, as plain values; None keeps nothing on disk.
        mode: ``refresh`` measures anew what is on disk.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter,
        about: Mapping[str, Any] | None = None,
        mode: str = CACHED,
        plan: Plan | None = None,
    ) -> None:
        self.target, self.drafter, self.mode, self.plan = target, drafter, mode, plan or Plan()
        self.about = dict(about) if about is not None else None
        self._known: dict[int, BatchTimes] = {}

    def __call__(self, batch: int) -> TimeTable:
        """The table, of batch sizes 1 and ``batch``."""
        return TimeTable([self._size(size) for size in sorted({1, batch})], self.described())

    def described(self) -> dict[str, Any]:
        """What the times depend on, and nothing else."""
        return {**(self.about or {}), **machine(self.target), "plan": _plain(self.plan)}

    def _size(self, batch: int) -> BatchTimes:
        if batch not in self._known:
            path = None if self.about is None else self._path(batch)
            found = None if path is None or self.mode == REFRESH else self._read(path, batch)
            self._known[batch] = found or self._measured(path, batch)
        return self._known[batch]

    def _path(self, batch: int) -> Path:
        text = json.dumps([self.described(), batch], sort_keys=True)
        name = hashlib.sha256(text.encode()).hexdigest()[:32]
        return cache_folder() / "times" / f"{name}.json"

    def _read(self, path: Path, batch: int) -> BatchTimes | None:
        """What is on disk, or None: a damaged file is as good as none."""
        try:
            table = TimeTable.load(path)
        except InputError:
            return None
        about = {key: value for key, value in table.about.items() if key != WHEN}
        same = about == json.loads(json.dumps(self.described()))
        return next((one for one in table.sizes if same and one.batch == batch), None)

    def _measured(self, path: Path | None, batch: int) -> BatchTimes:
        size = measure(self.target, self.drafter, batch, self.plan)
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                TimeTable([size], {**self.described(), WHEN: moment()}).save(path)
            except (OSError, InputError) as error:
                warnings.warn(f"step times are not kept: {error}", stacklevel=2)
        return size


def about_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies target and drafter in a config's record (``config.as_dict``)."""
    target = config["target"]
    return {"target": {**target, **_stamp(target.get("model"))}, "drafter": config["drafter"]}


def times_from(
    source: str, target: Target, drafter: Drafter, config: Mapping[str, Any], named: bool
) -> Callable[[int], StepTimes]:
    """What ``runtime.times`` asks for.

    Args:
        named: the target is the config's; one that a caller brought has no name to keep times by.

    Raises:
        InputError: a file that is no table.
    """
    if source in (CACHED, REFRESH):
        return Profile(target, drafter, about_of(config) if named else None, source)
    table = TimeTable.load(source)
    return lambda batch: table


def machine(target: Target) -> dict[str, Any]:
    """What else times depend on."""
    model = getattr(target, "model", None)
    dtype = getattr(model, "dtype", None)
    cuda = target.device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(target.device) if cuda else _processor(),
        "dtype": None if dtype is None else str(dtype).removeprefix("torch.") + _rounded(model),
        "attention": getattr(getattr(model, "config", None), "_attn_implementation", None),
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }


def _rounded(model: Any) -> str:
    """Of a model with int8 weights, whose dtype is what it computes in."""
    few = any(isinstance(part, Int8Linear) for part in model.modules())
    return " of int8" if few else ""


def moment() -> str:
    """Now, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _plain(plan: Plan) -> dict[str, Any]:
    lists = {key: list(getattr(plan, key)) for key in ("contexts", "widths", "gammas")}
    return {**lists, "repeats": plan.repeats, "seconds": plan.seconds}


def _stamp(model: object) -> dict[str, Any]:
    """Of weights in a folder: their sizes and dates, for other weights may come to lie there."""
    folder = Path(place(str(model))) if model else None
    if folder is None or not folder.is_dir():
        return {}
    files = sorted(folder.glob("*.safetensors"))
    return {"files": [[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in files]}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        name = next(
            line.partition(":")[2].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, UnicodeError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"
