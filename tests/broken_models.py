"""Small healthy drafters, one of each kind, which the broken ones derive from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from foredraft.framework.bases import ParallelSession, StepSession, TokenSession, empty_draft
from foredraft.framework.context import Context
from foredraft.framework.device import upload
from foredraft.framework.growth import Growth
from foredraft.framework.law import DenseLaw
from foredraft.framework.records import Draft, Round
from foredraft.framework.specs import INDEPENDENT
from foredraft.framework.tree_bases import Frontier, TreeStepSession


def followers(context: Context, newest: Tensor) -> Tensor:
    """How often each id followed ``newest [batch, places]`` in its row's own text, smoothed:
    ``[batch, places, vocab]``."""
    vocab, longest = context.vocab_size, max(map(len, context.tokens))
    padded = [[*row, *([vocab] * (longest - len(row)))] for row in context.tokens]
    text = upload(padded, context.device)
    same = (text[:, None, :-1] == newest.unsqueeze(2)).double()
    counts = torch.full((*newest.shape, vocab + 1), 0.25, dtype=torch.float64, device=text.device)
    counts.scatter_add_(2, text[:, None, 1:].expand(same.shape), same)
    return counts[..., :vocab]


class Bigram(StepSession):
    """Draws from what followed the newest token before."""

    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        newest = drafted[-1] if drafted else self.committed()
        return followers(self.context, newest.unsqueeze(1)).log().squeeze(1)

    def committed(self) -> Tensor:
        """The newest committed ids, ``[batch]``."""
        return upload([row[-1] for row in self.context.tokens], self.context.device)


class Bigram32(Bigram):
    """The same in single precision."""

    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        return super().next_logits(drafted).float()


class Drawn(Bigram):
    """A bigram that draws by hand: one method for each step that can go wrong."""

    def propose(self, gammas: list[int]) -> Draft:
        drafted: list[Tensor] = []
        laws: list[Tensor] = []
        for position in range(max(gammas)):
            law = self.context.law(self.next_logits(drafted), drafted)
            drafted.append(self.drawn(law, position))
            laws.append(self.reported(law, drafted[-1], position))
        if not drafted:
            return empty_draft(self.context)
        return self.packed(gammas, torch.stack(drafted, 1), torch.stack(laws, 1))

    def drawn(self, law: Tensor, position: int) -> Tensor:
        """The next token, ``[batch]``."""
        return self.context.draw(law, position)

    def reported(self, law: Tensor, token: Tensor, position: int) -> Tensor:
        """What is said of it, ``[batch, vocab]``."""
        return law

    def packed(self, gammas: list[int], tokens: Tensor, laws: Tensor) -> Draft:
        """The draft of ``tokens [batch, width]``."""
        lengths = self.kept(gammas, tokens, laws.gather(2, tokens.unsqueeze(2)).squeeze(2))
        width = max(lengths)
        return Draft(tokens[:, :width], lengths, DenseLaw(laws[:, :width]))

    def kept(self, gammas: list[int], tokens: Tensor, probs: Tensor) -> list[int]:
        """How much of it each row proposes."""
        return list(gammas)


class Ending(Drawn):
    """Ends a draft behind id 1, which it takes for an end. That is allowed: what it drew is kept."""

    def kept(self, gammas: list[int], tokens: Tensor, probs: Tensor) -> list[int]:
        rows = zip(tokens.tolist(), gammas, strict=True)
        return [row.index(1, 0, n) + 1 if 1 in row[:n] else n for row, n in rows]


class Unigrams(ParallelSession):
    """All positions at once, each from its own guess."""

    def all_logits(self, width: int) -> Tensor:
        newest = upload([row[-1] for row in self.context.tokens], self.context.device)
        places = newest.unsqueeze(1) + torch.arange(width, device=newest.device)
        return followers(self.context, places % self.context.vocab_size).log()


class Copier(TokenSession):
    """Copies what followed the last occurrence of the newest token."""

    def continuation(self, row: int, gamma: int) -> Sequence[int]:
        tokens = self.context.tokens[row]
        for at in range(len(tokens) - 2, -1, -1):
            if tokens[at] == tokens[-1]:
                return tokens[at + 1 : at + 1 + gamma]
        return []


class Recurrent(StepSession):
    """A small recurrent model: one state per token taken in, kept as a key/value cache is.

    ``taken`` says how many states of a row are in use, ``fed`` how many of them are of drafted
    tokens; ``pending`` are committed ids that are still to be taken in.
    """

    def __init__(self, context: Context, config: Any = None) -> None:
        super().__init__(context, config)
        slots = (context.rows, 2 * context.capacity + 8, context.vocab_size)
        self.states = torch.zeros(slots, dtype=torch.float64, device=context.device)
        self.taken, self.fed = [0] * context.rows, [0] * context.rows
        self.pending = [list(row) for row in context.tokens]

    def next_logits(self, drafted: list[Tensor]) -> Tensor:
        if not drafted:
            self.catch_up()
        else:
            live = self.drafting(len(drafted))
            self.take(drafted[-1], live)
            self.fed = [n + one for n, one in zip(self.fed, live, strict=True)]
        newest = self.states[self.places, upload(self.taken, self.context.device)]
        return newest + 2 * newest.roll(1, -1)

    @property
    def places(self) -> Tensor:
        """``[batch]``, the numbers of the rows."""
        return torch.arange(self.context.rows, device=self.context.device)

    def catch_up(self) -> None:
        """Takes in what was committed since."""
        for column in range(max(map(len, self.pending))):
            live = [int(column < len(row)) for row in self.pending]
            ids = [row[column] if column < len(row) else 0 for row in self.pending]
            self.take(upload(ids, self.context.device), live)
        self.pending = [[] for _ in self.pending]
        self.fed = [0] * len(self.fed)

    def take(self, tokens: Tensor, live: list[int]) -> None:
        """Takes in one token ``[batch]`` of each live row."""
        more, at = upload(live, tokens.device), upload(self.taken, tokens.device)
        state = self.states[self.places, at]
        after = 0.5 * state + torch.nn.functional.one_hot(tokens, self.context.vocab_size)
        self.states[self.places, at + more] = after.where(more.unsqueeze(1) > 0, state)
        self.taken = [n + one for n, one in zip(self.taken, live, strict=True)]

    def observe(self, outcome: Round) -> None:
        for place, row in enumerate(outcome.rows):
            kept = min(row.accepted, self.fed[place])
            self.taken[place] -= self.fed[place] - kept
            self.pending[place] += row.emitted[kept:]
            self.fed[place] = 0

    def select(self, rows: list[int]) -> None:
        self.states = self.states[upload(rows, self.states.device)]
        self.taken = [self.taken[row] for row in rows]
        self.fed = [self.fed[row] for row in rows]
        self.pending = [self.pending[row] for row in rows]


class Branching(TreeStepSession):
    """The bigram as a tree, two children to each node, drawn without replacement."""

    growth_plan = Growth(widths=(2, 2))

    def __init__(self, context: Context, config: Any = None) -> None:
        super().__init__(context, self.growth_plan)

    def next_logits_at(self, frontier: Frontier) -> Tensor:
        newest = upload([[row[-1]] for row in self.context.tokens], self.context.device)
        return followers(self.context, frontier.last(1, newest).squeeze(-1)).log()


class BranchingAlike(Branching):
    """Its children drawn independently."""

    growth_plan = Growth(widths=(2, 2), children=INDEPENDENT)
