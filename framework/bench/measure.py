"""One side of a comparison: run it, time it, keep what it said."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..engine import Engine
from ..metrics import Metrics, total
from ..records import Round
from ..requests import Answer


@dataclass
class Sample:
    """One run over some prompts.

    Args:
        seconds: wall time, prefill included.
        prefill: the part of it before decoding: until the prompt was taken in (ours), or until the
            first token was out (``generate``, whose prefill gives that token).
        tokens: the answers' ids, one list per prompt.
        by_prefill: tokens that came out with the prefill.
        metrics: the sum over prompts; None for a side that reports none.
        rounds: every round, for traces.
    """

    seconds: float
    tokens: list[list[int]]
    prefill: float = 0.0
    by_prefill: int = 0
    metrics: Metrics | None = None
    rounds: list[Round] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Emitted tokens."""
        return sum(map(len, self.tokens))

    @property
    def rate(self) -> float:
        """Tokens per second of wall time, prefill included."""
        return self.count / self.seconds

    @property
    def decode_rate(self) -> float:
        """Tokens per second of decoding alone."""
        return (self.count - self.by_prefill) / (self.seconds - self.prefill)


def run_engine(engine: Engine, prompts: Sequence[list[int]], **options: Any) -> Sample:
    """Answers prompts one by one (batch 1)."""
    answers: list[Answer] = []
    rounds: list[Round] = []
    begin = time.perf_counter()
    for index, prompt in enumerate(prompts):
        answer = Answer(engine.request(prompt, index, **options))
        rounds.extend(engine.run([answer]))
        answers.append(answer)
    seconds = time.perf_counter() - begin
    metrics = total(answer.metrics for answer in answers)
    ids = [answer.token_ids for answer in answers]
    return Sample(seconds, ids, metrics.seconds["prefill"], 0, metrics, rounds)


class _FirstToken:
    """A streamer for ``generate`` that only notes when the first tokens came out, and how many: its
    assisted loop lets go of all that the first round accepted at once."""

    def __init__(self) -> None:
        self.puts = self.tokens = 0
        self.at = 0.0

    def put(self, value: Any) -> None:
        """The first call brings the prompt, the second the first new tokens."""
        self.puts += 1
        if self.puts == 2:
            self.at, self.tokens = time.perf_counter(), value.numel()

    def end(self) -> None:
        """Nothing to do."""


@torch.inference_mode()
def run_generate(
    model: Any, prompts: Sequence[list[int]], max_new_tokens: int, **options: Any
) -> Sample:
    """Answers prompts one by one with transformers' own ``generate``, greedy."""
    tokens = []
    prefill, by_prefill = 0.0, 0
    begin = time.perf_counter()
    for prompt in prompts:
        first, called = _FirstToken(), time.perf_counter()
        ids = torch.tensor([prompt], device=model.device)
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            streamer=first,
            **options,
        )
        prefill += first.at - called
        by_prefill += min(first.tokens, out.shape[1] - len(prompt))
        tokens.append(out[0, len(prompt) :].tolist())
    return Sample(time.perf_counter() - begin, tokens, prefill, by_prefill)


@dataclass(frozen=True)
class Difference:
    """Where two greedy answers part, and how near the tie was."""

    prompt: int
    position: int
    ours: float
    theirs: float

    @property
    def gap(self) -> float:
        """The distance of the two tokens' logits; infinite where one answer just goes on."""
        return abs(self.ours - self.theirs)


def worst_difference(
    model: Any, prompts: Sequence[list[int]], one: Sample, other: Sample
) -> Difference | None:
    """Of all prompts' first differences the one with the widest gap; None when all are equal.

    A near-tie on one prompt must not hide a real difference on another.
    """
    pairs = enumerate(zip(one.tokens, other.tokens, strict=True))
    found = [_difference(model, prompts[index], index, *pair) for index, pair in pairs]
    return max((d for d in found if d), key=lambda d: d.gap, default=None)


@torch.inference_mode()
def _difference(
    model: Any, prompt: list[int], index: int, ours: list[int], theirs: list[int]
) -> Difference | None:
    """Where two answers to one prompt part, with the two logits of one plain forward there."""
    for position, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            ids = torch.tensor([[*prompt, *ours[:position]]], device=model.device)
            logits = model(input_ids=ids, use_cache=False)[0][0, -1].double()
            return Difference(index, position, float(logits[a]), float(logits[b]))
    if len(ours) != len(theirs):
        return Difference(index, min(len(ours), len(theirs)), float("inf"), 0.0)
    return None


def verdict(difference: Difference | None, tolerance: float = 1e-4) -> str:
    """``same``, a near-tie with its place and gap, or ``DIFFERENT``."""
    if difference is None:
        return "same"
    logits = f"{difference.ours:.6f} and {difference.theirs:.6f}, gap {difference.gap:.0e}"
    where = f"at token {difference.position} of prompt {difference.prompt}: {logits}"
    return f"near-tie {where}" if difference.gap < tolerance else f"DIFFERENT {where}"
