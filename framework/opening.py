"""What a batch is opened with: sampler, noise and stoppers, made from its requests."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .constraints import Progress, constraints_for
from .controls import Control
from .interfaces import Target
from .noise import Noise
from .params import SamplingParams
from .penalties import penalties
from .processors import host_processors
from .requests import Request
from .sampling import Sampler
from .stopping import Stopper


def progress_of(request: Request) -> Progress | None:
    """Where a request's answer stands in its constraint, shared by sampler and stopper."""
    if request.constraint is None:
        return None
    return Progress(request.constraint, len(request.prompt))


def sampler_for(
    requests: Sequence[Request], target: Target, progress: Sequence[Progress | None] = ()
) -> Sampler:
    """One sampler for rows that may all sample differently.

    Order as in transformers: penalties, biases and bans, then the caller's processors. What a
    constraint forbids is forbidden last, so that nothing can allow it again.
    """
    params = [request.sampling for request in requests]
    controls: list[Control | None] = [
        *_penalties(requests, target),
        host_processors([request.processors for request in requests]),
        constraints_for(progress),
    ]
    return Sampler(params, target.device, [control for control in controls if control is not None])


def _penalties(requests: Sequence[Request], target: Target) -> list[Control | None]:
    """One control per set of end ids: what ends an answer is the request's own affair."""
    ends = [frozenset(target.eos_ids | set(request.stop_ids)) for request in requests]
    prompts = [len(request.prompt) for request in requests]
    return [
        penalties(
            [r.sampling if end == one else SamplingParams() for r, end in zip(requests, ends, strict=True)],
            prompts, one, target.vocab_size, target.device,
        )
        for one in sorted(set(ends), key=sorted)
    ]  # fmt: skip


def noise_for(requests: Sequence[Request], device: torch.device) -> Noise:
    """Noise keyed by each request's seed, place in the run, and sample."""
    seeds = [request.seed or 0 for request in requests]
    samples = [request.sample for request in requests]
    return Noise(seeds, [request.index for request in requests], device, samples)


def stopper_for(target: Target, request: Request, progress: Progress | None = None) -> Stopper:
    """When this request ends."""
    limit = target.max_context
    room = None if limit is None else limit - len(request.prompt)
    eos = target.eos_ids | set(request.stop_ids)
    tokenizer, most = target.tokenizer, request.max_new_tokens
    return Stopper(eos, request.stop, tokenizer, most, room, progress)
