"""What verification rules cost, on laws as given: milliseconds per call, medians.

    python benchmarks/verifiers.py [--repeats 20] [--forward]

A chain of 8 tokens and a tree of 64 nodes, random peaked laws over 49,152 ids in float32. Rules take
turns, so that all of them meet the same state of the machine. --forward also times SmolLM2's forward
over as many tokens, and gives each rule's cost as a part of it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from common import plain_engine, save
from torch import Tensor

from foredraft.framework import ForedraftError
from foredraft.framework.children import draw_children
from foredraft.framework.interfaces import Verifier
from foredraft.framework.law import DenseLaw, DraftLaw, PointMass
from foredraft.framework.noise import Noise
from foredraft.framework.records import Draft, Trial
from foredraft.framework.specs import DETERMINISTIC, INDEPENDENT, WITHOUT_REPLACEMENT
from foredraft.framework.tree import Tree
from foredraft.verifiers.block import BlockVerifier
from foredraft.verifiers.coupled import CoupledVerifier
from foredraft.verifiers.greedy import GreedyVerifier
from foredraft.verifiers.kseq import KSeqVerifier
from foredraft.verifiers.lenient import LenientVerifier
from foredraft.verifiers.recursive import RecursiveVerifier
from foredraft.verifiers.token import TokenVerifier
from foredraft.verifiers.traversal import TraversalVerifier
from foredraft.verifiers.typical import TypicalVerifier

VOCAB, GAMMA = 49_152, 8
LEVELS = [4, 12, 16, 16, 8, 8]  # nodes of the tree by level: 64, of at most 4 children each
CONTEXT = 128  # tokens before the timed forward
RULES: dict[str, Verifier] = {
    "token": TokenVerifier(),
    "greedy": GreedyVerifier(),
    "block": BlockVerifier(),
    "recursive": RecursiveVerifier(),
    "kseq": KSeqVerifier(),
    "traversal": TraversalVerifier(),
    "coupled": CoupledVerifier(),
    "lenient": LenientVerifier(0.8),
    "typical": TypicalVerifier(),
}


def parents_of_tree() -> list[int]:
    """Nodes level by level, children dealt out evenly to the level before."""
    parents: list[int] = []
    above = [-1]
    for size in LEVELS:
        share = -(-size // len(above))
        start = len(parents)
        parents += [above[child // share] for child in range(size)]
        above = list(range(start, start + size))
    return parents


def make_trial(rows: int, parents: list[int] | None, drawn: str) -> Trial:
    """Laws of which the draft's are close to the target's, and a draft drawn from them."""
    generator = torch.Generator().manual_seed(0)
    width = len(parents) if parents else GAMMA
    logits = 5 * torch.randn(rows, width + 1, VOCAB, generator=generator)
    other = logits + torch.randn(logits.shape, generator=generator)
    target_probs, draft_probs = logits.softmax(-1), other.softmax(-1)
    chain = list(range(-1, width - 1))
    tokens, children = drawn_tokens(draft_probs, parents or chain, drawn, generator)
    tree, law = None, laws(tokens, draft_probs[:, :-1], None, drawn)
    if parents is not None:
        tree = Tree(torch.tensor(parents).repeat(rows, 1), len(LEVELS), children)
        law = laws(tokens, draft_probs, tree.contexts, drawn)
    draft = Draft(tokens, [width] * rows, law, tree, drawn)
    uniforms = torch.rand(rows, width, generator=generator, dtype=torch.float64)
    noise, greedy = gumbel(rows, width), torch.zeros(rows, dtype=torch.bool)
    return Trial(draft, target_probs, uniforms, logits, greedy, lambda: noise)


def laws(tokens: Tensor, probs: Tensor, index: Tensor | None, drawn: str) -> DraftLaw:
    return PointMass(tokens) if drawn == DETERMINISTIC else DenseLaw(probs, index)


def drawn_tokens(
    probs: Tensor, parents: list[int], drawn: str, generator: torch.Generator
) -> tuple[Tensor, int]:
    """Tokens ``[rows, width]``, and the most children of a node."""
    tokens = torch.zeros(len(probs), len(parents), dtype=torch.int64)
    families = {parent: [n for n, p in enumerate(parents) if p == parent] for parent in parents}
    for parent, nodes in families.items():
        shape = (len(probs), 1, len(nodes))
        uniforms = torch.rand(shape, generator=generator, dtype=torch.float64)
        law = probs[:, parent + 1 : parent + 2]
        tokens[:, nodes] = draw_children(law, uniforms, drawn)[:, 0]
    return tokens, max(map(len, families.values()))


def gumbel(rows: int, width: int) -> Tensor:
    """The noise of ``coupled``, made anew."""
    positions = torch.arange(width + 1).repeat(rows, 1)
    return Noise([0] * rows, list(range(rows)), "cpu").gumbel(positions, VOCAB)


def calls(rows: int, parents: list[int] | None, drawn: str) -> dict[str, Callable[[], Any]]:
    """What is timed on one draft."""
    trial = make_trial(rows, parents, drawn)
    kind, width = trial.draft.kind, trial.draft.width
    found: dict[str, Callable[[], Any]] = {
        name: partial(rule.verify, trial) for name, rule in RULES.items() if rule.judges(kind)
    }
    if "coupled" in found:
        found["coupled's noise"] = partial(gumbel, rows, width)
    return found


def medians(sides: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Milliseconds per call, the sides in turn; the first round does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats + 1):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            seconds[name].append(time.perf_counter() - start)
    return {name: 1000 * statistics.median(times[1:]) for name, times in seconds.items()}


def forwards(rows: int, repeats: int) -> dict[str, float]:
    """SmolLM2's forward over the newest token and the draft; milliseconds."""
    try:
        target = plain_engine().parts.target
    except ForedraftError as error:
        sys.exit(f"--forward needs SmolLM2: {error}")
    parents = parents_of_tree()
    session = target.start(rows, CONTEXT + len(parents) + 1)
    session.prefill([list(range(1000, 1000 + CONTEXT))] * rows)
    tree = Tree(torch.tensor(parents).repeat(rows, 1), len(LEVELS), 4)

    def side(width: int, shape: Tree | None) -> Callable[[], Any]:
        tokens, counts = torch.arange(width + 1).repeat(rows, 1), [width + 1] * rows
        return lambda: session.forward(tokens, counts, shape)

    sides = {"chain": side(GAMMA, None), "tree": side(len(parents), tree)}
    return medians(sides, repeats)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--forward", action="store_true")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    for rows in options.rows:
        ways: list[tuple[str, list[int] | None, str]] = [("chain", None, INDEPENDENT)]
        ways += [
            ("tree", parents_of_tree(), way)
            for way in (INDEPENDENT, WITHOUT_REPLACEMENT, DETERMINISTIC)
        ]
        whole = forwards(rows, options.repeats) if options.forward else {}
        if whole:
            figures[f"batch {rows}, forward, ms"] = rounded(whole)
        for shape, parents, drawn in ways:
            spent = medians(calls(rows, parents, drawn), options.repeats)
            figures[f"batch {rows}, {shape}, {drawn}, ms"] = rounded(spent)
            if whole:
                parts = {name: ms / whole[shape] for name, ms in spent.items()}
                figures[f"batch {rows}, {shape}, {drawn}, part of a forward"] = rounded(parts)
    save("verifiers", {"vocab": VOCAB, "gamma": GAMMA, "tree": LEVELS, "medians": figures})


def rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.3g}") for name, value in values.items()}


if __name__ == "__main__":
    main()
