"""How functions are compiled, and with how many threads they run."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numba
import numpy as np
import torch
from numba import njit, types
from numba.extending import intrinsic

SUMS = {"reassoc", "contract", "nsz", "arcp"}
"""Sums in any order; infinities and NaN stay what they are."""
ZERO, ONE = np.float32(0), np.float32(1)


def compiled(parallel: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compiles at the first call, or reads what an earlier process compiled, where a folder for that can
    be written."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        options = {
            "fastmath": SUMS, "nogil": True, "error_model": "numpy", "parallel": parallel,
        }  # fmt: skip
        try:
            made: Callable[..., Any] = njit(cache=True, **options)(function)
        except RuntimeError:  # numba has no place for its cache
            made = njit(**options)(function)
        return made

    return decorate


@intrinsic  # type: ignore[untyped-decorator]
def pointer(typing: Any, address: Any, like: Any) -> Any:
    """In compiled code: an address as a pointer to what the array ``like`` is of."""
    made = types.CPointer(like.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(made))

    return made(address, like), generate


def threads() -> int:
    """As many as torch has, if numba can share them out."""
    wanted = min(torch.get_num_threads(), int(numba.config.NUMBA_NUM_THREADS))
    if wanted > 1 and _SHARES:
        numba.set_num_threads(wanted)
        return wanted
    return 1


def _shares() -> bool:
    """Whether numba's threads may be started from any thread: its own pool would abort the process."""
    try:
        import_module("numba.np.ufunc.omppool")
    except ImportError:
        return False
    return bool(numba.config.THREADING_LAYER in ("default", "omp", "threadsafe"))


def _start() -> bool:
    """Starts numba's threads, which sets the number of torch's as well where both have the same OpenMP."""
    before = torch.get_num_threads()
    numba.get_num_threads()
    torch.set_num_threads(before)
    return _shares()


_SHARES = _start()
