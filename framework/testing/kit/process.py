"""What a part shares with the whole process: the global random generators, memory and its collector."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

THRESHOLDS = (50_000, 20, 100)  # of the collector's three generations


def generator_states() -> dict[str, Any]:
    """The states of the global random generators."""
    numpy = np.random.get_state()  # noqa: NPY002 - the global one is what is watched
    return {"random": random.getstate(), "numpy": numpy, "torch": torch.get_rng_state()}


def moved(before: dict[str, Any]) -> list[str]:
    """Names of the generators that are not in the state that they were in."""
    return [name for name, state in generator_states().items() if not _same(state, before[name])]


@contextmanager
def seeded_generators(seed: int) -> Iterator[dict[str, Any]]:
    """The generators begun at ``seed``, and put back afterwards; gives their states."""
    before = generator_states()
    try:
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        yield generator_states()
    finally:
        random.setstate(before["random"])
        np.random.set_state(before["numpy"])  # noqa: NPY002
        torch.set_rng_state(before["torch"])


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return all(_same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return bool(np.array_equal(one, other))


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Lets many more objects be made between two collections: each of them walks through all that
    torch and transformers hold, which takes a third of the time where thousands of answers are drawn.
    """
    before = gc.get_threshold()
    if before[0]:  # 0 is off
        gc.set_threshold(*(max(pair) for pair in zip(before, THRESHOLDS, strict=True)))
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def only_new_objects() -> Iterator[None]:
    """Spares the collector all that was there before: counting is then a matter of milliseconds."""
    frozen = gc.get_freeze_count() > 0
    gc.collect()
    if not frozen:
        gc.freeze()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()


def live_tensors() -> tuple[int, int]:
    """Tensors that anything still refers to, and their bytes; storage that several share counts
    once."""
    gc.collect()
    # By its type: asking some lazy objects for their class imports them, or warns.
    found = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
    storages = {}
    for one in found:
        if one.layout == torch.strided:
            storage = one.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return len(found), sum(storages.values())
