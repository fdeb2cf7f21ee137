"""The loop: draft, one target forward, verify, commit, observe. Read ``Batch.step`` first.

Plain autoregressive decoding is this loop with gamma 0. Each round reads from the device once
(``_read``); lengths live on the host because that read brings them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from .bases import empty_draft
from .clock import Clock
from .device import upload
from .guard import (
    BAD_TARGET,
    blame,
    check_accepted,
    check_draft,
    check_gammas,
    check_verdict,
    clamp_and_flag,
    raise_flags,
)
from .interfaces import (
    Context,
    Draft,
    Drafter,
    GammaPolicy,
    Round,
    RowOutcome,
    Target,
    Verdict,
    Verifier,
)
from .noise import Noise, Stream, draw
from .requests import Answer
from .sampling import Sampler
from .stopping import CANCELLED, Stopper


@dataclass(frozen=True)
class Parts:
    """The four parts of a run, and the names that faults and results carry."""

    target: Target
    drafter: Drafter
    verifier: Verifier
    policy: GammaPolicy
    names: dict[str, str]

    def named(self, kind: str) -> str:
        """``drafter 'ngram'``."""
        return f"{kind} {self.names.get(kind, 'given as an object')!r}"


def decode(parts: Parts, answers: list[Answer]) -> Iterator[Round]:
    """Runs the requests of ``answers`` as one batch and fills the answers, a round at a time."""
    with torch.inference_mode():
        batch = Batch(parts, answers)
    while batch.answers:
        with torch.inference_mode():
            outcome = batch.step()
        if outcome.rows:
            yield outcome


class Batch:
    """The live rows of a run, their sessions, and one step of the algorithm."""

    def __init__(self, parts: Parts, answers: list[Answer]) -> None:
        self.parts, self.answers = parts, list(answers)
        self.clock = Clock()
        self.stoppers = [_stopper(parts.target, answer) for answer in answers]
        self.context = self._open_target()
        with blame(parts.named("drafter")), self.clock.phase("prefill"):
            self.drafter = parts.drafter.start(self.context)
        with blame(parts.named("policy")):
            self.policy = parts.policy.start(self.context)
        self._spend()

    def step(self) -> Round:
        """One round of every live row."""
        self._release_cancelled()
        if not self.answers:
            return Round(self.context.round_index, [])
        draft = self._propose()
        with blame(self.parts.named("drafter")):
            checked, flags = clamp_and_flag(draft, self.context.vocab_size)
        target_probs = self._score(checked)
        with self.clock.phase("sampling"):
            verdict = self._verify(checked, target_probs)
            host = self._read(checked, target_probs, verdict, flags)
        raise_flags(
            self.parts.named("drafter"),
            self.parts.named("target"),
            draft,
            host.flags,
            self.context.vocab_size,
        )
        outcome = self._commit(checked, host)
        self._observe(outcome)
        self._release(
            [row for row, answer in enumerate(self.answers) if answer.finish_reason is None]
        )
        return outcome

    # --- the stages, in order -----------------------------------------------------------------

    def _open_target(self) -> Context:
        requests = [answer.request for answer in self.answers]
        tokens = [list(request.prompt) for request in requests]
        rooms = [stopper.room() for stopper in self.stoppers]
        capacity = max(len(row) + room for row, room in zip(tokens, rooms, strict=True))
        target = self.parts.target
        with blame(self.parts.named("target")), self.clock.phase("prefill"):
            session = target.start(len(tokens), capacity)
            session.prefill([row[:-1] for row in tokens])
        sampler = Sampler([request.sampling for request in requests], target.device)
        seeds, indices = [request.seed or 0 for request in requests], [r.index for r in requests]
        return Context(tokens, capacity, session, sampler, Noise(seeds, indices, target.device))

    def _propose(self) -> Draft:
        """Asks the policy, caps by what can still be emitted, asks the drafter."""
        part, rows = self.parts.named("policy"), self.context.rows
        with blame(part), self.clock.phase("draft"):
            wanted = check_gammas(part, self.policy.gammas(), rows)
        # The round itself emits one token, so drafting more than the room less one is waste.
        gammas = [
            min(g, stopper.room() - 1) for g, stopper in zip(wanted, self.stoppers, strict=True)
        ]
        if not any(gammas):
            return empty_draft(self.context)
        part = self.parts.named("drafter")
        with blame(part), self.clock.phase("draft"):
            return check_draft(part, self.drafter.propose(list(gammas)), gammas, self.context)

    def _score(self, draft: Draft) -> torch.Tensor:
        """One target forward over the newest token and the draft: ``[batch, width + 1, vocab]``."""
        newest = upload([[row[-1]] for row in self.context.tokens], self.context.device)
        counts = [length + 1 for length in draft.lengths]
        with blame(self.parts.named("target")), self.clock.phase("verify"):
            logits = self.context.target.forward(torch.cat([newest, draft.tokens], 1), counts)
        with self.clock.phase("sampling"):
            return self.context.sampler.law(logits)

    def _verify(self, draft: Draft, target_probs: torch.Tensor) -> Verdict:
        noise = self.context.noise.uniform(Stream.ACCEPT, self.context.round_index, 0, draft.width)
        part = self.parts.named("verifier")
        with blame(part):
            verdict = self.parts.verifier.verify(draft, target_probs, noise)
            return check_verdict(part, verdict, draft, self.context)

    def _read(
        self, draft: Draft, target_probs: torch.Tensor, verdict: Verdict, flags: torch.Tensor
    ) -> _HostRead:
        """Draws the next token and brings all that the host needs across in one transfer."""
        uniform = self.context.noise.uniform(Stream.NEXT, self.context.round_index, 0, 1)[:, 0]
        following = draw(verdict.next_law, uniform)
        no_law = ~(verdict.next_law.sum(-1) > 0.5)  # also true for NaN
        flags = flags + no_law.double() * BAD_TARGET
        with blame(self.parts.named("drafter")):
            overlap = draft.law.overlap(target_probs[:, : draft.width]).double()
        columns = [verdict.accepted, flags, following]
        packed = torch.cat(
            [torch.stack([c.double() for c in columns], 1), draft.tokens.double(), overlap], 1
        )
        return _HostRead(packed.tolist(), draft.width)

    def _commit(self, draft: Draft, host: _HostRead) -> Round:
        """Appends each row's tokens up to its stop and moves the lengths."""
        check_accepted(self.parts.named("verifier"), host.accepted, draft.lengths)
        with blame(self.parts.named("target")):
            self.context.target.advance([accepted + 1 for accepted in host.accepted])
        rows = [self._commit_row(row, draft.lengths[row], host) for row in range(len(self.answers))]
        return Round(self.context.round_index, rows, self._spend(rows))

    def _commit_row(self, row: int, drafted: int, host: _HostRead) -> RowOutcome:
        answer, accepted = self.answers[row], host.accepted[row]
        chain = host.tokens[row]
        kept, reason = self.stoppers[row].feed([*chain[:accepted], host.following[row]])
        self.context.tokens[row].extend(kept)
        answer.token_ids.extend(kept)
        answer.finish_reason = reason
        # A stop inside the accepted run: later positions were never reached by this answer.
        reached = min(len(kept), accepted + 1, drafted)
        return RowOutcome(
            request=answer.request.index,
            drafted=chain[:drafted],
            accepted=min(accepted, len(kept)),
            emitted=kept,
            overlaps=host.overlaps[row][:reached],
            finish=reason,
        )

    def _observe(self, outcome: Round) -> None:
        with blame(self.parts.named("drafter")):
            self.drafter.observe(outcome)
        with blame(self.parts.named("policy")):
            self.policy.observe(outcome)
        self.context.round_index += 1

    # --- rows come and go ---------------------------------------------------------------------

    def _release_cancelled(self) -> None:
        for answer in self.answers:
            if answer.cancelled:
                answer.finish_reason = CANCELLED
        self._release([row for row, answer in enumerate(self.answers) if not answer.cancelled])

    def _release(self, keep: list[int]) -> None:
        if len(keep) == len(self.answers):
            return
        self.answers = [self.answers[row] for row in keep]
        self.stoppers = [self.stoppers[row] for row in keep]
        if not keep:
            return
        with blame(self.parts.named("target")):
            self.context.target.select(keep)
        with blame(self.parts.named("drafter")):
            self.drafter.select(keep)
        with blame(self.parts.named("policy")):
            self.policy.select(keep)
        self.context.select(keep)

    def _spend(self, rows: list[RowOutcome] | None = None) -> dict[str, float]:
        """Books the time since the last call on every live row."""
        seconds = self.clock.lap()
        for row, answer in enumerate(self.answers):
            if rows is None:
                answer.metrics.spend(seconds)
            else:
                answer.metrics.count(rows[row], seconds)
        return seconds


class _HostRead:
    """The round's one read, taken apart."""

    def __init__(self, packed: list[list[float]], width: int) -> None:
        self.accepted = [int(row[0]) for row in packed]
        self.flags = [int(row[1]) for row in packed]
        self.following = [int(row[2]) for row in packed]
        self.tokens = [[int(token) for token in row[3 : 3 + width]] for row in packed]
        self.overlaps = [row[3 + width :] for row in packed]


def _stopper(target: Target, answer: Answer) -> Stopper:
    request, limit = answer.request, target.max_context
    room = None if limit is None else limit - len(request.prompt)
    return Stopper(target.eos_ids, request.stop, target.tokenizer, request.max_new_tokens, room)
