"""The round's one device-to-host read: what is packed into it, and how it comes apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .records import Draft, RowDetail, Trial, Verdict


@dataclass(frozen=True)
class RowRead:
    """One row of a round, on the host; fields as in ``Verdict`` and ``RowOutcome``.

    Args:
        drafted: the tokens of the row's own nodes.
        parents: of each of them.
        path: the accepted nodes.
        following: the token behind them.
        overlaps: ``sum(min(target, draft))`` at each depth that was reached.
        logprobs, ranks: of the accepted tokens and of the one that follows, if asked for.
        detail: of the drafted tokens, if asked for.
    """

    accepted: int
    flags: int
    following: int
    drafted: list[int]
    parents: list[int]
    path: list[int]
    overlaps: list[float]
    logprobs: list[float] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    detail: RowDetail | None = None

    def rejected(self) -> list[int]:
        """The drafted tokens behind the accepted ones: none of them stood."""
        end = self.path[-1] if self.path else -1
        return [t for t, parent in zip(self.drafted, self.parents, strict=True) if parent == end]


def read_back(
    trial: Trial,
    verdict: Verdict,
    following: Tensor,
    flags: Tensor,
    scores: Tensor | None,
    noted: Mapping[int, Tensor] | None = None,
) -> list[RowRead]:
    """Brings everything across in one transfer.

    Args:
        following: ``[batch]``, the token behind the accepted ones.
        flags: ``[batch]`` float64, see ``guard``.
        scores: ``[batch, 2, depth + 1]``, log-probabilities and ranks, if asked for.
        noted: as in ``Context``, if rows are to come with a ``RowDetail``.
    """
    draft, path = trial.draft, path_of(trial.draft, verdict)
    overlaps, reached = _overlaps(trial, verdict, path)
    blocks = [
        torch.stack([c.double() for c in (verdict.accepted, flags, following, reached)], 1),
        draft.tokens.double(),
        path.double(),
        overlaps.double(),
    ]
    extra = {
        "parents": None if draft.tree is None else draft.tree.parents,
        "scores": None if scores is None else scores.flatten(1),
        "detail": None if noted is None else _details(draft, verdict, noted),
    }
    asked = {name: block.double() for name, block in extra.items() if block is not None}
    blocks += asked.values()
    sizes = [block.shape[1] for block in blocks]
    return [
        _row(_cut(row, sizes), list(asked), length)
        for row, length in zip(torch.cat(blocks, 1).tolist(), draft.lengths, strict=True)
    ]


def _details(draft: Draft, verdict: Verdict, noted: Mapping[int, Tensor]) -> Tensor:
    """The three numbers of a ``RowDetail`` for each node, ``[batch, 3 width]``."""
    thought = torch.stack([draft.law.prob(draft.tokens).double(), draft.law.entropy().double()], 2)
    for position, seen in noted.items():
        if position < draft.width:
            thought[:, position] = seen.where(~seen.isnan(), thought[:, position])
    return torch.cat([thought[..., 0], thought[..., 1], verdict.accept_probs.double()], 1)


def path_of(draft: Draft, verdict: Verdict) -> Tensor:
    """The accepted nodes, ``[batch, depth]``, also of a chain."""
    if verdict.path is not None:
        return verdict.path
    nodes = torch.arange(draft.depth, device=draft.tokens.device)
    return nodes.expand(draft.tokens.shape[0], draft.depth)


def _overlaps(trial: Trial, verdict: Verdict, path: Tensor) -> tuple[Tensor, Tensor]:
    """Overlaps by depth along the accepted path ``[batch, depth]``, and how many were reached."""
    draft, probs = trial.draft, trial.target_probs
    steps = torch.arange(draft.depth, device=path.device)
    if draft.tree is None:
        lengths = draft.mask.sum(1)
        reached = torch.minimum(verdict.accepted + 1, lengths)
        return draft.law.overlap(probs[:, : draft.width]), reached
    rows = torch.cat([torch.zeros_like(path[:, :1]), path[:, :-1] + 1], 1).clamp_(min=0)
    first = draft.tree.first_child(draft.mask).gather(1, rows)
    reached = ((steps <= verdict.accepted.unsqueeze(1)) & (first >= 0)).sum(1)
    index = rows.unsqueeze(-1).expand(-1, -1, probs.shape[-1])
    return draft.law.overlap(probs.gather(1, index), first.clamp(min=0)), reached


def _cut(values: list[float], sizes: list[int]) -> list[list[float]]:
    cut, begin = [], 0
    for size in sizes:
        cut.append(values[begin : begin + size])
        begin += size
    return cut


def _row(blocks: list[list[float]], asked: list[str], length: int) -> RowRead:
    (accepted, flags, following, reached), tokens, path, overlaps = blocks[:4]
    extra = dict(zip(asked, blocks[4:], strict=True))
    parents = [int(p) for p in extra.get("parents", range(-1, len(tokens) - 1))]
    scores = extra.get("scores", [])
    half = len(scores) // 2
    return RowRead(
        accepted=int(accepted),
        flags=int(flags),
        following=int(following),
        drafted=[int(token) for token in tokens[:length]],
        parents=parents[:length],
        path=[int(node) for node in path[: max(int(accepted), 0)]],
        overlaps=overlaps[: int(reached)],
        logprobs=scores[:half],
        ranks=[int(rank) for rank in scores[half:]],
        detail=_detail(extra["detail"], len(tokens), length) if "detail" in extra else None,
    )


def _detail(numbers: list[float], width: int, length: int) -> RowDetail:
    starts = (0, width, 2 * width)
    return RowDetail(*(numbers[start : start + length] for start in starts))
