"""The reported law is the law drawn from, and whether a token is shown does not depend on it."""

from __future__ import annotations

import torch

from ....params import SamplingParams
from ..checks import NotApplicable, check, fail
from ..subject import Subject
from .lab import Lab
from .nodes import Nodes, dependent, follows
from .rounds import Run
from .spies import Proposal

SETTINGS = {
    "temperature=1": SamplingParams(temperature=1.0),
    "temperature=0.6": SamplingParams(temperature=0.6),
    "top_k=3": SamplingParams(temperature=1.0, top_k=3),
    "top_p=0.8": SamplingParams(temperature=0.9, top_p=0.8),
    "draft=none": SamplingParams(temperature=0.7, draft="none"),
}
PROMPTS, ROUNDS, NUMBERS = 8, 3, 6_000_000
SAME = 1e-6


@check(
    "drafter",
    "Drafted tokens are drawn from the very law that is reported, at every position and setting.",
    "Verifiers accept by that law: another one changes the law of the answer.",
)
def reported_law(subject: Subject) -> None:
    lab = _lab(subject)
    for rows in (2 * PROMPTS * len(SETTINGS), _most(lab)):
        run = drawn(lab, rows, 3)
        _not_of_the_token(run, rows)
        nodes = _nodes(run, lab.seed)
        if nodes is None:
            raise NotApplicable("it drafted nothing")
        kinds = nodes.place // PROMPTS % len(SETTINGS)
        for node in range(int(nodes.node.max()) + 1):
            _judge(nodes.where(nodes.node == node), node=node, rows=rows)
            for index, name in enumerate(SETTINGS):
                some = (nodes.node == node) & (kinds == index)
                _judge(nodes.where(some), node=node, setting=name, rows=rows)
        text = dependent(nodes)
        if text:
            fail(f"tokens were drawn with {text}", rows=rows)


@check(
    "drafter",
    "Whether a row drafts one more token does not depend on that token.",
    "A token that is dropped for its value is missing from the law that the verifier was told.",
)
def causal_stopping(subject: Subject) -> None:
    """Where drafts end early, tokens that were shown are tested in groups by what was known before
    they were drawn: how likely the token before was, and how sure the law."""
    lab = _lab(subject)
    few, rows = PROMPTS * len(SETTINGS), _most(lab)
    # A quick look first: most drafters always draft what they are asked for.
    run = drawn(lab, few, 5)
    if any(_varies(made) for made in run.proposals):
        run = drawn(lab, rows, 5)
    if not any(_varies(made) for made in run.proposals):
        raise NotApplicable("its drafts never end before the others do")
    nodes = _nodes(run, lab.seed + 1)
    assert nodes is not None
    for node in range(int(nodes.node.max()) + 1):
        here = nodes.where(nodes.node == node)
        for name, key in (("the token before", here.before), ("its law", here.laws.amax(-1))):
            for part, some in enumerate(_thirds(key)):
                group = f"{name} is {('unlikely', 'middling', 'likely')[part]}"
                _judge(here.where(some), node=node, where=group, rows=rows)


def _lab(subject: Subject) -> Lab:
    lab = Lab(subject, eos=True)
    if not lab.kind_is_drawn:
        raise NotApplicable("its tokens are chosen, not drawn")
    return lab


def _most(lab: Lab) -> int:
    """As many rows as give 4,000 nodes of each position, or as fit beside a large vocabulary."""
    return max(2 * PROMPTS * len(SETTINGS), min(1600, NUMBERS // lab.target.vocab_size))


def drawn(lab: Lab, rows: int, gamma: int) -> Run:
    """A few rounds of many rows: prompts in turn, and settings in turn behind them."""
    prompts = lab.prompts(*[3 + n for n in range(PROMPTS)])
    params = list(SETTINGS.values())
    return lab.run(
        [prompts[row % PROMPTS] for row in range(rows)],
        gamma,
        tokens=24,
        sampling=[params[row // PROMPTS % len(params)] for row in range(rows)],
        rounds=ROUNDS,
    )


def _nodes(run: Run, seed: int) -> Nodes | None:
    made = [one for one in run.proposals if one.laws is not None and max(one.lengths) > 0]
    return Nodes.of(made, seed) if made else None


def _judge(nodes: Nodes, **group: object) -> None:
    text = follows(nodes)
    if text:
        fail(f"drafted tokens do not follow the reported law: {text}", **group)


def _not_of_the_token(run: Run, rows: int) -> None:
    """Rows with one prompt and one setting have one law behind the same tokens. A law that was made
    up when the token was known, all mass on it for example, has not."""
    if not run.proposals or run.proposals[0].laws is None:
        return
    made = run.proposals[0]
    known: dict[tuple[int, ...], torch.Tensor] = {}
    for row in range(min(len(made.places), 10 * PROMPTS * len(SETTINGS))):
        for node, path in enumerate(_paths(made, row)):
            key = (row % (PROMPTS * len(SETTINGS)), len(path), *path)
            law = made.laws[row, node]  # type: ignore[index]
            gap = float((known.setdefault(key, law).double() - law.double()).abs().max())
            if not gap <= SAME:
                fail(
                    f"two rows with the same text have laws that differ by {gap:.2g}: they depend on "
                    "more than was known before the token was drawn",
                    text=[*made.texts[row], *path], rows=rows,
                )  # fmt: skip


def _paths(made: Proposal, row: int) -> list[tuple[int, ...]]:
    """The drafted tokens before each node of a row."""
    sheet = made.sheet(row)
    paths: list[tuple[int, ...]] = []
    for parent in sheet.parents:
        paths.append(() if parent < 0 else (*paths[parent], sheet.tokens[parent]))
    return paths


def _varies(made: Proposal) -> bool:
    """Whether rows that were asked for the same number of tokens drafted different numbers."""
    pairs = set(zip(made.asked, made.lengths, strict=True))
    return len(pairs) > len(set(made.asked))


def _thirds(key: torch.Tensor) -> list[torch.Tensor]:
    bounds = key.quantile(torch.tensor([1 / 3, 2 / 3], dtype=key.dtype))
    return [key <= bounds[0], (key > bounds[0]) & (key <= bounds[1]), key > bounds[1]]
