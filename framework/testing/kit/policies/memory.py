"""The check of a long run: memory stays where it is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from ....decoding import Batch, Parts, decode
from ....requests import Answer
from ..checks import check, fail
from ..process import live_tensors, only_new_objects
from ..subject import Subject
from .runs import refusals
from .stage import Stage, requests

ROUNDS, RUNS, TIMES = 60, 6, 3


@check(
    "policy",
    "The tensors that are alive, and their bytes, do not grow with the rounds of a run or with the "
    "number of runs.",
    "Records that are kept for ever, with the logits in them, fill the device in a long answer.",
)
def memory_growth(subject: Subject) -> None:
    # A drafter that is always wrong and drafts one token: every round takes the same room.
    parts = Stage(subject.seed, "wrong", most=1).parts(subject.build(), subject.name)
    with refusals(), only_new_objects():
        _judge(_in_a_run(parts, subject.seed), ROUNDS, "rounds")
        _judge([_after_runs(parts, subject.seed) for _ in range(TIMES)], RUNS, "runs")


def _in_a_run(parts: Parts, seed: int) -> list[tuple[int, int]]:
    """What is alive after ``ROUNDS`` rounds, and after as many again."""
    seen = []
    with torch.inference_mode():
        batch = Batch(parts, [Answer(requests(1, 4 * ROUNDS * TIMES, seed=seed)[0])])
        for _ in range(TIMES):
            for _ in range(ROUNDS):
                batch.step()
            seen.append(live_tensors())
    return seen


def _after_runs(parts: Parts, seed: int) -> tuple[int, int]:
    for _ in range(RUNS):
        for _ in decode(parts, [Answer(one) for one in requests(2, 6, seed=seed)]):
            pass
    return live_tensors()


def _judge(seen: Sequence[tuple[int, int]], times: int, what: str) -> None:
    """Growth in each of the intervals is a leak; in one of them, a table that fills."""
    tensors = min(later[0] - earlier[0] for earlier, later in pairwise(seen))
    size = min(later[1] - earlier[1] for earlier, later in pairwise(seen))
    if tensors >= times / 2 or size >= 4 * times:
        fail(
            f"every {times} {what} leave {tensors} more tensors with {size} more bytes behind",
            after=[times * (index + 1) for index in range(len(seen))],
            tensors=[count for count, _ in seen],
            bytes=[amount for _, amount in seen],
        )
