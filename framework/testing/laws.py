"""Exact laws, and tests of draws against them.

Two proofs of losslessness. ``enumerated_joint`` drives the real verifier through every draft and
every verdict and adds up the joint law of the output: exact up to float64 rounding. ``chi_square``
compares draws of the whole engine with ``exact_joint``, the law of plain decoding.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from ..interfaces import Draft, Target, Verifier
from ..law import DenseLaw, DraftLaw, PointMass
from ..params import SamplingParams
from ..sampling import Sampler

Prefix = tuple[int, ...]
LawOf = Callable[[Prefix], Tensor]  # the law after a prefix, float64 [vocab]


def enumerated_joint(
    verifier: Verifier,
    target_law: LawOf,
    draft_law: LawOf,
    gamma: int,
    tokens: int,
    point_mass: bool = False,
) -> Tensor:
    """The joint law of the first ``tokens`` tokens that rounds of length ``gamma`` emit.

    Args:
        draft_law: the drafter's law after each prefix; one-hot rows with ``point_mass``.
        point_mass: hand the drafts over as point masses instead of dense laws.

    Returns:
        float64, ``[vocab] * tokens``.
    """
    vocab = len(target_law(()))

    @cache
    def joint(prefix: Prefix, remaining: int) -> Tensor:
        law = torch.zeros([vocab] * remaining, dtype=torch.float64)
        for weight, emitted, following in _round(
            verifier, target_law, draft_law, gamma, prefix, point_mass
        ):
            kept = emitted[:remaining]
            if len(kept) == remaining:
                law[kept] += weight
            elif len(kept) == remaining - 1:
                law[kept] += weight * following
            else:
                for token in range(vocab):
                    share = weight * following[token]
                    if share > 0:
                        rest = joint((*prefix, *kept, token), remaining - len(kept) - 1)
                        law[(*kept, token)] += share * rest
        return law

    return joint((), tokens)


def _round(
    verifier: Verifier,
    target_law: LawOf,
    draft_law: LawOf,
    gamma: int,
    prefix: Prefix,
    point_mass: bool,
) -> list[tuple[float, Prefix, Tensor]]:
    """Every outcome of one round: its probability, the accepted tokens, the law of the next."""
    drafts = list(itertools.product(range(len(target_law(prefix))), repeat=gamma))
    tokens = torch.tensor(drafts)
    draft_probs = _rows(draft_law, prefix, drafts, gamma)
    target_probs = _rows(target_law, prefix, drafts, gamma + 1)
    drawn = DenseLaw(draft_probs).prob(tokens).prod(1)
    law: DraftLaw = PointMass(tokens) if point_mass else DenseLaw(draft_probs)
    draft = Draft(tokens, [gamma] * len(drafts), law)
    outcomes = []
    for accepted in range(gamma + 1):
        verdict = verifier.verify(draft, target_probs, _forcing(accepted, *tokens.shape))
        stands = verdict.accept_probs[:, :accepted].prod(1)
        stops = 1 - verdict.accept_probs[:, accepted] if accepted < gamma else 1.0
        weights = drawn * stands * stops
        for row in weights.nonzero()[:, 0].tolist():
            if int(verdict.accepted[row]) != accepted:
                raise AssertionError(f"accept_probs of draft {drafts[row]} contradict the verdict")
            outcomes.append((float(weights[row]), drafts[row][:accepted], verdict.next_law[row]))
    return outcomes


def _forcing(accepted: int, rows: int, gamma: int) -> Tensor:
    """Uniforms that accept the first tokens wherever possible and reject the next."""
    uniforms = torch.full((rows, gamma), 1 - 2.0**-53, dtype=torch.float64)
    uniforms[:, :accepted] = 0.0
    return uniforms


def _rows(law_of: LawOf, prefix: Prefix, drafts: Sequence[Prefix], positions: int) -> Tensor:
    return torch.stack(
        [torch.stack([law_of((*prefix, *d[:i])) for i in range(positions)]) for d in drafts]
    )


def plain_joint(target_law: LawOf, tokens: int) -> Tensor:
    """The joint law of plain decoding, ``[vocab] * tokens``."""
    vocab = len(target_law(()))
    law = torch.zeros([vocab] * tokens, dtype=torch.float64)
    for sequence in itertools.product(range(vocab), repeat=tokens):
        probability = 1.0
        for at, token in enumerate(sequence):
            probability *= float(target_law(sequence[:at])[token])
        law[sequence] = probability
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
    from scipy.stats import chi2

    expected = law.double() * counts.sum()
    if bool((counts[law == 0] > 0).any()):
        return 0.0
    large = expected >= 5
    observed = [*counts[large].tolist(), float(counts[~large].sum())]
    wanted = [*expected[large].tolist(), float(expected[~large].sum())]
    pairs = [(o, w) for o, w in zip(observed, wanted, strict=True) if w > 0]
    statistic = sum((o - w) ** 2 / w for o, w in pairs)
    return float(chi2.sf(statistic, max(len(pairs) - 1, 1)))


def sequence_counts(answers: Sequence[Sequence[int]], vocab: int, tokens: int) -> Tensor:
    """Counts of the first ``tokens`` ids of each answer, flat ``[vocab ** tokens]``."""
    ids = torch.tensor([list(answer[:tokens]) for answer in answers])
    weights = vocab ** torch.arange(tokens - 1, -1, -1)
    return torch.bincount((ids * weights).sum(1), minlength=vocab**tokens)
