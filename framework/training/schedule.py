"""The learning rate, step by step. Imports no torch."""

from __future__ import annotations

from math import cos, pi

from .options import COSINE, LoopOptions

FLOOR = 0.1  # of the highest rate, where the cosine ends


def rate(step: int, options: LoopOptions) -> float:
    """The learning rate of a step, the first being 0.

    The cosine is that of Loshchilov and Hutter 2017 (arXiv:1608.03983); constant and then straight to 0,
    Hägele et al. 2024 (arXiv:2405.18392).
    """
    if step < options.warmup:
        return options.lr * (step + 1) / options.warmup
    if options.schedule == COSINE:
        done = (step - options.warmup) / max(1, options.steps - options.warmup)
        return options.lr * (FLOOR + (1 - FLOOR) * (1 + cos(pi * min(done, 1.0))) / 2)
    left = (options.steps - step) / max(1.0, options.decay * options.steps)
    return options.lr * min(1.0, max(0.0, left))
