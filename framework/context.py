"""What drafters and policies see of the running batch, and the requests' own sampling and noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .device import upload
from .noise import Noise, Stream, draw
from .opinion import Opinion
from .records import DraftStep
from .sampling import Sampler
from .times.steps import FLAT, StepTimes
from .tree import Branches

if TYPE_CHECKING:
    from .interfaces import TargetSession


class Context:
    """What parts may see of the running batch. Committed ids are the one source of truth.

    Attributes (all read-only for parts):
        tokens: per row, the committed ids (prompt and output) on the host, as a list that the
            loop alone appends to.
        prompt_lengths: per row, how many of them are the prompt.
        vocab_size: number of target ids.
        capacity: the most ids any row can come to hold.
        device: where drafts have to lie.
        target: the target's session, for drafters that share its model or cache.
        member: which member of a drafter of several drafts this round, if the policy says so.
        detailed: whether an observer wants each row's ``RowDetail``.
        apart: whether each row is a run of its own, as in a replay of many texts: policies that share
            what they learn, or choose for all rows at once, have to keep such rows apart.
        noted: this round's notes, see ``note``: confidence and entropy ``[batch, 2]`` by position,
            NaN in rows without one.
    """

    apart: bool = False

    def __init__(
        self,
        tokens: list[list[int]],
        capacity: int,
        target: TargetSession,
        sampler: Sampler,
        noise: Noise,
        shared_noise: bool = False,
    ) -> None:
        self.tokens = tokens
        self.prompt_lengths = [len(row) for row in tokens]
        self.capacity = capacity
        self.target = target
        self.vocab_size = target.vocab_size
        self.device = target.device
        self.round_index = 0
        self.sampler = sampler
        self.noise = noise
        self.shared_noise = shared_noise
        self.member: int | None = None
        self.detailed = False
        self.noted: dict[int, Tensor] = {}
        self.times: Callable[[], StepTimes] = lambda: FLAT
        self._go_on: Callable[[DraftStep], list[bool]] | None = None

    def ask(self, go_on: Callable[[DraftStep], list[bool]]) -> None:
        """Sets who is asked (the loop calls this, for a policy that has an answer)."""
        self._go_on = go_on

    @property
    def asks_policy(self) -> bool:
        """Whether the policy has a say in how far drafts go."""
        return self._go_on is not None

    @property
    def rows(self) -> int:
        """Number of live rows."""
        return len(self.tokens)

    def newest(self, count: int, drafted: Sequence[Tensor] = ()) -> Tensor:
        """The ``count`` newest ids of every row: ``[batch, count]`` int64, the newest one last.

        ``drafted`` are this round's tokens so far, each ``[batch]``; they stand behind the committed
        ones. ``vocab_size``, which is no id, stands before the beginning of a short text.
        """
        ahead = max(0, count - len(drafted))
        missing = [self.vocab_size] * ahead
        rows = [[*missing, *row[-ahead:]][-ahead:] if ahead else [] for row in self.tokens]
        packed = torch.tensor(rows, dtype=torch.int64).reshape(self.rows, ahead)
        columns = [token.unsqueeze(1) for token in drafted[len(drafted) - count + ahead :]]
        return torch.cat([upload(packed, self.device), *columns], 1)

    def law(self, logits: Tensor, drafted: Sequence[Tensor] = ()) -> Tensor:
        """A drafter's logits ``[batch, vocab]`` through the requests' own sampling.

        ``drafted`` are this round's tokens so far, each ``[batch]``: penalties and the like
        have to see them.
        """
        branches = self._behind(drafted) if self.sampler.reads_prefix else None
        return self.sampler.draft_law(logits.unsqueeze(1), self.tokens, branches).squeeze(1)

    def thought(self, logits: Tensor, drafted: Sequence[Tensor] = ()) -> tuple[Tensor, Opinion]:
        """The same law, and the drafter's opinion (see ``DraftStep``)."""
        branches = self._behind(drafted) if self.sampler.reads_prefix else None
        return self.sampler.thought(logits.unsqueeze(1), self.tokens, branches)

    def note(self, step: DraftStep, token: Tensor, lengths: Sequence[int]) -> None:
        """Keeps confidence and entropy of a step for this round's details, where its law does not
        tell them: in rows that are greedy. ``lengths`` are those of a chain's rows."""
        if not (self.detailed and self.sampler.any_greedy):
            return
        seen = torch.stack([step.prob(token), step.entropy], 1).double()
        drafts = upload([length > step.position for length in lengths], self.device)
        before = self.noted.get(step.position, torch.full_like(seen, torch.nan))
        self.noted[step.position] = seen.where(drafts.unsqueeze(1), before)

    def branch_law(self, logits: Tensor, branches: Branches, full: Tensor | None = None) -> Tensor:
        """The same behind several nodes of a tree: ``[batch, places, vocab]``; ``full`` are the
        controlled logits, if they were asked for already."""
        return self.sampler.draft_law(logits, self.tokens, branches, full)

    def draw(self, probs: Tensor, position: int) -> Tensor:
        """Draws drafted token number ``position`` of this round. ``[batch, vocab] -> [batch]``."""
        if self.shared_noise:
            places = torch.full((self.rows, 1), position, device=self.device)
            return (probs.double().log() + self.gumbel(places)[:, 0]).argmax(-1)
        return draw(probs, self.uniforms(position, 1)[:, 0])

    def go_on(self, step: DraftStep) -> list[bool]:
        """Whether each row drafts one more token, by the policy. One device-to-host read; ask only
        where ``asks_policy`` says that it can matter."""
        return [True] * self.rows if self._go_on is None else self._go_on(step)

    def uniforms(self, start: int, count: int) -> Tensor:
        """This round's drafting noise for nodes ``start .. start + count - 1``, float64
        ``[batch, count]``."""
        return self.noise.uniform(Stream.DRAFT, self.round_index, start, count)

    def gumbel(self, ahead: Tensor) -> Tensor:
        """The noise that drafter and target share, ``ahead [batch, places]`` tokens behind the
        committed ones: ``[batch, places, vocab]``."""
        return self.noise.gumbel(self.answered().unsqueeze(1) + ahead, self.vocab_size)

    def answered(self) -> Tensor:
        """Committed answer tokens of each row, ``[batch]``."""
        pairs = zip(self.tokens, self.prompt_lengths, strict=True)
        return upload([len(row) - prompt for row, prompt in pairs], self.device)

    def _behind(self, drafted: Sequence[Tensor]) -> Branches:
        none = torch.zeros(self.rows, 0, dtype=torch.int64, device=self.device)
        tokens = torch.stack(list(drafted), 1) if drafted else none
        at = torch.full((self.rows, 1), len(drafted) - 1, device=self.device)
        return Branches.chain(tokens, at)

    def select(self, rows: list[int]) -> None:
        """Keeps the given rows, in that order (the loop calls this)."""
        self.tokens = [self.tokens[row] for row in rows]
        self.prompt_lengths = [self.prompt_lengths[row] for row in rows]
        self.sampler.select(rows)
        self.noise.select(rows)
