"""Whether one draft is what its record promises."""

from __future__ import annotations

import torch
from torch import Tensor

from ....children import what_is_left
from ....interfaces import Target
from ....law import PointMass
from ....specs import WITHOUT_REPLACEMENT
from .spies import Proposal

TOLERANCE = 1e-6


def malformed(made: Proposal, target: Target) -> str:
    """What is wrong with a draft, in words; empty if nothing is."""
    return (
        _bad_shape(made, target)
        or _bad_ids(made, target.vocab_size)
        or _bad_tree(made)
        or _bad_law(made, target.vocab_size)
    )


def given_siblings(made: Proposal) -> Tensor:
    """The law that each node was drawn from, its elder siblings given: ``[batch, width, vocab]``."""
    assert made.laws is not None
    laws = made.laws.double()
    if made.draft.drawn != WITHOUT_REPLACEMENT:
        return laws
    nodes, real = torch.arange(made.tokens.shape[1]), made.draft.mask.cpu()
    parents = made.parents.cpu()
    same = parents.unsqueeze(2) == parents.unsqueeze(1)
    elder = same & (nodes < nodes.unsqueeze(1)) & real.unsqueeze(1)
    ids = torch.nn.functional.one_hot(made.tokens.cpu().clamp(min=0), laws.shape[-1]).double()
    taken = elder.double() @ ids
    return what_is_left(laws.cpu(), (taken == 0).double())


def _bad_shape(made: Proposal, target: Target) -> str:
    draft, shape = made.draft, (len(made.asked), max(made.lengths, default=0))
    if any(type(length) is not int or length < 0 for length in draft.lengths):
        return f"lengths {draft.lengths!r}; whole numbers from 0 are due"
    for name, tensor in (("tokens", draft.tokens), ("parents", draft.shape.parents)):
        if tensor.dtype != torch.int64 or tuple(tensor.shape) != shape:
            return f"{name} {tensor.dtype} {tuple(tensor.shape)}; int64 {shape} is due"
        if tensor.device != target.device:
            return f"{name} on {tensor.device}; {target.device} is due"
    if isinstance(draft.law, PointMass):
        return ""
    due = (*shape, target.vocab_size)
    if made.laws is None or not shape[1]:
        return ""
    if tuple(made.laws.shape) != due or made.laws.dtype not in (torch.float32, torch.float64):
        return f"laws {made.laws.dtype} {tuple(made.laws.shape)}; float32 or float64 {due} is due"
    return ""


def _bad_ids(made: Proposal, vocab: int) -> str:
    ids = made.tokens[made.draft.mask]
    if len(ids) and not (0 <= int(ids.min()) and int(ids.max()) < vocab):
        return f"ids from {int(ids.min())} to {int(ids.max())}; they go from 0 to {vocab - 1}"
    return ""


def _bad_tree(made: Proposal) -> str:
    tree = made.draft.shape
    for row, length in enumerate(made.lengths):
        parents = tree.parents[row, :length].tolist()
        if any(not -1 <= parent < node for node, parent in enumerate(parents)):
            return f"parents {parents} in row {row}; each has to come before its children"
        if length and int(tree.depths[row, :length].max()) >= tree.depth:
            return f"a path in row {row} that is longer than the depth {tree.depth} declared"
        if length and max(map(parents.count, parents)) > tree.children:
            return f"a node in row {row} with more than the {tree.children} children declared"
    return ""


def _bad_law(made: Proposal, vocab: int) -> str:
    law, real = made.draft.law, made.draft.mask
    if isinstance(law, PointMass):
        right = ((law.tokens == made.tokens) | ~real).all()
        return "" if right else f"point masses on {law.tokens.tolist()}, not on the tokens drafted"
    if made.laws is None or not bool(real.any()):
        return ""
    laws, tokens = made.laws[real].double(), made.tokens[real]
    if bool(laws.isnan().any()) or bool((laws < 0).any()):
        return "a law that holds NaN or a negative probability"
    off = float((laws.sum(-1) - 1).abs().max())
    if off > TOLERANCE:
        return f"a law that sums to 1 within {off:.2g} only"
    own = given_siblings(made)[real.cpu()].gather(1, tokens.cpu().unsqueeze(1))
    if bool((own <= 0).any()):
        return "a token to which its own law, its elder siblings given, leaves no probability"
    return _bad_answers(made, vocab)


def _bad_answers(made: Proposal, vocab: int) -> str:
    """Whether the law answers verifiers by what it says when it is written out."""
    law, real, laws = made.draft.law, made.draft.mask, made.laws
    assert laws is not None
    wanted = torch.arange(1, vocab + 1, dtype=laws.dtype, device=laws.device).expand_as(laws)
    wanted = wanted / wanted.sum(-1, keepdim=True)
    answers = {
        "prob": (law.prob(made.tokens), laws.gather(-1, made.tokens.unsqueeze(-1)).squeeze(-1)),
        "residual": (law.residual(wanted.clone()), (wanted - laws).clamp(min=0)),
        "overlap": (law.overlap(wanted.clone()), torch.minimum(wanted, laws).sum(-1)),
    }
    for name, (given, due) in answers.items():
        if bool(((given.double() - due.double()).abs()[real] > TOLERANCE).any()):
            return f"a law whose {name}() is not what its rows() say"
    return (
        "" if bool(law.valid(made.tokens)[real].all()) else "a law whose valid() denies its tokens"
    )
