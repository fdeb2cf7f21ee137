"""Every round that a verifier can play: each draft, each decision, with its exact probability.

The real verifier is driven with chosen uniforms. A node's uniform is first put at one end or the
other, to learn the threshold that it is compared with, then right below or above that threshold:
the same has to come out, or the reported threshold is not the one that decides.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor

from ..interfaces import Verifier
from ..law import DenseLaw, PointMass
from ..records import Draft, Trial, Verdict
from ..specs import DETERMINISTIC, WITHOUT_REPLACEMENT
from ..tree import Tree

Prefix = tuple[int, ...]
LawOf = Callable[[Prefix], Tensor]  # the law after a prefix, float64 [vocab]
Pair = tuple[LawOf, LawOf]  # a target's and a drafter's
Shape = int | Sequence[int]  # the length of a chain, or each node's parent: -1 is the root

LARGEST = 1 - 2.0**-53  # the largest uniform below 1
CHUNK = 1 << 16  # rounds per call of the verifier


def make_trial(
    draft: Draft,
    target_probs: Tensor,
    uniforms: Tensor,
    greedy: bool = False,
    logits: Tensor | None = None,
    gumbel: Tensor | None = None,
) -> Trial:
    """A trial as the loop makes it, of given laws and noise; logits are the log of the law unless
    given. Shapes as in ``Trial``."""
    rows = torch.full((len(draft.lengths),), greedy)
    logits = target_probs.log() if logits is None else logits
    noise = _no_noise if gumbel is None else lambda: gumbel
    return Trial(draft, target_probs, uniforms, logits, rows, noise)


def _no_noise() -> NoReturn:
    raise AssertionError("a rule that asks for shared noise has to declare it, and be given it")


@dataclass(frozen=True)
class Rounds:
    """The outcomes of rounds: ``count`` of them, each with its probability.

    Args:
        pair: ``[count]``, which pair of target and drafter it is about.
        start: ``[count]``, the prefix that the round started from (see ``Enumerated``).
        weight: ``[count]``, probability of this draft and these decisions.
        accepted: ``[count]``, drafted tokens that stand.
        kept: ``[count, depth]``, those tokens; only the first ``accepted`` count.
        next_law: ``[count, vocab]``, the law of the token that follows.
    """

    pair: Tensor
    start: Tensor
    weight: Tensor
    accepted: Tensor
    kept: Tensor
    next_law: Tensor


class Enumerated:
    """All drafts of one shape behind all prefixes of up to ``longest`` tokens, for several pairs.

    Prefixes are numbered as in a heap: 0 is the empty one, ``x`` followed by token ``t`` is
    ``x * vocab + 1 + t``. One row is one pair, one prefix and one draft that can be drawn there.
    """

    def __init__(self, pairs: Sequence[Pair], shape: Shape, longest: int, drawn: str) -> None:
        self.vocab, self.drawn = len(pairs[0][0](())), drawn
        self.is_chain = isinstance(shape, int)
        self.parents = list(range(-1, shape - 1)) if isinstance(shape, int) else list(shape)
        self.width, self.depth = len(self.parents), max(_levels(self.parents), default=0)
        known = longest + self.depth
        self.target = torch.stack([_laws_by_prefix(pair[0], self.vocab, known) for pair in pairs])
        self.drafter = torch.stack([_laws_by_prefix(pair[1], self.vocab, known) for pair in pairs])
        count = sum(self.vocab**n for n in range(longest + 1))
        drafts = torch.tensor(list(itertools.product(range(self.vocab), repeat=self.width)))
        drafts = drafts.long().reshape(self.vocab**self.width, self.width)
        self.tokens = drafts.repeat(len(pairs) * count, 1)
        self.pairs = torch.arange(len(pairs)).repeat_interleave(count * len(drafts))
        starts = torch.arange(count).repeat_interleave(len(drafts)).repeat(len(pairs))
        self.prefixes = self._prefixes(starts)
        self.chance = self._chance()
        possible = self.chance > 0
        self.tokens, self.chance = self.tokens[possible], self.chance[possible]
        self.pairs, self.prefixes = self.pairs[possible], self.prefixes[possible]

    def _prefixes(self, starts: Tensor) -> Tensor:
        """The prefix before each law row: ``[rows, width + 1]``."""
        columns = [starts]
        for node, parent in enumerate(self.parents):
            columns.append(columns[parent + 1] * self.vocab + 1 + self.tokens[:, node])
        return torch.stack(columns, 1)

    def _chance(self) -> Tensor:
        """The probability that each row's draft is drawn, ``[rows]``."""
        chance = torch.ones(len(self.tokens), dtype=torch.float64)
        for node, parent in enumerate(self.parents):
            law = self.drafter[self.pairs, self.prefixes[:, parent + 1]]
            older = [n for n in range(node) if self.parents[n] == parent]
            if self.drawn == DETERMINISTIC:  # the likeliest token, then the next likeliest
                ranked = law.argsort(dim=1, descending=True, stable=True)
                chance *= self.tokens[:, node] == ranked[:, len(older) % self.vocab]
                continue
            if self.drawn == WITHOUT_REPLACEMENT and older:
                law = _what_is_left(law, self.tokens[:, older])
            chance *= law.gather(1, self.tokens[:, node, None]).squeeze(1)
        return chance

    def drive(self, verifier: Verifier, rows: Tensor, uniforms: Tensor, greedy: bool) -> Verdict:
        """The verifier's verdict on ``rows [n]`` with ``uniforms [n, width]``."""
        prefixes, tokens = self.prefixes[rows], self.tokens[rows]
        tree = None
        if not self.is_chain:
            parents = torch.tensor(self.parents).expand(tokens.shape)
            children = max(self.parents.count(parent) for parent in self.parents)
            tree = Tree(parents, self.depth, children)
        draft = Draft(tokens, [self.width] * len(rows), self._law(rows, tree), tree, self.drawn)
        laws = self.target[self.pairs[rows, None], prefixes]
        return verifier.verify(make_trial(draft, laws, uniforms, greedy))

    def _law(self, rows: Tensor, tree: Tree | None) -> DenseLaw | PointMass:
        if self.drawn == DETERMINISTIC:
            return PointMass(self.tokens[rows])
        laws = self.drafter[self.pairs[rows, None], self.prefixes[rows]]
        return DenseLaw(laws[:, :-1]) if tree is None else DenseLaw(laws, tree.contexts)

    def rounds(self, verifier: Verifier, greedy: bool) -> list[Rounds]:
        """Every outcome, a chunk of the rows at a time."""
        size = max(CHUNK >> self.width, 1)
        parts = torch.split(torch.arange(len(self.tokens)), size)
        return [self._chunk(verifier, rows, greedy) for rows in parts]

    def _chunk(self, verifier: Verifier, rows: Tensor, greedy: bool) -> Rounds:
        """Decisions of the rows, from none that says yes to all: one more yes is possible at each
        node that was asked. ``seen[row, decisions]``: bit i of the column is node i's yes."""
        columns = torch.arange(1 << self.width)
        bits = (columns.unsqueeze(1) >> torch.arange(self.width)) & 1 > 0
        seen = torch.zeros(len(rows), len(columns), dtype=torch.bool)
        seen[:, 0] = True
        found = []
        for count in range(self.width + 1):
            at, column = (seen & (bits.sum(1) == count)).nonzero().unbind(1)
            if len(at) == 0:
                break
            yes = bits[column]
            rounds, asked = self._play(verifier, rows[at], yes, greedy)
            found.append(rounds)
            more, node = (asked & ~yes).nonzero().unbind(1)
            seen[at[more], column[more] | (1 << node)] = True
        total = Rounds(*(torch.cat([vars(r)[name] for r in found]) for name in vars(found[0])))
        _check_sum(float(total.weight.sum()), float(self.chance[rows].sum()))
        return total

    def _play(
        self, verifier: Verifier, rows: Tensor, yes: Tensor, greedy: bool
    ) -> tuple[Rounds, Tensor]:
        """Outcomes with these decisions, and which nodes could have said yes."""
        verdict = self.drive(verifier, rows, torch.where(yes, 0.0, LARGEST).double(), greedy)
        probs = verdict.accept_probs
        likely = torch.where(yes, probs, 1 - probs).prod(1)
        # Where rounding alone makes decisions possible, they need not be those that were forced.
        sure = likely > 1e-12
        near = torch.where(yes, probs * (1 - 1e-12), (probs + 1e-12).clamp(max=LARGEST))[sure]
        _check_same(verdict, self.drive(verifier, rows[sure], near, greedy), sure)
        order = torch.arange(self.depth).expand(len(rows), -1)
        path = order if verdict.path is None else verdict.path.clamp(min=0)
        kept = self.tokens[rows].gather(1, path) if self.width else path
        rounds = Rounds(
            self.pairs[rows],
            self.prefixes[rows, 0],
            self.chance[rows] * likely,
            verdict.accepted,
            kept,
            verdict.next_law,
        )
        return rounds, probs > 0


def _check_sum(found: float, wanted: float) -> None:
    if abs(found - wanted) > 1e-9 * max(wanted, 1.0):
        raise AssertionError(
            f"accept_probs do not add up: decisions have probability {found}, not {wanted}"
        )


def _check_same(forced: Verdict, near: Verdict, rows: Tensor) -> None:
    """A uniform close to its threshold decides as one at the end of the interval does; ``rows``
    picks those of ``forced`` that ``near`` is about."""
    accepted = forced.accepted[rows]
    same = torch.equal(accepted, near.accepted)
    if forced.path is not None and near.path is not None:
        counts = torch.arange(forced.path.shape[1]) < accepted.unsqueeze(1)
        same = same and not bool(((forced.path[rows] != near.path) & counts).any())
    for one, other in (
        (forced.next_law[rows], near.next_law),
        (forced.accept_probs[rows], near.accept_probs),
    ):
        same = same and torch.allclose(one, other, rtol=0, atol=1e-9)
    if not same:
        raise AssertionError("accept_probs contradict the verdict")


def _levels(parents: list[int]) -> list[int]:
    """How many nodes lie on the way to each node, itself included."""
    levels: list[int] = []
    for parent in parents:
        levels.append(1 if parent < 0 else levels[parent] + 1)
    return levels


def _laws_by_prefix(law_of: LawOf, vocab: int, longest: int) -> Tensor:
    """The laws after all prefixes of up to ``longest`` tokens: ``[prefixes, vocab]``."""
    level: list[Prefix] = [()]
    laws = []
    for _ in range(longest + 1):
        laws += [law_of(prefix) for prefix in level]
        level = [(*prefix, token) for prefix in level for token in range(vocab)]
    return torch.stack(laws)


def _what_is_left(law: Tensor, taken: Tensor) -> Tensor:
    """A law without the tokens taken, normalised; uniform over the others if nothing is left."""
    free = torch.ones_like(law).scatter(1, taken, 0.0)
    left = law * free
    left = torch.where(left.sum(1, keepdim=True) > 0, left, free)
    return left / left.sum(1, keepdim=True)
