"""Log-probabilities and ranks of emitted and of prompt tokens.

| ``logprobs`` | what the probability is of |
|---|---|
| ``raw`` | the model's own logits: softmax at temperature 1, before every control |
| ``processed`` | the law that the token was drawn from: after controls, temperature and truncation |

A rank is 1 plus the number of tokens that are strictly likelier, so ties share the better rank.
Prompt tokens were not drawn: theirs are always raw, for every token but the first.
Both are the same whether a token was drafted or not: they are read off the target's own rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .interfaces import Target

PROCESSED = "processed"
CHUNK = 64  # prompt positions whose logits are held at once


def score(log_law: Tensor, tokens: Tensor) -> Tensor:
    """``log_law [batch, places, vocab]`` (not normalised), ``tokens [batch, places]`` ->
    ``[batch, 2, places]``: log-probabilities and ranks."""
    values = log_law.double()
    chosen = values.gather(-1, tokens.unsqueeze(-1))
    logprobs = (chosen - values.logsumexp(-1, keepdim=True)).squeeze(-1)
    ranks = (values > chosen).sum(-1) + 1
    return torch.stack([logprobs, ranks.double()], 1)


def emitted_scores(
    raw: Tensor, probs: Tensor, processed: Tensor, path: Tensor, accepted: Tensor, tokens: Tensor,
    following: Tensor,
) -> Tensor:  # fmt: skip
    """Scores of a round's accepted tokens and of the one behind them: ``[batch, 2, depth + 1]``.

    Args:
        raw, probs: the target's logits and laws, ``[batch, width + 1, vocab]``.
        processed: ``[batch]`` bool, rows that want ``processed``.
        path: accepted nodes ``[batch, depth]``; ``tokens [batch, width]`` their ids.
        following: ``[batch]``, the token at place ``accepted``.
    """
    places = torch.arange(path.shape[1] + 1, device=path.device)
    nodes = path.clamp(min=0)
    rows = torch.nn.functional.pad(nodes + 1, (1, 0))
    rows = rows.where(places <= accepted.unsqueeze(1), 0)
    emitted = torch.nn.functional.pad(tokens.gather(1, nodes), (0, 1))
    emitted = emitted.where(places < accepted.unsqueeze(1), following.unsqueeze(1))
    index = rows.unsqueeze(-1).expand(-1, -1, raw.shape[-1])
    law = torch.where(processed.view(-1, 1, 1), probs.double().log(), raw.double())
    return score(law.gather(1, index), emitted)


@torch.inference_mode()
def prompt_scores(target: Target, prompt: list[int]) -> tuple[list[float], list[int]]:
    """Log-probabilities and ranks of ``prompt[1:]`` under the target, from a forward of its own."""
    session = target.start(1, len(prompt) + CHUNK)
    session.prefill([[]])
    found: list[torch.Tensor] = []
    for begin in range(0, len(prompt) - 1, CHUNK):
        piece = prompt[begin : begin + CHUNK]
        following = prompt[begin + 1 : begin + 1 + CHUNK]
        fed = torch.tensor([piece[: len(following)]], device=target.device)
        logits = session.forward(fed, [len(following)])
        session.advance([list(range(len(following)))])
        found.append(score(logits, torch.tensor([following], device=target.device))[0])
    scores = torch.cat(found, 1) if found else torch.zeros(2, 0)
    logprobs, ranks = scores.tolist()
    return logprobs, [int(rank) for rank in ranks]
