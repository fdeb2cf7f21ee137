"""What a step of EAGLE's layer takes beside one of its target, by the size of its draft vocabulary.

    python benchmarks/draft_cost.py --ids 4096 8192 49152

The layer that comes along for SmolLM2, with the LM head for so many ids: what they are does not change the time.
Batch 1, the target's tuned kernels; step times as ``foredraft times`` measures them, sizes in turns.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import torch
from common import save, with_drafter

from foredraft.drafters.eagle import Eagle
from foredraft.framework import load
from foredraft.framework.heads import LMHead
from foredraft.framework.interfaces import Target
from foredraft.framework.times.profiling import Plan, measure

GAMMA, REPEATS = 4, 5
PLAN = Plan((256,), (1,), (GAMMA,), repeats=9, seconds=20)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ids", nargs="+", type=int, default=[4096, 8192, 49152])
    given = parser.parse_args()
    plain = load("drafter=none", "target=smollm2", "target.kernels=tuned")
    target = plain.parts.target
    eagle = with_drafter(plain, "drafter=smollm2_eagle").parts.drafter
    assert isinstance(eagle, Eagle)
    found = costs(target, {count: drafting(eagle, target, count) for count in given.ids})
    for count, one in found.items():
        print(
            f"{count} ids: c {one[len(one) // 2]:.3f} (of {REPEATS}: {one[0]:.3f} to {one[-1]:.3f})"
        )
    save(
        "draft-cost", {"gamma": GAMMA, "c": {n: statistics.median(one) for n, one in found.items()}}
    )


def drafting(eagle: Eagle, target: Target, count: int) -> Eagle:
    """The same layer with that many ids."""
    head = LMHead.of(target, "eagle")
    ids = None if count == target.vocab_size else torch.arange(count)
    return Eagle(eagle.net, eagle.embed, head.reduced(ids), eagle.layers, None)


def costs(target: Target, drafters: dict[int, Eagle]) -> dict[int, Sequence[float]]:
    """c of each, ascending: seconds of a drafted token over seconds of a step of one token."""
    found: dict[int, list[float]] = {count: [] for count in drafters}
    for _ in range(REPEATS):
        for count, drafter in drafters.items():
            table = measure(target, drafter, 1, PLAN)
            found[count].append(
                float(table.drafting((GAMMA,))[0]) / GAMMA / float(table.step((1,), 256)[0])
            )
    return {count: sorted(one) for count, one in found.items()}


if __name__ == "__main__":
    main()
