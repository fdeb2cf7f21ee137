"""Which logits processors can be run over a draft: found out before the first round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from .errors import ConfigError
from .processors import Processor, fork, name_of, run

_HALVES = "the unconditional half of a doubled batch"
_CHANNELS = "the place of a row among audio channels"
# What transformers' own processors read besides the ids and scores of their row, and what works.
_REFUSED = {
    "PrefixConstrainedLogitsProcessor": (
        "the row's place in the batch",
        "write it as a Constraint (foredraft.framework.constraints) of this request",
    ),
    "HammingDiversityLogitsProcessor": ("beam groups", "draw several samples instead"),
    "ClassifierFreeGuidanceLogitsProcessor": (_HALVES, "drop it"),
    "DiaClassifierFreeGuidanceLogitsProcessor": (_HALVES, "drop it"),
    "UnbatchedClassifierFreeGuidanceLogitsProcessor": (
        "forwards of the model with a cache of its own, which cannot be rolled back",
        "drop it",
    ),
    "WhisperNoSpeechDetection": ("a forward of the model", "drop it"),
    "AlternatingCodebooksLogitsProcessor": (_CHANNELS, "drop it"),
    "DiaEOSChannelFilterLogitsProcessor": (_CHANNELS, "drop it"),
    "DiaEOSDelayPatternLogitsProcessor": (_CHANNELS, "drop it"),
}
# Ids behind the prompt that a probe shows: far apart, and one by one as forks are promised.
_JUMPS = (1, 2, 3, 5, 9, 17, 33, 65, 129, 257)
_STEPS = range(1, 17)


def prepare(
    processors: Iterable[object],
    vocab_size: int,
    prompt: Sequence[int] = (),
    device: torch.device | str = "cpu",
) -> tuple[Processor, ...]:
    """A request's processors, checked; lists of them (``LogitsProcessorList``) are taken apart.

    Raises:
        ConfigError: one of them cannot be run over a draft; the message says why.
    """
    found: list[Processor] = []
    for processor in processors:
        if isinstance(processor, list | tuple):
            found.extend(prepare(processor, vocab_size, prompt, device))
        else:
            found.append(check_processor(processor, vocab_size, prompt, device))
    return tuple(found)


def check_processor(
    processor: object,
    vocab_size: int,
    prompt: Sequence[int] = (),
    device: torch.device | str = "cpu",
) -> Processor:
    """Returns the processor if it can be run over a draft.

    One with ``fork()`` is only ever called through forks, which must not share their state. One
    without is called on a prefix, on others that grow from it, and on the first one again: it must
    then give the same scores, and never change the ids. What makes a difference only after certain
    tokens may escape this.

    Args:
        vocab_size: length of the scores that it is shown.
        prompt: the ids that the probe begins with; without, three ids of the vocabulary.
        device: where ids and scores lie.

    Raises:
        ConfigError: it cannot.
        PluginFault: it raised on the probe, or returned no scores.
    """
    _check_kind(processor)
    assert callable(processor)
    if hasattr(processor, "fork") and not callable(fork([processor])[0]):
        raise ConfigError(f"{name_of(processor)} has a fork() that does not return a processor.")
    probe = _Probe(vocab_size, list(prompt) or [i % vocab_size for i in range(3)], device)
    if hasattr(processor, "fork"):
        _check_forks(processor, probe)
    else:
        _check_stateless(processor, probe)
    return processor


def _check_kind(processor: object) -> None:
    if not callable(processor) or isinstance(processor, type):
        raise ConfigError(
            f"processors={processor!r} is not possible; each must be a callable "
            "(input_ids, scores) -> scores."
        )
    for kind in type(processor).__mro__:
        if kind.__name__ in _REFUSED and kind.__module__.startswith("transformers."):
            reads, instead = _REFUSED[kind.__name__]
            raise ConfigError(
                f"{name_of(processor)} depends on {reads}, and processors are called for one row "
                f"at a time; {instead}."
            )


def _check_stateless(processor: Processor, probe: _Probe) -> None:
    first = probe.call(processor, 0)
    for count in _JUMPS:
        probe.call(processor, count)
    if not _same(first, probe.call(processor, 0)):
        raise ConfigError(
            f"{name_of(processor)} gives other scores for a prefix after it was shown others; give "
            "it a method fork() that returns an independent copy, or take its state out."
        )


def _check_forks(processor: Processor, probe: _Probe) -> None:
    """Calls forks, and forks of forks, in turn: each has to do what it would have done alone."""
    one, other = fork([processor, processor])
    alike = _same(probe.call(one, 0), probe.call(other, 0))
    for count in _STEPS:
        (branch,) = fork([one])
        expected = probe.call(branch, count)
        alike = alike and _same(expected, probe.call(one, count))
        alike = alike and _same(expected, probe.call(other, count))
    if not alike:
        raise ConfigError(
            f"{name_of(processor)} has forks that are no independent copies: one called by turns "
            "with another gives other scores than it would alone."
        )


class _Probe:
    """Calls a processor on the prompt and ``count`` ids, spread over the vocabulary."""

    def __init__(self, vocab_size: int, prompt: list[int], device: torch.device | str) -> None:
        longest = max(_JUMPS)
        ids = [i * vocab_size // longest for i in range(longest)]
        self.ids = torch.tensor([[*prompt, *ids]], device=device)
        self.prompt = len(prompt)
        self.scores = torch.arange(vocab_size, device=device).mul(0.7).sin().unsqueeze(0)

    def call(self, processor: Processor, count: int) -> Tensor:
        shown = self.ids[:, : self.prompt + count]
        given = shown.clone()
        with torch.inference_mode():
            result = run([processor], given, self.scores.clone())
        if not torch.equal(given, shown):
            raise ConfigError(f"{name_of(processor)} changes input_ids; it must leave them alone.")
        return result


def _same(one: Tensor, other: Tensor) -> bool:
    return bool(((one == other) | (one.isnan() & other.isnan())).all())
