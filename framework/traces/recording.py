"""Walking a text one token a round, with a draft at every place of it: dense traces, and scores.

It is the ordinary loop, with a rule that lets no drafted token stand. Every place of the text is
therefore drafted from, by the same sessions and with the same cache as in a live run, and the target
gives its law behind every drafted token in the same forward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from ..decoding import Batch, Parts
from ..device import upload
from ..errors import ConfigError
from ..interfaces import Verifier
from ..policies.builtin import FixedConfig
from ..policies.fixed import Fixed
from ..readback import RowRead
from ..records import Trial, Verdict
from ..requests import Answer
from ..verdicts import law_at
from .dense import DenseTrace

Texts = Sequence[Sequence[int]]


class OneByOne(Verifier):
    """Emits one token a round, whatever was drafted: the target's own, by the noise that drafter and
    target share (Daliri, Musco, Suresh 2024; at temperature 0 the likeliest), or a given one.

    Args:
        following: gives the ids that come next, one per row; None: the target says.
    """

    shared_noise = True

    def __init__(self, following: Callable[[], list[int]] | None = None) -> None:
        self.following = following

    def verify(self, trial: Trial) -> Verdict:
        probs = trial.target_probs
        nothing = torch.zeros(len(probs), dtype=torch.int64, device=probs.device)
        if self.following is None:
            token = (probs[:, 0].double().log() + trial.gumbel()[:, 0]).argmax(-1)
        else:
            token = upload(self.following(), probs.device)
        refused = torch.zeros_like(trial.draft.tokens, dtype=torch.float64)
        return Verdict(nothing, law_at(probs, nothing), refused, token=token)


@dataclass
class Walk:
    """What was drafted at each place of one answer, in lists by place.

    Args:
        room: the most tokens that the answer could have held.
        tokens, overlaps, confidences, entropies: of each drafted token.
    """

    room: int
    tokens: list[list[int]] = field(default_factory=list)
    overlaps: list[list[float]] = field(default_factory=list)
    confidences: list[list[float]] = field(default_factory=list)
    entropies: list[list[float]] = field(default_factory=list)

    def add(self, row: RowRead, overlaps: list[float]) -> None:
        """Takes a place: what was drafted there, and the overlap of each token of it."""
        assert row.detail is not None
        self.tokens.append(row.drafted)
        self.overlaps.append(overlaps[: len(row.drafted)])
        self.confidences.append(row.detail.confidence)
        self.entropies.append(row.detail.entropy)


def record(
    parts: Parts,
    answers: Sequence[Answer],
    most: int,
    about: Sequence[Mapping[str, Any]] | None = None,
) -> list[DenseTrace]:
    """Dense traces of a batch of requests; fills the answers.

    The texts are the target's own: greedy, or sampled with noise that drafter and target share, so
    that they are what ``verifier=coupled`` gives with any drafter and policy.

    Args:
        most: tokens drafted at every place, ``G``.
        about: more to keep with each trace, one for each answer.
    """
    walks = walk(parts, answers, most)
    kind = {"drawn": parts.drafter.kind.drawn, **parts.names}
    return [
        _trace(answer, one, most, {**kind, **more})
        for answer, one, more in zip(answers, walks, about or [{}] * len(walks), strict=True)
    ]


@torch.inference_mode()
def walk(
    parts: Parts, answers: Sequence[Answer], most: int, texts: Texts | None = None
) -> list[Walk]:
    """Walks a batch of answers a token at a time, drafting ``most`` tokens at every place.

    Args:
        texts: the answers' ids, if they are not to be the target's own; at least one id each.

    Raises:
        ConfigError: the drafter drafts trees.
    """
    if parts.drafter.kind.tree:
        raise ConfigError(
            f"drafter={parts.names.get('drafter')} drafts trees here, which have no one order; set it "
            "to draft chains."
        )
    places = {id(answer): place for place, answer in enumerate(answers)}
    live: list[Answer] = []

    def following() -> list[int]:
        assert texts is not None
        return [texts[places[id(answer)]][len(answer.token_ids)] for answer in live]

    rule = OneByOne(following if texts is not None else None)
    walking = replace(parts, verifier=rule, policy=Fixed(FixedConfig(most)))
    batch = Batch(walking, list(answers), detailed=True)
    walks = [Walk(stopper.room()) for stopper in batch.stoppers]
    while batch.answers:
        live[:] = batch.answers
        batch.recorder = partial(_note, [walks[places[id(answer)]] for answer in live])
        batch.step()
    return walks


def _note(walks: list[Walk], trial: Trial, rows: list[RowRead]) -> None:
    draft = trial.draft
    overlaps = draft.law.overlap(trial.target_probs[:, : draft.width]).tolist()
    for one, row, values in zip(walks, rows, overlaps, strict=True):
        one.add(row, values)


def _trace(answer: Answer, one: Walk, most: int, about: dict[str, Any]) -> DenseTrace:
    text, request = answer.token_ids, answer.request
    stands = [
        [token == ahead for token, ahead in zip(drafted, text[place:], strict=False)]
        for place, drafted in enumerate(one.tokens)
    ]
    said = {
        "prompt_tokens": len(request.prompt),
        "room": one.room,
        "temperature": request.sampling.temperature,
        "seed": request.seed,
        "index": request.index,
        **about,
    }
    lengths = np.array([len(drafted) for drafted in one.tokens])
    return DenseTrace(
        accepts=packed(stands, most) > 0,
        overlaps=packed(one.overlaps, most),
        confidences=packed(one.confidences, most),
        entropies=packed(one.entropies, most),
        lengths=lengths,
        about=said,
    )


def packed(rows: Sequence[Sequence[float]], most: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Lists of different lengths as one array ``[len(rows), most]``, zeros behind their ends."""
    found = np.zeros((len(rows), most), dtype=np.float32)
    for line, values in zip(found, rows, strict=True):
        line[: len(values)] = values
    return found
