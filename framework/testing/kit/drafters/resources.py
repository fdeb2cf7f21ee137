"""What a drafter costs while it runs: memory that stays, and waits for the device."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from ....context import Context
from ....errors import ConfigError, InputError
from ....params import SamplingParams
from ..checks import NotApplicable, check, fail
from ..process import live_tensors, only_new_objects
from ..subject import Subject
from .lab import SAMPLED, Lab
from .scripts import pattern
from .spies import Journal, Watch
from .targets import model_target

LATE = 48  # rounds; the first look is after a quarter of them
SLACK = 2048  # bytes
ENDLESS = SamplingParams(temperature=1.0, min_new_tokens=100_000)


@check(
    "drafter",
    "Tensors grow with the text only, neither from round to round nor from run to run.",
    "A leak of some bytes per round ends a server after a day.",
)
def memory_growth(subject: Subject) -> None:
    lab = Lab(subject)
    with only_new_objects():
        _per_round(lab)
        _per_run(lab)


def _per_round(lab: Lab) -> None:
    """A long session may hold more than a short one by what a new session on the longer text holds
    more than one on the shorter."""
    limit = lab.target.max_context
    late = LATE if limit is None else min(LATE, (limit - 12) // 2)
    early = late // 4
    if late < 12:
        return
    sizes: dict[int, int] = {}
    texts: dict[int, list[list[int]]] = {}

    def look(index: int, tokens: list[list[int]]) -> None:
        if index in (early, late - 1):
            sizes[index], texts[index] = live_tensors()[1], [list(row) for row in tokens]

    prompts = lab.prompts(5, 8)
    lab.run(prompts, 2, pattern(0, 1), 2 * late, ENDLESS, rounds=late, keep=False,
            watch=_before_drafts(look))  # fmt: skip
    if len(sizes) < 2 or any(len(rows) < len(prompts) for rows in texts.values()):
        return  # a row has ended
    grown = sizes[late - 1] - sizes[early]
    ends = [len(prompt) + 2 * late for prompt in prompts]  # so that all caches are of one size
    fresh = [_opened_bytes(lab, texts[index], ends) for index in (early, late - 1)]
    if grown > max(fresh[1] - fresh[0], 0) * 2 + SLACK:
        fail(
            f"tensors grew by {grown} bytes from round {early} to round {late - 1}, where new sessions "
            f"on the two texts differ by {fresh[1] - fresh[0]}",
            prompts=prompts,
            gamma=2,
        )


def _before_drafts(look: Callable[[int, list[list[int]]], None]) -> Watch:
    def watch(
        journal: Journal, call: str, context: Context, argument: object
    ) -> Callable[[], None]:
        if call == "propose":
            look(context.round_index, context.tokens)
        return lambda: None

    return watch


def _opened_bytes(lab: Lab, texts: list[list[int]], ends: list[int]) -> int:
    """What is live while a session that has drafted once on these texts is open."""
    found: list[int] = []

    def look(index: int, tokens: list[list[int]]) -> None:
        if index == 1:
            found.append(live_tensors()[1])

    left = [end - len(text) for end, text in zip(ends, texts, strict=True)]
    lab.run(texts, 2, 0, left, ENDLESS, rounds=2, keep=False, watch=_before_drafts(look))
    return found[0] if found else 0


def _per_run(lab: Lab) -> None:
    prompts = lab.prompts(5, 8)
    sizes = []
    for count in (2, 10):
        for _ in range(count):
            lab.run(prompts, 2, pattern(0, 1), 8, SAMPLED, rounds=3, keep=False)
        sizes.append(live_tensors()[1])
    if sizes[1] - sizes[0] > SLACK:
        fail(f"tensors grew by {sizes[1] - sizes[0]} bytes in 10 runs", prompts=prompts, gamma=2)


@check(
    "drafter",
    "Drafting reads nothing from the device to the host, but for what the spec declares.",
    "Each such read waits for all the work before it, which is what speculation is to hide.",
    gpu=True,
)
def no_host_sync(subject: Subject) -> None:
    lab = _cuda_lab(subject)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            lab.run(lab.prompts(6, 9), 3, pattern(0, 1, 2), 12, watch=_reads(lab, seen))
        finally:
            torch.cuda.set_sync_debug_mode("default")


def _reads(lab: Lab, seen: list[warnings.WarningMessage]) -> Watch:
    """Counts torch's warnings about waits while a draft is made."""

    def watch(journal: Journal, call: str, context: Context, argument: Any) -> Callable[[], None]:
        if call != "propose" or context.round_index == 0:  # the first round may set things up
            return lambda: None
        most, before = max(argument), len(seen)
        torch.cuda.set_sync_debug_mode("warn")

        def behind() -> None:
            torch.cuda.set_sync_debug_mode("default")
            reads = sum("synchroniz" in str(one.message) for one in seen[before:])
            if reads > lab.host_reads * most:
                journal.complaints.append(
                    f"{reads} reads from the device in a draft of {most} tokens, where the spec "
                    f"declares {lab.host_reads} per token"
                )

        return behind

    return watch


def _cuda_lab(subject: Subject) -> Lab:
    """A lab on the device. Drafters that take none of the targets there have nothing to show."""
    if subject.target is not None and subject.target.device.type == "cuda":
        return Lab(subject)
    refusal = ""
    for layers in (2, 5):
        try:
            return Lab(subject, target=model_target(layers, seed=subject.seed, device="cuda"))
        except (ConfigError, InputError) as error:
            refusal = str(error)
    raise NotApplicable(f"it takes none of the kit's targets on the device: {refusal}")
