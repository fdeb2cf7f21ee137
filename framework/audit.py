"""The audit: every accept and every correction of a run, derived a second time.

While a run is recorded, each row's draft and outcome are kept. Afterwards the target's laws are
computed anew, from a session that is opened for one round alone and is fed every drafted path as
plain text would be (no draft, no tree, no batch, no rollback), the noise is computed anew from the
request's key, and the verifier is asked again. A run that is what it should be gives the same
decisions; where it does not, the row's margin tells a fault from rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .decoding import Batch, Parts
from .errors import InputError
from .law import DenseLaw, DraftLaw, PointMass
from .noise import Stream, draw
from .opening import noise_for, progress_of, sampler_for
from .readback import RowRead
from .records import Draft, Trial, Verdict
from .requests import Answer
from .tree import Branches, Tree


@dataclass(frozen=True)
class Recorded:
    """One row of one round, as it was: what was committed before it, its draft, its outcome."""

    answer: Answer
    round_index: int
    committed: list[int]
    draft: Draft
    target_probs: Tensor
    path: list[int]
    following: int


@dataclass(frozen=True)
class Finding:
    """One row of one round, as it was and as it was derived again.

    Args:
        round_index: its round.
        same: whether the accepted path and the next token came out again.
        law_error: the largest difference between the laws of the run and the laws derived.
        margin: how far the closest decision was from going the other way, in probability.
        redrawn: whether the drafted tokens came out of the reported law and the noise again;
            None where they were not drawn one by one.
    """

    round_index: int
    same: bool
    law_error: float
    margin: float
    redrawn: bool | None


@dataclass
class Audit:
    """The findings of a run."""

    answers: list[Answer]
    findings: list[Finding] = field(default_factory=list)

    def faults(self, tolerance: float) -> list[Finding]:
        """Findings that rounding does not explain: a law off by more than ``tolerance``, or another
        decision although no law was off and the margin was wider."""
        return [
            f
            for f in self.findings
            if f.law_error > tolerance
            or f.redrawn is False
            or (not f.same and f.margin > tolerance)
        ]


@torch.inference_mode()
def audit(parts: Parts, answers: Sequence[Answer], most: int | None = None) -> Audit:
    """Runs requests as one batch and derives every decision again.

    Args:
        most: derive no more than so many, spread evenly over the run; None derives all. Each costs a
            prefill.

    Raises:
        InputError: a request has processors with a state: their laws depend on the calls made.
    """
    if any(hasattr(p, "fork") for answer in answers for p in answer.request.processors):
        raise InputError("an audit cannot derive the laws of processors with a state; drop them.")
    batch, records = Batch(parts, list(answers)), []
    while batch.answers:
        live, committed = list(batch.answers), [list(row) for row in batch.context.tokens]
        at = batch.context.round_index
        batch.recorder = lambda trial, rows, live=live, committed=committed, at=at: records.extend(
            _records(trial, rows, live, committed, at)
        )
        batch.step()
    count = len(records) if most is None else min(most, len(records))
    chosen = [records[at * len(records) // count] for at in range(count)]
    return Audit(list(answers), [_derive(parts, record) for record in chosen])


def _records(
    trial: Trial, rows: list[RowRead], live: list[Answer], committed: list[list[int]], at: int
) -> list[Recorded]:
    return [
        Recorded(
            answer=live[row],
            round_index=at,
            committed=committed[row],
            draft=_one_row(trial.draft, row),
            target_probs=trial.target_probs[row : row + 1, : trial.draft.lengths[row] + 1].clone(),
            path=read.path,
            following=read.following,
        )
        for row, read in enumerate(rows)
    ]


def _one_row(draft: Draft, row: int) -> Draft:
    """One row's draft alone, without padding."""
    length = draft.lengths[row]
    tokens = draft.tokens[row : row + 1, :length].clone()
    law: DraftLaw = PointMass(tokens)
    if isinstance(draft.law, DenseLaw) and draft.law.index is not None:
        index = draft.law.index[row : row + 1, :length].clone()
        law = DenseLaw(draft.law.probs[row : row + 1].clone(), index)
    elif isinstance(draft.law, DenseLaw):
        law = DenseLaw(draft.law.probs[row : row + 1, :length].clone())
    tree = draft.tree
    if tree is not None:
        tree = Tree(tree.parents[row : row + 1, :length].clone(), tree.depth, tree.children)
    return Draft(tokens, [length], law, tree, draft.drawn)


def _derive(parts: Parts, record: Recorded) -> Finding:
    """Laws, noise and verdict of one row of one round, from nothing but its text and its key."""
    request, draft = record.answer.request, record.draft
    noise = noise_for([request], parts.target.device)
    sampler = sampler_for([request], parts.target, [progress_of(request)])
    logits = _teacher_forced(parts, record)
    at = torch.arange(-1, draft.width, device=logits.device).unsqueeze(0)
    branches = Branches(draft.tokens, draft.shape, at)
    controlled = sampler.controlled(logits, [record.committed], branches)
    answered = len(record.committed) - len(request.prompt)
    depths = torch.nn.functional.pad(draft.shape.depths + 1, (1, 0)) + answered
    trial = Trial(
        draft=draft,
        target_probs=sampler.law(controlled).nan_to_num_(nan=0.0),
        uniforms=noise.uniform(Stream.ACCEPT, record.round_index, 0, draft.width),
        logits=controlled,
        greedy=sampler.greedy,
        gumbel=lambda: noise.gumbel(depths, parts.target.vocab_size),
    )
    verdict = parts.verifier.verify(trial)
    point = noise.uniform(Stream.NEXT, record.round_index, 0, 1)[:, 0]
    following = draw(verdict.next_law, point) if verdict.token is None else verdict.token
    accepted = int(verdict.accepted[0])
    path = list(range(accepted)) if verdict.path is None else verdict.path[0, :accepted].tolist()
    return Finding(
        round_index=record.round_index,
        same=path == record.path and int(following[0]) == record.following,
        law_error=float((trial.target_probs - record.target_probs).abs().max()),
        margin=_margin(trial, verdict, point),
        redrawn=_redrawn(parts, record, trial),
    )


def _teacher_forced(parts: Parts, record: Recorded) -> Tensor:
    """The target's logits behind the committed ids and behind each node: ``[1, width + 1, vocab]``.

    Every path is a text of its own, in a session of its own.
    """
    parents = record.draft.shape.parents[0].tolist()
    tokens = record.draft.tokens[0].tolist()
    rows: dict[int, Tensor] = {}
    for leaf in sorted({-1, *range(len(tokens))} - set(parents), reverse=True) or [-1]:
        path = [leaf] if leaf >= 0 else []
        while path and parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        session = parts.target.start(1, len(record.committed) + len(path))
        session.prefill([record.committed[:-1]])
        text = [record.committed[-1], *(tokens[node] for node in path)]
        fed = torch.tensor([text], device=parts.target.device)
        logits = session.forward(fed, [len(text)])
        rows |= {node: logits[:, place] for place, node in enumerate([-1, *path])}
    return torch.stack([rows[node] for node in range(-1, len(tokens))], 1)


def _margin(trial: Trial, verdict: Verdict, point: Tensor) -> float:
    """The least distance of a uniform from what it was compared with."""
    if verdict.token is not None:  # coupled: the gap between the two largest scores
        best = (trial.target_probs.double().log() + trial.gumbel()).topk(2, dim=-1).values
        return float((best[..., 0] - best[..., 1]).min())
    decided = verdict.accept_probs > 0
    gaps = (trial.uniforms - verdict.accept_probs).abs().where(decided, 1.0)
    cumulative = verdict.next_law.double().cumsum(-1)
    closest = (cumulative - point.unsqueeze(1)).abs().min()
    return float(torch.cat([gaps.flatten(), closest.view(1)]).min())


def _redrawn(parts: Parts, record: Recorded, trial: Trial) -> bool | None:
    """Whether a chain's tokens are what the reported law and the drafting noise give."""
    draft = record.draft
    if not isinstance(draft.law, DenseLaw) or draft.tree is not None or draft.width == 0:
        return None
    if parts.verifier.shared_noise:
        noise = trial.gumbel()[:, : draft.width]
        again = (draft.law.probs.double().log() + noise).argmax(-1)
    else:
        noise = noise_for([record.answer.request], parts.target.device).uniform(
            Stream.DRAFT, record.round_index, 0, draft.width
        )
        again = draw(draft.law.probs, noise)
    return bool(torch.equal(again, draft.tokens))
