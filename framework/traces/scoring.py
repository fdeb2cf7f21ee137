"""Acceptance without decoding: ``sum(min(target, draft))`` at every place of given texts.

This is how Leviathan et al. 2023 (arXiv:2211.17192) made their Table 3: answers of the target are
fixed once, and every drafter is scored on them. Rows of one walk may differ in temperature, so one
pass of a drafter scores all temperatures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..decoding import Parts
from ..params import SamplingParams
from ..requests import Answer, Request
from .dense import DenseTrace
from .recording import Walk, walk

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Text:
    """A prompt and the answer that the target gave to it.

    Args:
        prompt, answer: ids; neither is empty.
        about: what traces keep of it, a group for example.
    """

    prompt: list[int]
    answer: list[int]
    about: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Score:
    """One text under one drafter and one temperature.

    Args:
        text: what was scored.
        sampling: target and draft laws went through it.
        drafted: ``[places]`` bool, whether the drafter had a token there.
        overlaps: ``[places]``, 0 where it had none.
        confidences, entropies: of the drafted token and its law, 0 where there is none.
    """

    text: Text
    sampling: SamplingParams
    drafted: NDArray[np.bool_]
    overlaps: Floats
    confidences: Floats
    entropies: Floats

    @property
    def alpha(self) -> float | None:
        """Mean overlap where something was drafted: alpha of a live run with gamma 1."""
        return float(self.overlaps[self.drafted].mean()) if self.drafted.any() else None

    def trace(self, most: int, seed: int, about: dict[str, Any] | None = None) -> DenseTrace:
        """A dense trace for ``replay`` with up to ``most`` tokens a round.

        A token drafted i places ahead is taken for the one that would be drafted there once all
        before it stood, and stands with that place's overlap: one draw per place, so that runs of
        different policies are paired.
        """
        places = len(self.overlaps)
        draws = np.random.default_rng(seed).random(places)
        ahead = np.arange(places)[:, None] + np.arange(most)
        inside, at = ahead < places, ahead.clip(max=places - 1)
        lengths = np.logical_and.accumulate(self.drafted[at] & inside, 1).sum(1)
        stands = (draws < self.overlaps)[at] & inside

        def column(values: Floats) -> NDArray[np.float32]:
            return np.where(inside, values[at], 0).astype(np.float32)

        said = {
            "prompt_tokens": len(self.text.prompt),
            "temperature": self.sampling.temperature,
            "seed": seed,
            "scored": True,
        }
        return DenseTrace(
            accepts=stands,
            overlaps=column(self.overlaps),
            confidences=column(self.confidences),
            entropies=column(self.entropies),
            lengths=lengths,
            about={**said, **self.text.about, **(about or {})},
        )


def score(
    parts: Parts, texts: Sequence[Text], samplings: Sequence[SamplingParams], rows: int = 8
) -> list[Score]:
    """Scores every text under every sampling, ``rows`` of them at a time.

    Raises:
        ConfigError: the drafter drafts trees.
    """
    due = [(text, sampling) for text in texts for sampling in samplings]
    found: list[Score] = []
    for begin in range(0, len(due), rows):
        found += _scored(parts, due[begin : begin + rows])
    return found


def _scored(parts: Parts, due: Sequence[tuple[Text, SamplingParams]]) -> list[Score]:
    answers = [
        Answer(Request(text.prompt, len(text.answer), sampling, index=index))
        for index, (text, sampling) in enumerate(due)
    ]
    # One more than is scored: the loop drafts nothing for a round that can emit one token only.
    padded = [[*text.answer, text.answer[-1]] for text, _ in due]
    for answer in answers:
        assert answer.request.max_new_tokens is not None
        answer.request.max_new_tokens += 1
    walks = walk(parts, answers, 1, padded)
    return [_score(*pair, one) for pair, one in zip(due, walks, strict=True)]


def _score(text: Text, sampling: SamplingParams, one: Walk) -> Score:
    places = min(len(text.answer), len(one.tokens))  # an end token in its midst ends it
    drafted = np.array([bool(tokens) for tokens in one.tokens[:places]])
    columns = (
        np.array([values[0] if values else 0.0 for values in column[:places]])
        for column in (one.overlaps, one.confidences, one.entropies)
    )
    return Score(text, sampling, drafted, *columns)
