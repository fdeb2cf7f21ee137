"""A small sweep for the tests of its folder: two cells, three units, two repeats."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CELLS = ("drafter=ngram,policy.gamma=3", "plain")
PROMPTS = [
    {"index": i, "id": f"q{i}", "group": g, "form": "prompt", "content": f"Question {i}?"}
    for i, g in enumerate(("qa", "qa", "math", "math"))
]
UNITS: list[dict[str, Any]] = [
    {"index": 0, "group": "qa", "prompts": [0, 1], "batch_size": 2},
    {"index": 1, "group": "math", "prompts": [2], "batch_size": 2},
    {"index": 2, "group": "math", "prompts": [3], "batch_size": 2},
]
PLAN = [(cell, unit, repeat) for repeat in range(2) for unit in range(3) for cell in CELLS]


def cell(name: str, **config: Any) -> dict[str, Any]:
    """A cell as it is planned."""
    plain = name == "plain"
    parts = {"target": "table", "drafter": "none", "verifier": "token", "policy": "fixed"}
    whole: dict[str, Any] = {kind: {"name": part} for kind, part in parts.items()}
    whole["policy"]["gamma"], whole["target"]["order"] = 3, 1
    whole |= {"sampling": {"temperature": 0.0, "draft": "temperature"}, "max_new_tokens": 128}
    whole |= {"runtime": {"batch_size": 2}, **config}
    return {
        "id": name,
        "choices": {} if plain else {"drafter": "ngram", "policy.gamma": 3},
        "overrides": ["drafter=none"] if plain else ["drafter=ngram", "policy.gamma=3"],
        "config": whole,
        "kind": "plain" if plain else "engine",
        "baseline": "" if plain else "plain",
        "lossless": True,
    }


def manifest(**changed: Any) -> dict[str, Any]:
    """What ``Store.create`` takes."""
    return {
        "command": "foredraft bench grid.drafter=[ngram]",
        "started": "2026-01-02T03:04:05+00:00",
        "versions": {"foredraft": "0.1.0", "torch": "2.13.0", "transformers": "5.24.0"},
        "hardware": {"cpu": "a CPU", "cores": 2, "threads": 1, "device": "cpu", "memory_gib": 8.0},
        "commit": None,
        "options": {"repeats": 2, "minutes": None, "dir": "a"},
        "task": {"source": "own", "groups": ["qa", "math"]},
        "cells": [cell(name) for name in CELLS],
        "units": UNITS,
        "prompts": PROMPTS,
        **changed,
    }


def record(name: str, unit: int, repeat: int, ids: int = 3, **changed: Any) -> dict[str, Any]:
    """A run, the same whenever it is asked for."""
    rows = [_row(name, prompt, ids) for prompt in UNITS[unit]["prompts"]]
    return {
        "cell": name,
        "unit": unit,
        "repeat": repeat,
        "order": PLAN.index((name, unit, repeat)),
        "group": UNITS[unit]["group"],
        "started": 1.5e9,
        "seconds": 0.5 + unit,
        "prefill": 0.125,
        "time": {"draft": 0.1, "verify": 0.2, "sampling": 0.05, "other": 0.0},
        "contended": False,
        "rows": rows,
        **changed,
    }


def _row(name: str, prompt: int, ids: int) -> dict[str, Any]:
    row: dict[str, Any] = {"prompt": prompt, "ids": [prompt + i for i in range(ids)]}
    if name == "plain":
        return row
    counts = {"finish": "length", "rounds": ids - 1, "drafted": 6, "accepted": 1, "emitted": ids}
    return {**row, **counts, "reached_at": [2, 1], "accepted_at": [1, 0], "overlap": 0.75}


@contextmanager
def as_nobody(folder: Path) -> Iterator[None]:
    """The block's rights are those of nobody, because permissions do not bind root; afterwards the
    folder can be removed again."""
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)
