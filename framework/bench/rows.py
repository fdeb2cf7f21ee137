"""A comparison's rows: every figure is a ratio against a side measured in the same run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .measure import Sample, verdict, worst_difference

if TYPE_CHECKING:
    from ..engine import Engine


def row(
    name: str,
    engine: Engine | None,
    sample: Sample,
    plain: Sample,
    generate: Sample,
    prompts: list[list[int]],
    model: Any,
) -> dict[str, Any]:
    """One row.

    ``x_plain`` and ``x_generate`` compare decoding alone; ``tokens_per_second`` is of whole calls.
    """
    metrics = sample.metrics
    return {
        "side": name,
        "tau": metrics.tau if metrics else None,
        "accept_rate": metrics.accept_rate if metrics else None,
        "alpha": metrics.alpha if metrics else None,
        "c": cost_ratio(sample, plain),
        "tokens_per_second": sample.rate,
        "x_plain": sample.decode_rate / plain.decode_rate,
        "x_generate": sample.decode_rate / generate.decode_rate,
        "memory_mib": extra_bytes(engine, prompts, sample) / 2**20,
        "output": verdict(worst_difference(model, prompts, sample, plain)),
    }


def cost_ratio(sample: Sample, plain: Sample) -> float | None:
    """c: seconds per drafted token over seconds per plain target step (Leviathan et al. 2023, 3.4)."""
    metrics, base = sample.metrics, plain.metrics
    if not metrics or not metrics.drafted or not base:
        return None
    return (metrics.seconds["draft"] / metrics.drafted) / (base.seconds["verify"] / base.rounds)


def extra_bytes(engine: Engine | None, prompts: list[list[int]], sample: Sample) -> int:
    """Bytes a drafter adds to the target: weights of its own and its cache for the longest row."""
    if engine is None:
        return 0
    longest = max(len(p) + len(t) for p, t in zip(prompts, sample.tokens, strict=True))
    drafter = engine.parts.drafter
    return drafter.weight_bytes() + drafter.session_bytes(1, longest)
