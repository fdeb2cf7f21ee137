"""Exact laws, and tests of draws against them.

Two proofs of losslessness. ``enumerated_joints`` drives the real verifier through every draft and
every verdict and adds up the joint law of the output: exact up to float64 rounding. ``chi_square``
compares draws of the whole engine with ``exact_joint``, the law of plain decoding.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from ..interfaces import Target, Verifier
from ..params import SamplingParams
from ..sampling import Sampler
from ..specs import INDEPENDENT
from .enumeration import Enumerated, LawOf, Pair, Prefix, Rounds, Shape, make_trial
from .statistics import count_p_value

__all__ = [
    "LawOf",
    "Pair",
    "Prefix",
    "Shape",
    "chi_square",
    "enumerated_joint",
    "enumerated_joints",
    "exact_joint",
    "law_of",
    "make_trial",
    "mean_accepted",
    "means_accepted",
    "plain_joint",
    "random_table",
    "sequence_counts",
    "total_variation",
]


def random_table(seed: int, vocab: int, zeros: float = 0.25, laws: int = 64) -> Tensor:
    """Random laws ``[laws, vocab]``, float64: flat ones and sharp ones, with zeros.

    ``zeros`` is the share of impossible tokens; the likeliest token is never one of them.
    """
    generator = torch.Generator().manual_seed(seed)
    sharpness = 4 * torch.rand(laws, 1, generator=generator, dtype=torch.float64)
    logits = torch.randn(laws, vocab, generator=generator, dtype=torch.float64) * sharpness
    impossible = torch.rand(laws, vocab, generator=generator) < zeros
    impossible.scatter_(1, logits.argmax(1, keepdim=True), False)
    return logits.masked_fill(impossible, -torch.inf).softmax(1)


def law_of(table: Tensor) -> LawOf:
    """A law that depends on the whole prefix: each picks one row of ``table [laws, vocab]``."""
    rows = table.unbind(0)
    return lambda prefix: rows[hash(prefix) % len(rows)]


def enumerated_joints(
    verifier: Verifier,
    pairs: Sequence[Pair],
    shape: Shape,
    tokens: int,
    drawn: str = INDEPENDENT,
    greedy: bool = False,
) -> Tensor:
    """The joint law of the first ``tokens`` tokens that rounds with drafts of ``shape`` emit.

    Args:
        pairs: the target's and the drafter's law after each prefix. With ``deterministic``
            drafts, the children of a node are the drafter's likeliest tokens, as point masses.
        shape: the length of a chain, or the parent of each node of a tree.
        drawn: how the children of a node are drawn (``specs.DRAWN``).
        greedy: tell the verifier that the rows are greedy; target laws have to be one-hot.

    Returns:
        float64, ``[pairs, vocab, ..., vocab]``.

    Raises:
        AssertionError: the verifier's ``accept_probs`` are not what it decides by.
    """
    drafts = Enumerated(pairs, shape, tokens - 1, drawn)
    rounds, vocab = drafts.rounds(verifier, greedy), drafts.vocab
    # The probability that a round starts at each prefix; the longest ones are the answers.
    prefixes = sum(vocab**n for n in range(tokens + 1))
    reached = torch.zeros(len(pairs), prefixes, dtype=torch.float64)
    reached[:, 0] = 1.0
    first = 0
    for length in range(tokens):
        for part in rounds:
            here = (part.start >= first) & (part.start < first + vocab**length)
            _emit(reached, part, here, tokens - length, vocab)
        first += vocab**length
    return reached[:, first:].reshape(len(pairs), *[vocab] * tokens)


def _emit(reached: Tensor, part: Rounds, here: Tensor, room: int, vocab: int) -> None:
    """Adds what the rounds ``here`` emit, cut off after ``room`` tokens."""
    prefix, accepted, kept = part.start[here], part.accepted[here], part.kept[here]
    pair = part.pair[here]
    weight = part.weight[here] * reached[pair, prefix]
    for column in range(min(kept.shape[1], room)):
        longer = prefix * vocab + 1 + kept[:, column]
        prefix = torch.where(column < accepted, longer, prefix)
    full = accepted >= room
    reached.index_put_((pair[full], prefix[full]), weight[full], accumulate=True)
    ends = prefix[~full].unsqueeze(1) * vocab + 1 + torch.arange(vocab)
    shares = weight[~full].unsqueeze(1) * part.next_law[here][~full]
    reached.index_put_((pair[~full].unsqueeze(1), ends), shares, accumulate=True)


def means_accepted(
    verifier: Verifier,
    pairs: Sequence[Pair],
    shape: Shape,
    drawn: str = INDEPENDENT,
    greedy: bool = False,
) -> Tensor:
    """The mean number of drafted tokens that stand in one round from the empty prefix, ``[pairs]``.

    Arguments as in ``enumerated_joints``.
    """
    means = torch.zeros(len(pairs), dtype=torch.float64)
    for part in Enumerated(pairs, shape, 0, drawn).rounds(verifier, greedy):
        means.index_add_(0, part.pair, part.weight * part.accepted)
    return means


def enumerated_joint(
    verifier: Verifier,
    target_law: LawOf,
    draft_law: LawOf,
    shape: Shape,
    tokens: int,
    drawn: str = INDEPENDENT,
    greedy: bool = False,
) -> Tensor:
    """``enumerated_joints`` of one pair: ``[vocab] * tokens``."""
    return enumerated_joints(verifier, [(target_law, draft_law)], shape, tokens, drawn, greedy)[0]


def mean_accepted(
    verifier: Verifier,
    target_law: LawOf,
    draft_law: LawOf,
    shape: Shape,
    drawn: str = INDEPENDENT,
    greedy: bool = False,
) -> float:
    """``means_accepted`` of one pair."""
    return float(means_accepted(verifier, [(target_law, draft_law)], shape, drawn, greedy))


def plain_joint(target_law: LawOf, tokens: int) -> Tensor:
    """The joint law of plain decoding, ``[vocab] * tokens``."""
    vocab = len(target_law(()))
    law = torch.ones((), dtype=torch.float64)
    level: list[Prefix] = [()]
    for _ in range(tokens):
        following = torch.stack([target_law(prefix) for prefix in level])
        law = law.unsqueeze(-1) * following.reshape([*law.shape, vocab])
        level = [(*prefix, token) for prefix in level for token in range(vocab)]
    return law


@torch.inference_mode()
def exact_joint(target: Target, prompt: list[int], tokens: int, params: SamplingParams) -> Tensor:
    """The joint law of the first ``tokens`` answer tokens of plain decoding, from one forward over
    all continuations. float64, flat ``[vocab ** tokens]``, first token slowest."""
    heads = list(itertools.product(range(target.vocab_size), repeat=tokens - 1))
    session = target.start(len(heads), len(prompt) + tokens)
    session.prefill([prompt[:-1]] * len(heads))
    inputs = torch.tensor([[prompt[-1], *head] for head in heads])
    logits = session.forward(inputs.to(target.device), [tokens] * len(heads))
    laws = Sampler([params] * len(heads), target.device).law(logits).double().cpu()
    reached = laws[:, :-1].gather(-1, inputs[:, 1:].unsqueeze(-1)).squeeze(-1).prod(1)
    return (reached.unsqueeze(1) * laws[:, -1]).flatten()


def total_variation(one: Tensor, other: Tensor) -> float:
    """Half the summed absolute difference of two laws."""
    return float((one - other).abs().sum() / 2)


def chi_square(counts: Tensor, law: Tensor) -> float:
    """P-value of counts under a law; cells that expect fewer than 5 are pooled.

    A count in a cell of probability zero gives 0.
    """
    return count_p_value(counts, law.double() * counts.sum())


def sequence_counts(answers: Sequence[Sequence[int]], vocab: int, tokens: int) -> Tensor:
    """Counts of the first ``tokens`` ids of each answer, flat ``[vocab ** tokens]``."""
    ids = torch.tensor([list(answer[:tokens]) for answer in answers])
    weights = vocab ** torch.arange(tokens - 1, -1, -1)
    return torch.bincount((ids * weights).sum(1), minlength=vocab**tokens)
