"""What a policy takes of a round: seconds in its own code over seconds of the loop.

    python benchmarks/policy_cost.py
    python benchmarks/policy_cost.py --drafter ngram --policies goodput optimal --tokens 256

SmolLM2 at batch 1 with its tuned kernels, after a first answer that is not counted. Policies run as a user's do,
corrected by the clock; medians over answers.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from common import save, with_drafter

from foredraft.framework import Engine, load
from foredraft.framework.context import Context
from foredraft.framework.interfaces import GammaPolicy, PolicySession
from foredraft.framework.records import DraftStep
from foredraft.framework.replaying.choices import choose

POLICIES = ["goodput", "optimal", "bandit", "heuristic", "confidence", "entropy", "fixed"]
CALLS = "gammas", "go_on", "observe"
PROMPTS = [
    "List the planets.",
    "Tell me about the moon.",
    "How is bread made?",
    "What is a prime number?",
]


class Watched(GammaPolicy):
    """A policy whose sessions note how long their calls take."""

    def __init__(self, policy: GammaPolicy) -> None:
        self.policy, self.seconds = policy, 0.0

    def start(self, context: Context) -> PolicySession:
        session = self.policy.start(context)
        for name in CALLS:
            setattr(session, name, self._watched(getattr(session, name)))
        return session

    def _watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any) -> Any:
            if args and isinstance(args[0], DraftStep):
                args[0].law  # noqa: B018 - the drafter's step, which runs when it is asked for
            begun = time.perf_counter()
            found = call(*args)
            self.seconds += time.perf_counter() - begun
            return found

        return watched


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--drafter", default="ngram")
    parser.add_argument("--policies", nargs="+", default=POLICIES)
    parser.add_argument("--tokens", type=int, default=128)
    given = parser.parse_args()
    plain = load("drafter=none", "target=smollm2", "target.kernels=tuned")
    engine = with_drafter(plain, f"drafter={given.drafter}")
    found = {name: cost(engine, name, given.tokens) for name in given.policies}
    for name, one in found.items():
        print(
            f"{name}: {one['microseconds']:.0f} us of {one['round ms']:.1f} ms, {one['share']:.2%}"
        )
    save("policy-cost", {"drafter": given.drafter, "tokens": given.tokens, "policies": found})


def cost(engine: Engine, name: str, tokens: int) -> dict[str, float]:
    """Of a round: microseconds in the policy, milliseconds in all, and their share."""
    watched = Watched(choose(name, {}, live=True).policy)
    own = Engine(replace(engine.parts, policy=watched), engine.defaults)
    each = []
    for prompt in PROMPTS[:1] + PROMPTS:
        watched.seconds = 0.0
        metrics = own.generate(prompt, max_new_tokens=tokens).metrics
        whole = sum(metrics.seconds.values()) - metrics.seconds.get("prefill", 0.0)
        each.append((watched.seconds / metrics.rounds, whole / metrics.rounds))
    policy, whole = (statistics.median(side) for side in zip(*each[1:], strict=True))
    return {"microseconds": 1e6 * policy, "round ms": 1e3 * whole, "share": policy / whole}


if __name__ == "__main__":
    main()
