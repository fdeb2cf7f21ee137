"""The records that plugin hooks yield. This module imports neither torch nor transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# The version of everything that plugins see: hooks, specs, abstract classes, records. It rises when
# a part written for it would break; OLDEST_CONTRACT is the oldest that still runs unchanged.
CONTRACT_VERSION = 1
OLDEST_CONTRACT = 1

# How the children of a node were drawn: from the same law each time; from what is left of it; or
# not drawn at all (the likeliest ones, copied ones), in which case no law says how they came about.
INDEPENDENT, WITHOUT_REPLACEMENT, DETERMINISTIC = (
    "independent",
    "without_replacement",
    "deterministic",
)
DRAWN = (INDEPENDENT, WITHOUT_REPLACEMENT, DETERMINISTIC)


@dataclass(frozen=True)
class DraftKind:
    """What a drafter's drafts look like.

    Args:
        drawn: one of ``DRAWN``.
        tree: whether a node can have several children.
    """

    drawn: str = INDEPENDENT
    tree: bool = False

    def __str__(self) -> str:
        ways = {INDEPENDENT: "drawn from a law", DETERMINISTIC: "not drawn, but chosen"}
        ways[WITHOUT_REPLACEMENT] = "drawn without replacement"
        return f"{'trees' if self.tree else 'chains'} of tokens {ways[self.drawn]}"


@dataclass(frozen=True)
class PartSpec:
    """One part that a plugin offers.

    Args:
        name: what the config names; lower case, digits and underscores.
        factory: called with the config object (and, for drafters, the built target) when the
            part is chosen. Text, ``"package.module:Class"``, is imported then, so that listing
            stays light. Of a drafter or a policy it may be the session class alone, which is
            then opened as ``Session(context, config)`` for each batch.
        config: a dataclass with defaults for every field: the only place of defaults.
        summary: one line for ``foredraft plugins``.
        contract: the version of the contract that the part was written for, as a number in its
            source: ``contract=1``. One that this Foredraft does not support is refused.
    """

    name: str
    factory: Callable[..., Any] | str
    config: type
    summary: str = ""
    contract: int = field(kw_only=True)

    def ability(self, name: str, config: object) -> Any:
        """What the spec declares under ``name``, ``learns`` for example, for a config."""
        value = getattr(self, name)
        return value(config) if callable(value) else value


@dataclass(frozen=True)
class TargetSpec(PartSpec):
    """A kind of target. ``factory(config) -> Target``."""


@dataclass(frozen=True)
class DrafterSpec(PartSpec):
    """A drafter. ``factory(config, target) -> Drafter``.

    Args:
        kind: what its drafts look like, or a function of the config that says so.
        host_reads: device-to-host reads per drafted token (0 for most).
        learns: its drafts depend on what earlier rounds showed (rejected tokens, the target's
            rows), not on the committed ids alone.
        trainee: how ``foredraft train`` trains it: a ``Trainee`` class, or text that names one; empty:
            not at all.

    Each but the last is a value, or a function of the config that gives one.
    """

    kind: DraftKind | Callable[[Any], DraftKind] = DraftKind()
    host_reads: int | Callable[[Any], int] = 0
    learns: bool | Callable[[Any], bool] = False
    trainee: type | str = ""

    @property
    def deterministic(self) -> bool:
        """Whether drafts are chosen, not drawn, under the default config."""
        return self.kind_of(self.config()).drawn == DETERMINISTIC

    def kind_of(self, config: object) -> DraftKind:
        """What drafts look like under a config."""
        kind: DraftKind = self.ability("kind", config)
        return kind


@dataclass(frozen=True)
class VerifierSpec(PartSpec):
    """A verification rule. ``factory(config) -> Verifier``.

    Args:
        lossless: the output law is exactly the target's.
        greedy_only: refuses to be built with a temperature above 0.
        chains: ways of drawing that it judges rightly in a chain.
        trees: the same for the children of a tree's node; empty: no trees.
        shared_noise: the text depends on the seed alone; drafter and target share their noise.
    """

    lossless: bool = True
    greedy_only: bool = False
    chains: tuple[str, ...] = (INDEPENDENT, DETERMINISTIC)
    trees: tuple[str, ...] = ()
    shared_noise: bool = False

    def judges(self, kind: DraftKind) -> bool:
        """True when the rule is right for such drafts."""
        return kind.drawn in (self.trees if kind.tree else self.chains)


@dataclass(frozen=True)
class PolicySpec(PartSpec):
    """A draft-length policy. ``factory(config) -> GammaPolicy``.

    Args:
        row_local: a row's gammas depend on that row alone, so that its text does not depend on
            the batch; False for a policy that shares what it learns between rows.
        repeatable: the same run gives the same gammas; False for a policy that reads a clock.
        stops: it is nothing without its second question, ``go_on``; it is then refused for drafters
            that are not asked it, those whose tokens are chosen and those that draft trees.

    Each is a truth value, or a function of the config that gives one.
    """

    row_local: bool | Callable[[Any], bool] = True
    repeatable: bool | Callable[[Any], bool] = True
    stops: bool | Callable[[Any], bool] = False


@dataclass(frozen=True)
class ObserverSpec(PartSpec):
    """A listener. ``factory(config) -> Observer``. A run can have any number of them."""
