"""Which parts can work together: one rule, asked of specs before anything is built and of objects.

Imports no torch: a wrong pair in a config is refused before a model loads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from .errors import ConfigError
from .specs import DETERMINISTIC, DraftKind


class Rule(Protocol):
    """A verifier or its spec."""

    @property
    def greedy_only(self) -> bool:
        """Whether it is for temperature 0 alone."""

    @property
    def lossless(self) -> bool:
        """Whether it keeps the target's law; what does not is never proposed as a remedy."""

    def judges(self, kind: DraftKind) -> bool:
        """True when it is right for such drafts."""


def check_pair(
    rule: Rule,
    rule_name: str,
    drafter_name: str,
    kind: DraftKind,
    temperature: float,
    others: Iterable[tuple[str, Rule]],
) -> None:
    """Refuses a rule that cannot judge a drafter's drafts at a temperature.

    Args:
        others: names and rules that might do instead.
    """

    def able(one: Rule) -> bool:
        return one.judges(kind) and not (one.greedy_only and temperature > 0)

    if able(rule):
        return
    possible = " or ".join(
        f"verifier={name}" for name, other in others if other.lossless and able(other)
    )
    remedy = f"use {possible}" if possible else "no installed verifier does"
    if not rule.judges(kind):
        raise ConfigError(
            f"verifier={rule_name} cannot judge what drafter={drafter_name} drafts here, {kind}; {remedy}."
        )
    raise ConfigError(
        f"verifier={rule_name} works only with sampling.temperature=0 and it is {temperature}; "
        f"{remedy}."
    )


def known_rules() -> list[tuple[str, Rule]]:
    """Names and specs of every verifier that is installed."""
    from .plugins import registry
    from .specs import VerifierSpec

    offers = [offer for offer in registry().offers("verifier") if not offer.fault]
    return [(o.name, o.spec) for o in offers if isinstance(o.spec, VerifierSpec)]


def check_target(trees: bool, target_name: str, drafter_name: str, kind: DraftKind) -> None:
    """Refuses a drafter of trees for a target that scores only chains."""
    if kind.tree and not trees:
        raise ConfigError(
            f"drafter={drafter_name} drafts trees here, which target={target_name} cannot score; set the "
            "drafter to draft chains."
        )


def check_reads(reads: Iterable[int], depth: int, target_name: str, drafter_name: str) -> None:
    """Refuses a drafter of hidden states that the target does not have."""
    for layer in reads:
        if not depth:
            raise ConfigError(
                f"drafter={drafter_name} reads the target's hidden states, which target={target_name} does "
                "not show; use a transformers model (target=causal_lm or target=smollm2)."
            )
        if not 0 <= layer <= depth:
            raise ConfigError(
                f"drafter={drafter_name} reads the target's layer {layer}, and target={target_name} has "
                f"layers 0 to {depth}."
            )


def check_policy(stops: bool, policy_name: str, drafter_name: str, kind: DraftKind) -> None:
    """Refuses a policy that ends drafts by their law for drafts that have none, or no one order."""
    if not stops or not (kind.tree or kind.drawn == DETERMINISTIC):
        return
    why = "a tree's nodes are not drafted one by one" if kind.tree else "chosen tokens have no law"
    raise ConfigError(
        f"policy={policy_name} ends a draft by the law of its next token, which drafter={drafter_name} "
        f"does not have, because {why}; use policy=fixed or another one that sets only gamma."
    )
