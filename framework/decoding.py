"""The loop: draft, one target forward, verify, commit, observe. Read ``Batch.step`` first.

Plain autoregressive decoding is this loop with gamma 0. Each round reads from the device once
(``_read``); lengths live on the host because that read brings them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch

from .bases import empty_draft
from .clock import Clock
from .constraints import Progress
from .context import Context
from .device import upload
from .guard import (
    blame,
    check_accepted,
    check_draft,
    check_gammas,
    check_go_on,
    check_verdict,
    clamp_and_flag,
    flag_laws,
    raise_flags,
)
from .hosttree import PADDING
from .interfaces import Drafter, GammaPolicy, PolicySession, Target, Verifier
from .logprobs import PROCESSED, emitted_scores
from .noise import Stream, draw
from .opening import noise_for, progress_of, sampler_for, stopper_for
from .policies.mixed import start_policies
from .readback import RowRead, path_of, read_back
from .records import Draft, DraftStep, Round, RowOutcome, Scored, Trial, Verdict
from .requests import Answer
from .stopping import CANCELLED
from .times.steps import StepTimes
from .tree import Branches


@dataclass(frozen=True)
class Parts:
    """The four parts of a run, and the names that faults and results carry.

    Args:
        times: gives what steps of so many rows cost, for policies that ask.
    """

    target: Target
    drafter: Drafter
    verifier: Verifier
    policy: GammaPolicy
    names: dict[str, str]
    times: Callable[[int], StepTimes] | None = None

    def named(self, kind: str) -> str:
        """``drafter 'ngram'``."""
        return f"{kind} {self.names.get(kind, 'given as an object')!r}"


def decode(parts: Parts, answers: list[Answer], detailed: bool = False) -> Iterator[Round]:
    """Runs the requests of ``answers`` as one batch and fills the answers, a round at a time."""
    with torch.inference_mode():
        batch = Batch(parts, answers, detailed)
    while batch.answers:
        with torch.inference_mode():
            outcome = batch.step()
        if outcome.rows:
            yield outcome


class Batch:
    """The live rows of a run, their sessions, and one step of the algorithm."""

    def __init__(self, parts: Parts, answers: list[Answer], detailed: bool = False) -> None:
        self.parts, self.answers, self.detailed = parts, list(answers), detailed
        self.clock = Clock()
        self.recorder: Callable[[Trial, list[RowRead]], None] | None = None  # see audit.py
        progress = [progress_of(answer.request) for answer in answers]
        self.stoppers = [
            stopper_for(parts.target, answer.request, one)
            for answer, one in zip(answers, progress, strict=True)
        ]
        self.context = self._open_target(progress)
        self.context.detailed = detailed
        if parts.times is not None:
            self.context.times = partial(parts.times, len(answers))
        with blame(parts.named("drafter")), self.clock.phase("prefill"):
            self.drafter = parts.drafter.start(self.context)
        with blame(parts.named("policy")):
            requests = [answer.request for answer in answers]
            self.policy = start_policies(parts.policy, requests, self.context)
        if isinstance(self.policy, PolicySession) and self.policy.stops:
            self.context.ask(self._go_on)
        self._spend()

    def step(self) -> Round:
        """One round of every live row."""
        self._release_cancelled()
        if not self.answers:
            return Round(self.context.round_index, [])
        draft, flags = self._propose()
        logits = self._score(draft)
        with self.clock.phase("sampling"):
            trial = self._trial(draft, logits)
            verdict = self._verify(trial)
            rows = self._read(trial, verdict, flags, logits)
        if self.recorder is not None:
            self.recorder(trial, rows)
        outcome = self._commit(rows)
        self._observe(replace(outcome, scored=Scored(draft, logits)))
        self._release(
            [row for row, answer in enumerate(self.answers) if answer.finish_reason is None]
        )
        return outcome

    # --- the stages, in order -----------------------------------------------------------------

    def _open_target(self, progress: list[Progress | None]) -> Context:
        requests, target = [answer.request for answer in self.answers], self.parts.target
        tokens = [list(request.prompt) for request in requests]
        rooms = [stopper.room() for stopper in self.stoppers]
        capacity = max(len(row) + room for row, room in zip(tokens, rooms, strict=True))
        with blame(self.parts.named("target")), self.clock.phase("prefill"):
            # A tree's nodes need slots of their own until its path is moved together.
            session = target.start(len(tokens), capacity + self.parts.drafter.max_nodes)
            if self.parts.drafter.reads:
                session.watch(self.parts.drafter.reads)
            session.prefill([row[:-1] for row in tokens])
        sampler = sampler_for(requests, target, progress)
        noise = noise_for(requests, target.device)
        shared = self.parts.verifier.shared_noise
        return Context(tokens, capacity, session, sampler, noise, shared)

    def _propose(self) -> tuple[Draft, torch.Tensor]:
        """Asks the policy, caps by what can still be emitted, asks the drafter. Returns the draft,
        made safe to index by, and flags of what was wrong with it."""
        part, rows = self.parts.named("policy"), self.context.rows
        with blame(part), self.clock.phase("draft"):
            wanted = check_gammas(part, self.policy.gammas(), rows)
            self.context.member = self.policy.member()
        # The round itself emits one token, so drafting more than the room less one is waste.
        gammas = self._gammas = [
            min(g, stopper.room() - 1) for g, stopper in zip(wanted, self.stoppers, strict=True)
        ]
        part = self.parts.named("drafter")
        self.context.noted.clear()
        with blame(part), self.clock.phase("draft"):
            draft = self._draft(part, gammas)
            self._drafted = draft
            return clamp_and_flag(draft, self.context.vocab_size, gammas)

    def _go_on(self, step: DraftStep) -> list[bool]:
        """The policy's second question, for each row."""
        part = self.parts.named("policy")
        with blame(part):
            return check_go_on(part, self.policy.go_on(step), self.context.rows)

    def _draft(self, part: str, gammas: list[int]) -> Draft:
        if not any(gammas):
            return empty_draft(self.context)
        draft = self.drafter.propose(list(gammas))
        drafter, verifier = self.parts.drafter, self.parts.verifier
        return check_draft(part, draft, gammas, self.context, drafter, verifier)

    def _score(self, draft: Draft) -> torch.Tensor:
        """One target forward over the newest token and the draft: ``[batch, width + 1, vocab]``."""
        newest = upload([[row[-1]] for row in self.context.tokens], self.context.device)
        counts = [length + 1 for length in draft.lengths]
        tokens = torch.cat([newest, draft.tokens], 1)
        with blame(self.parts.named("target")), self.clock.phase("verify"):
            if draft.ahead is not None:
                return self.context.target.resume(tokens, counts, draft.ahead)
            return self.context.target.forward(tokens, counts, draft.tree)

    def _trial(self, draft: Draft, logits: torch.Tensor) -> Trial:
        """The target's laws at every node, as plain decoding would have had them there."""
        context, sampler = self.context, self.context.sampler
        branches = None
        if sampler.reads_prefix:
            at = torch.arange(-1, draft.width, device=context.device).expand(context.rows, -1)
            real = torch.nn.functional.pad(draft.mask, (1, 0), value=True)
            branches = Branches(draft.tokens, draft.shape, at.where(real, PADDING))
        controlled = sampler.controlled(logits, context.tokens, branches)
        return Trial(
            draft=draft,
            # No law behind what is impossible (a ban on all tokens, say) is zeros, not NaN: nothing
            # that multiplies it with a weight of 0 is spoilt, and reaching it is still noticed.
            target_probs=sampler.law(controlled).nan_to_num_(nan=0.0),
            uniforms=context.noise.uniform(Stream.ACCEPT, context.round_index, 0, draft.width),
            logits=controlled,
            greedy=sampler.greedy,
            gumbel=lambda: context.gumbel(torch.nn.functional.pad(draft.shape.depths + 1, (1, 0))),
        )

    def _verify(self, trial: Trial) -> Verdict:
        part = self.parts.named("verifier")
        with blame(part):
            verdict = self.parts.verifier.verify(trial)
            return check_verdict(part, verdict, trial.draft, self.context)

    def _read(
        self, trial: Trial, verdict: Verdict, flags: torch.Tensor, logits: torch.Tensor
    ) -> list[RowRead]:
        """Draws the next token and brings all that the host needs across in one transfer."""
        uniform = self.context.noise.uniform(Stream.NEXT, self.context.round_index, 0, 1)[:, 0]
        following = verdict.token
        if following is None:
            following = draw(verdict.next_law, uniform)
        flags = flags + flag_laws(trial, verdict)
        scores = self._scores(trial, verdict, following, logits)
        with blame(self.parts.named("drafter")):
            noted = self.context.noted if self.detailed else None
            rows = read_back(trial, verdict, following, flags, scores, noted)
        named = self.parts.named
        parts = named("target"), named("drafter"), named("verifier")
        raise_flags(parts, self._drafted, [r.flags for r in rows], self.context.vocab_size)
        check_accepted(self.parts.named("verifier"), rows, self.context.vocab_size)
        return rows

    def _scores(
        self, trial: Trial, verdict: Verdict, following: torch.Tensor, logits: torch.Tensor
    ) -> torch.Tensor | None:
        """Log-probabilities and ranks, if a live request wants them."""
        wanted = [answer.request.logprobs for answer in self.answers]
        if not any(wanted):
            return None
        processed = upload([kind == PROCESSED for kind in wanted], self.context.device)
        path = path_of(trial.draft, verdict)
        return emitted_scores(
            logits, trial.target_probs, processed, path, verdict.accepted, trial.draft.tokens,
            following,
        )  # fmt: skip

    def _commit(self, rows: list[RowRead]) -> Round:
        """Appends each row's tokens up to its stop and moves the lengths."""
        with blame(self.parts.named("target")):
            self.context.target.advance([[0, *(node + 1 for node in row.path)] for row in rows])
        outcomes = [self._commit_row(row, read) for row, read in enumerate(rows)]
        return Round(self.context.round_index, outcomes, self._spend(outcomes))

    def _commit_row(self, row: int, read: RowRead) -> RowOutcome:
        answer = self.answers[row]
        chain = [read.drafted[node] for node in read.path]
        kept, reason = self.stoppers[row].feed([*chain, read.following])
        self.context.tokens[row].extend(kept)
        answer.take(kept, read.logprobs, read.ranks, reason)
        # A stop inside the accepted run: later positions were never reached by this answer.
        whole = len(kept) > read.accepted
        return RowOutcome(
            request=answer.request.index,
            drafted=read.drafted,
            accepted=min(read.accepted, len(kept)),
            emitted=kept,
            overlaps=read.overlaps[: len(kept)],
            finish=reason,
            path=read.path[: len(kept)],
            rejected=read.rejected() if whole else [],
            gamma=self._gammas[row],
            detail=read.detail,
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
        """Books the time since the last call on every live row. What a round took has no prefill,
        which comes before the first."""
        seconds = self.clock.lap()
        for row, answer in enumerate(self.answers):
            if rows is None:
                answer.metrics.spend(seconds)
            else:
                answer.metrics.count(rows[row], seconds)
        return {phase: value for phase, value in seconds.items() if phase != "prefill"}
