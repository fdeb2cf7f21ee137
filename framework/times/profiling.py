"""Measures what steps cost: a target's forwards by width and context, and drafting by gamma.

Forwards are those that a run makes, on sessions of the real target: one does not move the lengths,
so it can be made again and again. Drafts are made by the real loop over a short text. Widths, and
gammas, take turns, so that whatever else the machine does meets them all alike; of each the median
counts. On a CUDA device both ends of what is timed wait for the device.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from ...verifiers.greedy import GreedyVerifier
from ..clock import hidden, now
from ..context import Context
from ..decoding import Batch, Parts
from ..errors import ForedraftError
from ..interfaces import Drafter, GammaPolicy, PolicySession, Target
from ..params import SamplingParams
from ..records import Draft
from ..requests import Answer, Request
from .table import BatchTimes

CONTEXTS, WIDTHS, GAMMAS = (64, 512), (1, 2, 3, 5, 9, 17), (1, 2, 4, 8)
TARGET_SHARE = 0.65  # of the time allowed; the rest is for drafting
PROMPT = 48
TEXT = (
    "The keeper of the lighthouse wrote down the weather every morning. On the first day the wind "
    "was light and the sea was calm. On the second day the wind was strong and the sea was rough. "
    "On the third day the wind was light again, and the keeper of the lighthouse wrote: the sea is "
    "calm. "
)


@dataclass(frozen=True)
class Plan:
    """What is measured, and how often.

    Args:
        contexts, widths, gammas: ascending; those that the target's context has no room for are
            left out.
        repeats: of each; fewer if time runs out, but one.
        seconds: in which all should be done, per batch size; a further context is begun only if
            it looks like fitting.
    """

    contexts: Sequence[int] = CONTEXTS
    widths: Sequence[int] = WIDTHS
    gammas: Sequence[int] = GAMMAS
    repeats: int = 5
    seconds: float = 8.0


def measure(
    target: Target, drafter: Drafter, batch: int = 1, plan: Plan | None = None
) -> BatchTimes:
    """Measures one batch size. What it spends is on nobody's clock (``clock.hidden``).

    Args:
        drafter: of any kind; what it takes to draft nothing counts as well.
    """
    plan, begin = plan or Plan(), now()
    with hidden(), torch.inference_mode():
        contexts, lines = _steps(target, batch, plan, begin + TARGET_SHARE * plan.seconds)
        draft = _drafts(target, drafter, batch, plan, begin + plan.seconds)
    widths = _widths(target, plan)
    gammas = tuple(sorted(draft))
    return BatchTimes(
        batch, contexts, widths, lines, gammas, tuple(draft[gamma] for gamma in gammas)
    )


def wait(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# --- the target's steps ---------------------------------------------------------------------


def _widths(target: Target, plan: Plan) -> tuple[int, ...]:
    most = target.max_context or max(plan.widths)
    return (1, *(width for width in plan.widths if 1 < width <= most))


def _steps(
    target: Target, batch: int, plan: Plan, until: float
) -> tuple[tuple[int, ...], tuple[tuple[float, ...], ...]]:
    """Contexts that were reached, and of each the seconds by width."""
    widths = _widths(target, plan)
    room = (target.max_context or max(plan.contexts) + widths[-1]) - widths[-1]
    contexts = sorted({min(context, room) for context in plan.contexts})
    lines: list[tuple[float, ...]] = []
    for context in contexts:
        begin = now()
        part = begin + (until - begin) / (len(contexts) - len(lines))
        lines.append(_by_width(target, batch, context, widths, plan.repeats, part))
        following = contexts[len(lines) : len(lines) + 1]
        # Taking in a longer context costs the more.
        due = (now() - begin) * (1 + following[0] / (context + 64)) / 2 if following else 0
        if now() + due > until:
            break
    return tuple(contexts[: len(lines)]), tuple(lines)


def _by_width(
    target: Target, batch: int, context: int, widths: Sequence[int], repeats: int, until: float
) -> tuple[float, ...]:
    session = target.start(batch, context + widths[-1] + 1)
    session.prefill(_rows(target, batch, context))
    inputs = [torch.tensor(_rows(target, batch, width), device=target.device) for width in widths]

    def step(tokens: torch.Tensor) -> None:
        session.forward(tokens, [tokens.shape[1]] * batch)

    for tokens in inputs:  # the first time is never like the others
        step(tokens)
    found: list[list[float]] = [[] for _ in widths]
    for done in range(repeats):
        if done and now() > until:
            break
        for seconds, tokens in zip(found, inputs, strict=True):
            seconds.append(_timed(lambda tokens=tokens: step(tokens), target.device))  # type: ignore[misc]
    return tuple(median(seconds) for seconds in found)


def _timed(call: Callable[[], object], device: torch.device) -> float:
    wait(device)
    begin = now()
    call()
    wait(device)
    return max(now() - begin, 1e-9)


def _rows(target: Target, batch: int, length: int) -> list[list[int]]:
    """Ids of a text with repetitions, each row from another place on."""
    ids = [token for token in _encoded(target.tokenizer) if 0 <= token < target.vocab_size] or [0]
    return [[ids[(row + at) % len(ids)] for at in range(length)] for row in range(batch)]


def _encoded(tokenizer: Any) -> list[int]:
    try:
        return list(tokenizer.encode(TEXT))
    except (AttributeError, ForedraftError):  # none, or one of numbers
        return list(range(7))


# --- drafting -------------------------------------------------------------------------------


class _Cycle(GammaPolicy):
    """Gammas in turn."""

    def __init__(self, gammas: Sequence[int]) -> None:
        self.gammas = gammas

    def start(self, context: Context) -> PolicySession:
        return _CycleSession(context, self.gammas)


class _CycleSession(PolicySession):
    def gammas(self) -> list[int]:
        return [self.config[self.context.round_index % len(self.config)]] * self.context.rows


class _TimedBatch(Batch):
    """The loop, with a clock around its drafting.

    Attributes:
        spent: the gamma of each round, and the seconds of its drafting.
    """

    def __init__(self, parts: Parts, answers: list[Answer]) -> None:
        self.spent: list[tuple[int, float]] = []
        super().__init__(parts, answers)

    def _draft(self, part: str, gammas: list[int]) -> Draft:
        drafts: list[Draft] = []
        draft = super()._draft
        seconds = _timed(lambda: drafts.append(draft(part, gammas)), self.context.device)
        self.spent.append((min(gammas), seconds))
        return drafts[0]


def _drafts(
    target: Target, drafter: Drafter, batch: int, plan: Plan, until: float
) -> dict[int, float]:
    """Seconds by gamma."""
    prompt = min(PROMPT, (target.max_context or PROMPT * 2) // 2)
    room = (target.max_context or 1 << 20) - prompt
    gammas = [gamma for gamma in plan.gammas if gamma < room]
    found: dict[int, list[float]] = defaultdict(list)
    begun, due = 0, len(gammas) * (plan.repeats + 1)
    while due > 0 and begun < plan.repeats + 1:  # again where answers ended early
        spent = _draft_once(target, drafter, _prompts(target, batch, prompt), gammas, due, until)
        warm = [] if begun else spent[: len(gammas)]
        for gamma, seconds in spent[len(warm) :] or spent:
            found[gamma].append(seconds)
        begun, due = begun + 1, due - len(spent)
        if now() > until:
            break
    return {gamma: median(seconds) for gamma, seconds in found.items() if gamma in gammas}


def _prompts(target: Target, batch: int, length: int) -> list[Request]:
    greedy = SamplingParams(temperature=0.0)
    rows = enumerate(_rows(target, batch, max(length, 1)))
    return [Request(row, None, greedy, seed=0, index=index) for index, row in rows]


def _draft_once(
    target: Target,
    drafter: Drafter,
    requests: list[Request],
    gammas: Sequence[int],
    rounds: int,
    until: float,
) -> list[tuple[int, float]]:
    """Gammas and seconds of a batch's rounds, as long as all of its rows are there."""
    names = dict.fromkeys(("target", "drafter", "verifier", "policy"), "that is measured")
    for request in requests:
        request.max_new_tokens = rounds * (max(gammas) + 1)
    parts = Parts(target, drafter, GreedyVerifier(), _Cycle(gammas), names)
    batch = _TimedBatch(parts, [Answer(request) for request in requests])
    while len(batch.answers) == len(requests) and len(batch.spent) < rounds:
        if len(batch.spent) >= 2 * len(gammas) and now() > until:
            break
        batch.step()
    return batch.spent
