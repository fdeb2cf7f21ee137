"""Verdicts on the host: whether one is well formed, and whether two say the same."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ....records import Trial, Verdict

SLACK = {torch.float64: 1e-9, torch.float32: 1e-5}


@dataclass(frozen=True)
class Told:
    """What a verdict says of one row.

    Args:
        accepted: drafted tokens that stand.
        path: their nodes.
        next_law: ``[vocab]``.
        accept_probs: of the row's own nodes.
        token: the next token, or None.
    """

    accepted: int
    path: list[int]
    next_law: Tensor
    accept_probs: Tensor
    token: int | None

    def differs(self, other: Told) -> str:
        """What two verdicts on one row do not agree about; empty if they agree."""
        if self.path != other.path:
            return f"accepted the nodes {self.path} and {other.path}"
        if self.token != other.token:
            return f"the next tokens {self.token} and {other.token}"
        for name in ("next_law", "accept_probs"):
            one, two = getattr(self, name).double(), getattr(other, name).double()
            if not torch.allclose(one, two, rtol=0, atol=1e-9, equal_nan=True):
                return f"{name} {rounded(one)} and {rounded(two)}"
        return ""


def told(verdict: Verdict, trial: Trial) -> list[Told]:
    """A verdict, row by row."""
    lengths, counts = trial.draft.lengths, verdict.accepted.tolist()
    tokens = [None] * len(lengths) if verdict.token is None else verdict.token.tolist()
    paths = [list(range(max(count, 0))) for count in counts]
    if verdict.path is not None:
        paths = [way[: len(path)] for way, path in zip(verdict.path.tolist(), paths, strict=True)]
    laws, probs = verdict.next_law.clone().unbind(0), verdict.accept_probs.clone().unbind(0)
    return [
        Told(counts[row], paths[row], laws[row], probs[row][:length], tokens[row])
        for row, length in enumerate(lengths)
    ]


def unlike(one: list[Told], other: list[Told]) -> str | None:
    """The first row about which two lists of verdicts differ, or None."""
    for row, (first, second) in enumerate(zip(one, other, strict=True)):
        difference = first.differs(second)
        if difference:
            return f"row {row}: {difference}"
    return None


def malformed(verdict: Verdict, trial: Trial) -> str | None:
    """What is wrong with the form of a verdict, or None."""
    return misshapen(verdict, trial) or unlawful(verdict, trial)


def misshapen(verdict: Verdict, trial: Trial) -> str | None:
    """What is wrong with shapes, dtypes and paths."""
    return _wrong_tensors(verdict, trial) or _wrong_paths(verdict, trial)


def _wrong_tensors(verdict: Verdict, trial: Trial) -> str | None:
    draft, (rows, _, vocab) = trial.draft, trial.target_probs.shape
    wanted: dict[str, tuple[Tensor | None, tuple[int, ...]]] = {
        "accepted": (verdict.accepted, (rows,)),
        "next_law": (verdict.next_law, (rows, vocab)),
        "accept_probs": (verdict.accept_probs, (rows, draft.width)),
        "path": (verdict.path, (rows, draft.depth)),
        "token": (verdict.token, (rows,)),
    }
    if draft.tree is not None and verdict.path is None:
        return "path is None; through a tree there has to be one"
    for name, (tensor, shape) in wanted.items():
        if tensor is None:
            continue
        kind = "a float" if name in ("next_law", "accept_probs") else "torch.int64"
        right = tensor.is_floating_point() if kind == "a float" else tensor.dtype == torch.int64
        if tuple(tensor.shape) != shape or not right:
            return f"{name} is {tensor.dtype} {tuple(tensor.shape)}; {kind} {shape} is due"
        if tensor.device != trial.target_probs.device:
            return f"{name} is on {tensor.device}; {trial.target_probs.device} is due"
    return None


def _wrong_paths(verdict: Verdict, trial: Trial) -> str | None:
    parents, vocab = trial.draft.shape.parents.tolist(), trial.target_probs.shape[-1]
    for row, one in enumerate(told(verdict, trial)):
        length, path = trial.draft.lengths[row], one.path
        if not 0 <= one.accepted <= length:
            return f"row {row}: accepted is {one.accepted} of {length} drafted tokens"
        inside = all(0 <= node < length for node in path)
        if not inside or [parents[row][node] for node in path] != [-1, *path][: len(path)]:
            return f"row {row}: {path} is no path from the root (parents {parents[row][:length]})"
        if one.token is not None and not 0 <= one.token < vocab:
            return f"row {row}: token is {one.token}; ids go from 0 to {vocab - 1}"
    return None


def unlawful(verdict: Verdict, trial: Trial) -> str | None:
    """What is wrong with the probabilities."""
    law, probs, real = verdict.next_law, verdict.accept_probs, trial.draft.mask
    total = law.double().sum(1)
    # Written so that NaN is wrong.
    lawful = (law >= 0).all(1) & ((total - 1).abs() < SLACK[trial.target_probs.dtype])
    if not bool(lawful.all()):
        row = int(lawful.long().argmin())
        return f"row {row}: next_law is {rounded(law[row])}, with the sum {float(total[row])!r}"
    possible = (((probs >= 0) & (probs <= 1)) | ~real).all(1)
    if not bool(possible.all()):
        row = int(possible.long().argmin())
        return f"row {row}: accept_probs are {rounded(probs[row][: trial.draft.lengths[row]])}"
    return None


def rounded(law: Tensor) -> list[float]:
    """A law as a short list."""
    return [float(f"{value:.4g}") for value in law.tolist()[:8]]
