"""Trials for verifiers: random rows of chains and trees, alone or many at a time.

A row is made from its seed alone, so that the same row can come before the rule in any company.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

import torch
from torch import Tensor

from ....children import draw_children
from ....law import DenseLaw, DraftLaw, PointMass
from ....noise import Noise
from ....records import Draft, Trial
from ....specs import DETERMINISTIC, INDEPENDENT, DraftKind
from ....tree import Tree
from ...laws import random_table
from ..subject import Subject
from .asking import spec_of

CHILDREN = 3  # the most of any node
VOCAB = 5
# What stands in the columns behind a row's own draft.
ZEROS, OTHERS, NOT_A_NUMBER = "zeros", "other values", "NaN in the draft law"


@dataclass(frozen=True)
class Row:
    """One row's part of a trial; ``nodes`` drafted tokens.

    Args:
        parents: of each node, -1 is the root.
        tokens: ``[nodes]``.
        target, drafted: ``[nodes + 1, vocab]``, laws behind the root and each node.
        logits: the same, before temperature.
        uniforms: ``[nodes]``.
        gumbel: ``[nodes + 1, vocab]``, shared noise.
        greedy: whether the row is at temperature 0; its target laws are one-hot.
    """

    parents: list[int]
    tokens: Tensor
    target: Tensor
    drafted: Tensor
    logits: Tensor
    uniforms: Tensor
    gumbel: Tensor
    greedy: bool


def rows_of(subject: Subject, kind: DraftKind, count: int, width: int) -> list[Row]:
    """``count`` rows of up to ``width`` nodes, the first of which has all of them; every third
    one is greedy, or all are if the rule judges nothing else."""
    first = 10_000 * subject.seed
    only = spec_of(subject).greedy_only
    lengths = [width, *(random.Random(first + at).randint(0, width) for at in range(1, count))]
    return [
        random_row(first + at, kind, length, only or at % 3 == 2)
        for at, length in enumerate(lengths)
    ]


@lru_cache(maxsize=1 << 12)
def random_row(seed: int, kind: DraftKind, nodes: int, greedy: bool) -> Row:
    """A row of ``nodes`` drafted tokens, drawn from laws that agree with the target's in part.

    Most checks ask for the same ones; nobody writes to them, since a trial holds copies.
    """
    generator = torch.Generator().manual_seed(seed)
    parents = (
        _random_parents(random.Random(seed), nodes) if kind.tree else list(range(-1, nodes - 1))
    )
    logits = random_table(seed, VOCAB, laws=nodes + 1).log()
    target = _one_hot(logits) if greedy else logits.exp()
    share = torch.rand(nodes + 1, 1, generator=generator, dtype=torch.float64)
    drafted = share * logits.exp() + (1 - share) * random_table(seed + 5_000, VOCAB, laws=nodes + 1)
    if greedy and seed % 2:  # drafts go through the same temperature, unless a request says no
        drafted = _one_hot(drafted.log())
    tokens = torch.zeros(nodes, dtype=torch.int64)
    for parent in sorted(set(parents)):
        family = [node for node, above in enumerate(parents) if above == parent]
        noise = torch.rand(1, 1, len(family), generator=generator, dtype=torch.float64)
        law = drafted[parent + 1].view(1, 1, -1)
        tokens[family] = draw_children(law, noise, kind.drawn)[0, 0]
    uniforms = torch.rand(nodes, generator=generator, dtype=torch.float64)
    depths = torch.tensor([_depths(parents)])
    gumbel = Noise([seed], [0], "cpu").gumbel(depths, VOCAB)[0]
    return Row(parents, tokens, target, drafted, logits, uniforms, gumbel, greedy)


def _random_parents(source: random.Random, nodes: int) -> list[int]:
    parents: list[int] = []
    for node in range(nodes):
        free = [at for at in range(-1, node) if parents.count(at) < CHILDREN]
        parents.append(source.choice(free))
    return parents


def _depths(parents: list[int]) -> list[int]:
    """Nodes on the way to the root (none) and to each node."""
    found = [0]
    for parent in parents:
        found.append(found[parent + 1] + 1)
    return found


def _one_hot(logits: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).double()


def trial_of(
    rows: Sequence[Row],
    kind: DraftKind,
    shared_noise: bool = False,
    padding: str = ZEROS,
    dtype: torch.dtype = torch.float64,
) -> Trial:
    """Rows side by side in one batch.

    Args:
        shared_noise: whether the rule may ask for it.
        padding: what stands behind a row's own draft: ``ZEROS``, ``OTHERS``, ``NOT_A_NUMBER``.
        dtype: of the laws and logits.
    """
    lengths = [len(row.parents) for row in rows]
    batch = _Padded(len(rows), max(lengths), rows[0], padding, dtype)
    for at, row in enumerate(rows):
        batch.put(at, row)
    depth = max(max(_depths(row.parents)) for row in rows)
    greedy = torch.tensor([row.greedy for row in rows])
    draft = draft_of(batch.tokens, lengths, batch.parents, batch.drafted, kind, depth)
    noise = (lambda: batch.gumbel) if shared_noise else no_noise
    return Trial(draft, batch.target, batch.uniforms, batch.logits, greedy, noise)


class _Padded:
    """The tensors of a batch, padding and all."""

    def __init__(self, rows: int, width: int, like: Row, padding: str, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(rows)
        vocab = like.target.shape[1]
        shape = (rows, width + 1, vocab)
        laws = torch.rand(shape, generator=generator, dtype=torch.float64).softmax(-1)
        fill = laws if padding == OTHERS else torch.zeros(shape, dtype=torch.float64)
        self.target, self.logits = (fill.to(dtype, copy=True) for _ in range(2))
        self.drafted, self.gumbel = fill.flip(-1).to(dtype), fill.clone()
        if padding == NOT_A_NUMBER:
            self.drafted.fill_(torch.nan)
        self.uniforms = fill[:, :width, 0].clone()
        self.tokens = torch.zeros(rows, width, dtype=torch.int64)
        self.parents = torch.full((rows, width), -1)
        if padding == OTHERS:
            self.tokens = torch.randint(vocab, (rows, width), generator=generator)

    def put(self, at: int, row: Row) -> None:
        size = len(row.parents)
        self.parents[at, :size] = torch.tensor(row.parents, dtype=torch.int64)
        self.tokens[at, :size], self.uniforms[at, :size] = row.tokens, row.uniforms
        for whole, part in (
            (self.target, row.target),
            (self.drafted, row.drafted),
            (self.logits, row.logits),
            (self.gumbel, row.gumbel),
        ):
            whole[at, : size + 1] = part


def draft_of(
    tokens: Tensor,
    lengths: list[int],
    parents: Tensor,
    drafted: Tensor,
    kind: DraftKind,
    depth: int,
) -> Draft:
    """A draft of a kind, with the laws behind the root and each node.

    ``tokens``, ``parents [rows, width]``; ``drafted [rows, width + 1, vocab]``.
    """
    tree = Tree(parents, depth, CHILDREN) if kind.tree else None
    law: DraftLaw = PointMass(tokens)
    if kind.drawn != DETERMINISTIC:
        law = DenseLaw(drafted[:, :-1]) if tree is None else DenseLaw(drafted, tree.contexts)
    drawn = INDEPENDENT if kind.drawn == DETERMINISTIC else kind.drawn
    return Draft(tokens, lengths, law, tree, drawn)


def no_noise() -> NoReturn:
    """What a rule gets that has not declared ``shared_noise``."""
    raise RuntimeError("a rule that asks for shared noise has to declare shared_noise")
