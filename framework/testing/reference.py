"""The law of plain decoding, built from transformers' own processors: what our controls must equal.

Nothing here shares code with ``sampling.py``, ``truncation.py`` or ``penalties.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..params import SamplingParams
from ..requests import Request

LogitsOf = Callable[[list[int]], Tensor]  # the model's logits behind a text, float64 [vocab]


def reference_law(logits: Tensor, text: list[int], request: Request, eos_ids: list[int]) -> Tensor:
    """The law of the token behind ``text`` (prompt and answer so far), ``[vocab]`` float64.

    Penalties on presence and frequency, which transformers lacks, count answer tokens.
    """
    ids, scores = torch.tensor([text]), logits.double().unsqueeze(0)
    for process in _processors(request, eos_ids):
        scores = process(ids, scores)
    scores = _constrained(scores, text, request)
    if request.sampling.greedy:
        return torch.nn.functional.one_hot(scores[0].argmax(), scores.shape[1]).double()
    for warp in _warpers(request.sampling):
        scores = warp(ids, scores)
    return scores[0].softmax(-1)


def reference_joint(
    logits_of: LogitsOf, request: Request, tokens: int, eos_ids: tuple[int, ...] = ()
) -> Tensor:
    """The joint law of the first ``tokens`` answer tokens, flat ``[(vocab + 1) ** tokens]``; the
    digit ``vocab`` stands behind an answer that has ended."""
    vocab = len(logits_of(request.prompt))
    ends = sorted({*eos_ids, *request.stop_ids})
    law = torch.zeros([vocab + 1] * tokens, dtype=torch.float64)
    open_texts: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while open_texts:
        answer, weight = open_texts.pop()
        if len(answer) == tokens or (answer and answer[-1] in ends):
            law[answer + (vocab,) * (tokens - len(answer))] += weight
            continue
        text = [*request.prompt, *answer]
        following = reference_law(logits_of(text), text, request, ends)
        open_texts.extend(
            ((*answer, token), weight * float(p)) for token, p in enumerate(following) if p > 0
        )
    return law.flatten()


def _processors(request: Request, eos_ids: list[int]) -> list[Any]:
    from transformers.generation import logits_process as lp

    p, found = request.sampling, []
    if p.logit_bias:
        found.append(lp.SequenceBiasLogitsProcessor({(i,): b for i, b in p.logit_bias.items()}))
    if p.repetition_penalty != 1:
        found.append(lp.RepetitionPenaltyLogitsProcessor(p.repetition_penalty))
    if p.presence_penalty or p.frequency_penalty:
        found.append(lambda ids, scores: _counted(ids, scores, request))
    if p.bad_words:
        found.append(lp.NoBadWordsLogitsProcessor(p.bad_words, eos_token_id=eos_ids or None))
    if p.min_new_tokens and eos_ids:
        prompt = len(request.prompt)
        found.append(lp.MinNewTokensLengthLogitsProcessor(prompt, p.min_new_tokens, eos_ids))
    return [*found, *request.processors]


def _counted(ids: Tensor, scores: Tensor, request: Request) -> Tensor:
    scores, p = scores.clone(), request.sampling
    for token, count in Counter(ids[0, len(request.prompt) :].tolist()).items():
        scores[0, token] -= p.frequency_penalty * count + p.presence_penalty
    return scores


def _constrained(scores: Tensor, text: list[int], request: Request) -> Tensor:
    if request.constraint is None:
        return scores
    state = request.constraint.start()
    for token in text[len(request.prompt) :]:
        assert state.advance(token)
    return scores.masked_fill(~state.allowed(), -torch.inf)


def _warpers(p: SamplingParams) -> list[Any]:
    from transformers.generation import logits_process as lp

    found: list[Any] = [lp.TemperatureLogitsWarper(float(p.temperature))]
    if p.top_k:
        found.append(lp.TopKLogitsWarper(p.top_k))
    if p.top_p < 1:
        found.append(lp.TopPLogitsWarper(p.top_p))
    if p.min_p > 0:
        found.append(lp.MinPLogitsWarper(p.min_p))
    if p.typical_p < 1:
        found.append(lp.TypicalLogitsWarper(p.typical_p))
    return found
