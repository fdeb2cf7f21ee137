"""Drafters that do as they are told: for tests of verifiers, policies, stops and the loop itself.

All of them are ordinary drafters and show the contract at its smallest. None needs a model.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..bases import TokenSession, point_mass_draft
from ..context import Context
from ..interfaces import Drafter, DraftSession
from ..law import DenseLaw
from ..records import Draft

Ids = Sequence[int]
Script = Callable[[int, int], Ids]


class ScriptedDrafter(Drafter):
    """Given tokens, a given draft law, or both.

    Args:
        tokens: ``tokens(row, round)`` gives what row ``row`` (its place when the batch began)
            drafts in round ``round``; it is cut to the gamma asked for. Without a law the draft is
            a point mass.
        law: the law of every drafted position, ``[vocab]``, or one per row, ``[rows, vocab]``. With
            ``tokens`` it is only reported (which is how a drafter lies); alone, the tokens are
            drawn from it through the request's own noise.
    """

    def __init__(self, tokens: Script | None = None, law: Tensor | None = None) -> None:
        if tokens is None and law is None:
            raise ValueError("ScriptedDrafter needs tokens, a law or both")
        self.tokens, self.law = tokens, law

    def start(self, context: Context) -> ScriptedSession:
        return ScriptedSession(self, context)


class ScriptedSession(DraftSession):
    """Remembers which rows of the first batch are still alive."""

    def __init__(self, drafter: ScriptedDrafter, context: Context) -> None:
        self.drafter, self.context = drafter, context
        self.places = list(range(context.rows))

    def propose(self, gammas: list[int]) -> Draft:
        if self.drafter.tokens is None:
            return self._drawn(gammas)
        index = self.context.round_index
        chains = [
            list(self.drafter.tokens(place, index))[:gamma]
            for place, gamma in zip(self.places, gammas, strict=True)
        ]
        draft = point_mass_draft(chains, self.context.device)
        if self.drafter.law is None or not draft.width:
            return draft
        return Draft(draft.tokens, draft.lengths, self._law(draft.width))

    def select(self, rows: list[int]) -> None:
        self.places = [self.places[row] for row in rows]

    def _drawn(self, gammas: list[int]) -> Draft:
        law = self._law(max(gammas))
        drawn = [self.context.draw(law.probs[:, at], at) for at in range(max(gammas))]
        return Draft(torch.stack(drawn, 1), list(gammas), law)

    def _law(self, width: int) -> DenseLaw:
        given = self.drafter.law
        assert given is not None
        rows = given[self.places] if given.dim() == 2 else given.expand(self.context.rows, -1)
        return DenseLaw(rows.unsqueeze(1).repeat(1, width, 1))


class OracleDrafter(Drafter):
    """Replays answers that are known beforehand, with errors on demand.

    A row is found by its prompt, so the batch may be cut in any way.

    Args:
        prompts, answers: ids, one answer per prompt; behind an answer's end nothing is drafted.
        vocab_size: a wrong token is the right one plus one, modulo this.
        wrong: share of positions that are wrong; which ones is fixed by ``seed``, row and position.
        right_for: how many tokens of each draft are right before the rest is wrong; None is all.
    """

    def __init__(
        self,
        prompts: Sequence[Ids],
        answers: Sequence[Ids],
        vocab_size: int,
        *,
        wrong: float = 0.0,
        right_for: int | None = None,
        seed: int = 0,
    ) -> None:
        pairs = zip(prompts, answers, strict=True)
        self.answers = {tuple(prompt): list(answer) for prompt, answer in pairs}
        self.vocab_size, self.wrong, self.right_for = vocab_size, wrong, right_for
        self.seed = seed

    def start(self, context: Context) -> OracleSession:
        return OracleSession(self, context)


class OracleSession(TokenSession):
    """Reads the place in the answer off the committed ids; no state."""

    def __init__(self, drafter: OracleDrafter, context: Context) -> None:
        super().__init__(context)
        self.drafter = drafter

    def continuation(self, row: int, gamma: int) -> Sequence[int]:
        tokens, begin = self.context.tokens[row], self.context.prompt_lengths[row]
        prompt = tuple(tokens[:begin])
        done = len(tokens) - begin
        right = self.drafter.answers[prompt][done : done + gamma]
        return [
            (token + self._errs(prompt, done, step)) % self.drafter.vocab_size
            for step, token in enumerate(right)
        ]

    def _errs(self, prompt: tuple[int, ...], done: int, step: int) -> int:
        right_for = self.drafter.right_for
        if right_for is not None and step >= right_for:
            return 1
        key = f"{self.drafter.seed}/{prompt}/{done + step}"
        return int(random.Random(key).random() < self.drafter.wrong)


class WrongDrafter(OracleDrafter):
    """Never right: every drafted token is the known one plus one."""

    def __init__(self, prompts: Sequence[Ids], answers: Sequence[Ids], vocab_size: int) -> None:
        super().__init__(prompts, answers, vocab_size, right_for=0)


class FaultyDrafter(Drafter):
    """Breaks the contract in one way (a key of ``FAULTS``), to test who gets the blame."""

    def __init__(self, fault: str) -> None:
        self.fault = FAULTS[fault]

    def start(self, context: Context) -> FaultySession:
        return FaultySession(self.fault, context)


class FaultySession(DraftSession):
    """Makes the faulty draft."""

    def __init__(self, fault: Fault, context: Context) -> None:
        self.fault, self.context = fault, context

    def propose(self, gammas: list[int]) -> Draft:
        rows, width, vocab = self.context.rows, max(gammas), self.context.vocab_size
        tokens = torch.zeros(rows, width, dtype=torch.int64)
        probs = torch.full((rows, width, vocab), 1 / vocab, dtype=torch.float64)
        return self.fault(Draft(tokens, list(gammas), DenseLaw(probs)), vocab)


Fault = Callable[[Draft, int], Draft]


def _token(token: Callable[[int], int]) -> Fault:
    return lambda draft, vocab: replace(draft, tokens=torch.full_like(draft.tokens, token(vocab)))


def _law(change: Callable[[Tensor], Tensor]) -> Fault:
    return lambda draft, vocab: replace(draft, law=DenseLaw(change(draft.law.probs)))  # type: ignore[attr-defined]


def _one(probs: Tensor, token: int) -> Tensor:
    return torch.eye(probs.shape[-1], dtype=probs.dtype)[token]


def _lengths(change: Callable[[list[int]], list[int]]) -> Fault:
    return lambda draft, vocab: replace(draft, lengths=change(draft.lengths))


# The drafted token is 0 everywhere and the law uniform, before the fault.
FAULTS: dict[str, Fault] = {
    "raises": lambda draft, vocab: replace(draft, lengths=[1 // 0]),
    "id_too_high": _token(lambda vocab: vocab),
    "id_negative": _token(lambda vocab: -1),
    "law_nan": _law(lambda probs: probs * torch.nan),
    "law_sum": _law(lambda probs: probs * 2),
    "law_negative": _law(lambda probs: probs + _one(probs, 0) - _one(probs, 1)),
    "law_zero_at_token": _law(lambda probs: _one(probs, 1).expand(probs.shape)),
    "law_shape": _law(lambda probs: probs[..., :-1]),
    "dtype": lambda draft, vocab: replace(draft, tokens=draft.tokens.int()),
    "shape": lambda draft, vocab: replace(draft, tokens=draft.tokens[:, :-1]),
    "too_long": _lengths(lambda lengths: [length + 1 for length in lengths]),
    "negative_length": _lengths(lambda lengths: [-1 for _ in lengths]),
    "row_count": _lengths(lambda lengths: lengths[1:]),
    "not_a_draft": lambda draft, vocab: draft.tokens,  # type: ignore[dict-item,return-value]
}
