"""Sweeps that never ran: manifests and records with speed-ups that are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Manifest = dict[str, Any]
Record = dict[str, Any]

GROUPS = ("math", "code")
PREFILL = 0.5


def manifest(cells: Sequence[Mapping[str, Any]], units: int) -> Manifest:
    """As ``run.json`` holds it; units of one prompt, the groups taking turns."""
    places = [
        {"index": i, "group": GROUPS[i % 2], "prompts": [i], "batch_size": 1} for i in range(units)
    ]
    blocks: dict[str, Any] = {key: {} for key in ("versions", "hardware", "options", "task")}
    prompts = {"count": units, "sha256": "a"}
    return {**blocks, "commit": "1", "cells": list(cells), "units": places, "prompts": prompts}


def cell(name: str, kind: str = "engine", baseline: str = "plain", **choices: Any) -> Manifest:
    """One cell of a manifest."""
    config = {"drafter": {"name": name if kind == "engine" else "none"}}
    named = choices or ({"drafter": name} if kind == "engine" else {})
    loop = "" if name == "plain" else baseline
    return {
        **{"id": name, "kind": kind, "baseline": loop, "lossless": True},
        **{"choices": named, "config": config, "overrides": []},
    }


def record(
    name: str,
    unit: int,
    repeat: int = 0,
    *,
    decode: float,
    tokens: int = 64,
    prefill: float = PREFILL,
    rounds: int | None = None,
    gamma: int = 0,
    time: Mapping[str, float] | None = None,
) -> Record:
    """One run of one prompt. ``rounds`` None is a run of ``generate``, which tells ids alone."""
    row: Record = {"prompt": unit, "ids": list(range(tokens))}
    if rounds is not None:
        row |= counters(tokens, rounds, gamma)
    return {
        **{"cell": name, "unit": unit, "repeat": repeat, "group": GROUPS[unit % 2]},
        **{"seconds": prefill + decode, "prefill": prefill, "time": dict(time or {})},
        **{"contended": False, "rows": [row]},
    }


def counters(tokens: int, rounds: int, gamma: int) -> Record:
    """Of an answer that accepted what its tokens say, all at the first position."""
    accepted = min(tokens - rounds, rounds)
    reached = rounds if gamma else 0
    return {
        **{"rounds": rounds, "drafted": gamma * rounds, "accepted": tokens - rounds},
        **{"emitted": tokens, "overlap": 0.9 * reached, "finish": "length"},
        **{"reached_at": [reached] if gamma else [], "accepted_at": [accepted] if gamma else []},
    }


def sweep(
    speedups: Mapping[str, float],
    units: int,
    *,
    repeats: int = 3,
    noise: float = 0.05,
    unit_noise: float = 0.1,
    generate: float | None = None,
    seed: int = 0,
) -> tuple[Manifest, list[Record]]:
    """A sweep over plain decoding, plain again, and cells with these speed-ups.

    Args:
        noise: standard deviation of the log time of one run.
        unit_noise: that of a unit's own log speed-up, and a third of that of its own speed.
        generate: the speed of ``generate`` as a factor of plain decoding's; None leaves it out.
    """
    kinds = {"plain": "plain", "again": "plain"} | ({"generate": "generate"} if generate else {})
    truth = {"plain": 1.0, "again": 1.0, **({"generate": generate} if generate else {}), **speedups}
    rng = np.random.default_rng(seed)
    pace = 0.02 * np.exp(rng.normal(0, 3 * unit_noise, units))
    records = []
    for name, factor in truth.items():
        own = np.exp(rng.normal(0, unit_noise, units)) if name in speedups else np.ones(units)
        for unit in range(units):
            for repeat in range(repeats):
                second = pace[unit] / factor * own[unit] * np.exp(rng.normal(0, noise))
                records.append(_run(name, unit, repeat, float(second), kinds.get(name, "engine")))
    cells = [cell(name, kinds.get(name, "engine")) for name in truth]
    return manifest(cells, units), records


def _run(name: str, unit: int, repeat: int, second: float, kind: str) -> Record:
    if kind == "generate":
        return record(name, unit, repeat, decode=63 * second)
    rounds, gamma = (32, 3) if kind == "engine" else (64, 0)
    return record(name, unit, repeat, decode=64 * second, rounds=rounds, gamma=gamma)
