"""Checks of extreme laws: nothing may come out that is no law, or that cannot happen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from ....interfaces import Verifier
from ....records import Trial, Verdict
from ....specs import DETERMINISTIC, WITHOUT_REPLACEMENT, DraftKind
from ....verdicts import law_at
from ...enumeration import LARGEST
from ..checks import ascending, check
from ..subject import Subject
from .asking import Case, judge, kinds_of, spec_of
from .reading import misshapen, rounded, told, unlawful
from .trials import draft_of, no_noise

LEAST = 1e-30
# What target and drafter want at every place, before they are normalised: the simplest first.
LAWS: dict[str, tuple[list[float], list[float]]] = {
    "equal": ([0.4, 0.3, 0.2, 0.1], [0.4, 0.3, 0.2, 0.1]),
    "one token, the same": ([1, 0, 0, 0], [1, 0, 0, 0]),
    "one token, not the same": ([1, 0, 0, 0], [0, 1, 0, 0]),
    "nothing in common": ([0.25, 0.75, 0, 0], [0, 0, 0.5, 0.5]),
    "zeros in both": ([0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0]),
    "hardly drafted": ([0.5, 0.5, 0, 0], [1, LEAST, LEAST, 0]),
    "hardly wanted": ([1, LEAST, 0, 0], [0.5, 0.5, 0, 0]),
    "hardly either": ([1, LEAST, 0, LEAST], [LEAST, 1, LEAST, 0]),
}
ROUNDED = "equal but for rounding"  # the target is below the draft everywhere
MANY = "1000 tokens, equal but for rounding"
SHAPES = {False: [[-1], [-1, 0]], True: [[-1, -1], [-1, -1, 0]]}  # parents, of chains and trees
UNIFORMS = (0.0, 0.5, LARGEST)
DTYPES = {"float64": torch.float64, "float32": torch.float32}


@check(
    "verifier",
    "Equal, one-hot, disjoint and nearly empty laws, in float64 and float32, sampled and greedy, "
    "give a law for the next token; a lossless rule lets nothing stand or follow that the target "
    "makes impossible.",
    "A division by an empty residual is NaN, and a token of probability 0 breaks every promise.",
)
def numerically_safe(subject: Subject) -> None:
    rule, spec = subject.build(), spec_of(subject)

    def run(
        laws: str, drawn: str, parents: list[int], tree: bool, dtype: str, greedy: bool
    ) -> str | None:
        kind, (target, drafted) = DraftKind(drawn, tree), _pair(laws, DTYPES[dtype])
        drafts = torch.tensor(list(_drafts(drawn, drafted, parents)))
        trial = _trial(drafts, target, drafted, parents, kind, greedy, spec.lossless)
        noise = torch.zeros_like(trial.target_probs, dtype=torch.float64)
        trial = replace(trial, gumbel=(lambda: noise) if spec.shared_noise else no_noise)
        return _complaint(rule, trial, spec.lossless)

    names = [*LAWS, ROUNDED, MANY]
    found: list[Case] = [
        {"laws": laws, "drawn": kind.drawn, "parents": parents, "tree": kind.tree, "dtype": dtype,
         "greedy": greedy}
        for laws, kind in product(names, kinds_of(subject))
        for parents in SHAPES[kind.tree]
        for dtype, greedy in product(DTYPES, (False, True))
        if greedy or not spec.greedy_only
    ]  # fmt: skip
    ascending(found, run)


def _complaint(rule: Verifier, trial: Trial, lossless: bool) -> str | None:
    verdict = judge(rule, trial)
    return (
        misshapen(verdict, trial)
        or (_impossible(verdict, trial) if lossless else None)
        or unlawful(verdict, trial)
    )


def _impossible(verdict: Verdict, trial: Trial) -> str | None:
    """The first token that stands, or may follow, although the target gives it no probability."""
    draft, laws = trial.draft, trial.target_probs
    places = draft.shape.contexts * laws.shape[-1] + draft.tokens
    likely, found = laws.flatten(1).gather(1, places).tolist(), told(verdict, trial)
    ends = torch.tensor([one.path[-1] + 1 if one.path else 0 for one in found])
    behind = law_at(laws, ends)
    follows = ((behind <= 0) & (verdict.next_law > 0)).any(1).tolist()
    for row, one in enumerate(found):
        uniform = float(trial.uniforms[row, 0])
        shown = f"row {row} with tokens {draft.tokens[row].tolist()} and uniforms {uniform}"
        for node in one.path:
            if likely[row][node] <= 0:
                return f"{shown}: node {node} stands, which the target makes impossible"
        if follows[row]:
            return (
                f"{shown}: next_law {rounded(one.next_law)}, the target has {rounded(behind[row])}"
            )
    return None


def _trial(
    drafts: Tensor,
    target: Tensor,
    drafted: Tensor,
    parents: list[int],
    kind: DraftKind,
    greedy: bool,
    lossless: bool,
) -> Trial:
    """Each of ``drafts [drafts, nodes]`` with each uniform, all from one pair of laws."""
    logits = target.log()
    if greedy:  # a near tie, which only the largest logit decides
        logits = torch.where(target > 0, 1e-6 * target, -torch.inf)
        target = torch.nn.functional.one_hot(logits.argmax(), len(target)).to(target.dtype)
    tokens, size = drafts.repeat(len(UNIFORMS), 1), len(parents) + 1
    rows = len(tokens)
    laws = target.repeat(rows, size, 1)
    for node in range(size - 1) if lossless else ():
        # Behind what is impossible no token may be possible: the loop has zeros there.
        behind = laws[:, parents[node] + 1].gather(1, tokens[:, node : node + 1])
        laws[:, node + 1] *= behind > 0
    shape = torch.tensor(parents).repeat(rows, 1)
    draft = draft_of(tokens, [size - 1] * rows, shape, drafted.repeat(rows, size, 1), kind, 2)
    uniforms = torch.tensor(UNIFORMS, dtype=torch.float64).repeat_interleave(len(drafts))
    return Trial(
        draft, laws, uniforms.unsqueeze(1).repeat(1, size - 1), logits.repeat(rows, size, 1),
        torch.full((rows,), greedy), no_noise,
    )  # fmt: skip


def _pair(laws: str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    if laws == ROUNDED:
        drafted = torch.tensor([0.5, 0.5, 0, 0], dtype=dtype)
        return torch.nextafter(drafted, torch.zeros_like(drafted)), drafted
    if laws == MANY:
        logits = torch.randn(1000, generator=torch.Generator().manual_seed(1)).to(dtype)
        return logits.softmax(0), (logits + 3).softmax(0)
    target, drafted = (torch.tensor(law, dtype=dtype) for law in LAWS[laws])
    return target / target.sum(), drafted / drafted.sum()


def _drafts(drawn: str, law: Tensor, parents: list[int]) -> Iterator[list[int]]:
    """Every draft that can be drawn from one law at each node, at most 4 tokens to choose from."""
    for tokens in product(range(min(len(law), 4)), repeat=len(parents)):
        if all(
            _possible(drawn, law, [tokens[n] for n in range(at) if parents[n] == parents[at]], tokens[at])
            for at in range(len(parents))
        ):  # fmt: skip
            yield list(tokens)


def _possible(drawn: str, law: Tensor, taken: list[int], token: int) -> bool:
    if drawn == DETERMINISTIC:
        return token not in taken
    if drawn != WITHOUT_REPLACEMENT:
        return bool(law[token] > 0)
    left = law.index_fill(0, torch.tensor(taken, dtype=torch.int64), 0.0)
    return token not in taken and bool(left[token] > 0 or left.sum() <= 0)
