"""What observers hear: records of a run, its rounds and its requests. Imports no torch.

Everything in a record is plain and on the host. ``listening.py`` makes and delivers them.
"""

from __future__ import annotations

import platform
import time
import uuid
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .records import RowOutcome

PACKAGES = ("foredraft", "torch", "transformers")
# How a run ends: to its end; by Ctrl-C; by an error; by a caller who wanted no more of it.
ENDS = DONE, INTERRUPTED, FAILED, CLOSED = "done", "interrupted", "failed", "closed"


@dataclass(frozen=True)
class RunRecord:
    """A run as it begins.

    Args:
        run: its id, unique.
        parts: the name of target, drafter, verifier and policy.
        lossless: whether the verifier says that it keeps the target's law.
        config: everything that the answers depend on, as plain values; empty for an engine that
            was built from objects.
        seed: of requests that have none of their own; None draws one for each.
        versions: of foredraft, torch, transformers and python.
        requests: how many answers are to come, or None.
        started: seconds since 1970, UTC.
    """

    run: str
    parts: dict[str, str]
    lossless: bool
    config: dict[str, Any]
    seed: int | None
    versions: dict[str, str]
    requests: int | None
    started: float


@dataclass(frozen=True)
class RoundRecord:
    """A round after it was committed.

    Args:
        run: the run's id.
        batch: which batch of the run it belongs to, from 0.
        index: which round of that batch it is, from 0.
        requests: the number, in the run, of each row's request (``RequestRecord.number``).
        rows: what each row drafted, accepted and emitted.
        seconds: wall time by phase.
    """

    run: str
    batch: int
    index: int
    requests: tuple[int, ...]
    rows: tuple[RowOutcome, ...]
    seconds: dict[str, float]


@dataclass(frozen=True)
class RequestRecord:
    """An answer that has ended. What the JSON of an answer has too is called as it is there.

    Args:
        run: the run's id.
        number: the request's number in its run, from 0, in the order they began.
        index: the prompt's number, which keys its noise.
        sample: which of the prompt's samples it is.
        seed: of its noise.
        prompt_tokens: the length of its prompt.
        token_ids: what was emitted.
        text: the ids decoded; None without a tokenizer.
        finish_reason: why it ended.
        metrics: its counters, as ``Metrics.as_dict`` gives them.
    """

    run: str
    number: int
    index: int
    sample: int
    seed: int | None
    prompt_tokens: int
    token_ids: tuple[int, ...]
    text: str | None
    finish_reason: str
    metrics: dict[str, Any]


@dataclass(frozen=True)
class RunSummary:
    """A run as it ends.

    Args:
        run: its id.
        ended: one of ``ENDS``.
        error: the error that ended it, else empty.
        requests: answers that ended.
        unfinished: answers that had begun and did not end.
        metrics: the sum over all of them, as ``Metrics.as_dict`` gives it.
        seconds: wall time since the run began.
    """

    run: str
    ended: str
    error: str
    requests: int
    unfinished: int
    metrics: dict[str, Any]
    seconds: float

    @property
    def tokens_per_second(self) -> float | None:
        """Emitted tokens over wall time."""
        return self.metrics["emitted"] / self.seconds if self.seconds > 0 else None


def run_record(
    parts: dict[str, str],
    lossless: bool,
    config: dict[str, Any],
    seed: int | None,
    total: int | None,
) -> RunRecord:
    """The record of a run that begins now."""
    from .cli.results import kept_config

    # Of observers, because they change no answer, and an address in them may hold a password.
    plain = {k: v for k, v in kept_config(config).items() if k not in ("observers", "observer")}
    run, now = uuid.uuid4().hex, time.time()
    return RunRecord(run, parts, lossless, plain, seed, versions(), total, now)


def versions() -> dict[str, str]:
    """Of what the figures may depend on."""
    return {**{name: _version(name) for name in PACKAGES}, "python": platform.python_version()}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"
