"""How a fault is planted: a session class, or a drafter, made into a spec and put on a list."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from broken_models import (
    Bigram,
    Bigram32,
    Branching,
    BranchingAlike,
    Copier,
    Drawn,
    Ending,
    Recurrent,
    Unigrams,
)
from planted import Planted

from foredraft.framework.bases import TokenSession
from foredraft.framework.context import Context
from foredraft.framework.interfaces import Drafter, DraftSession, Target
from foredraft.framework.specs import DETERMINISTIC, DrafterSpec, DraftKind

CHOSEN = DraftKind(DETERMINISTIC)
Part = TypeVar("Part", bound=type)


@dataclass
class Nothing:
    """Nothing to set."""


class TreeDrafter(Drafter):
    """A drafter of trees: it has to say how many nodes they have."""

    def __init__(self, session: type[Branching], target: Target) -> None:
        session.growth_plan.check_vocabulary(target.vocab_size)
        self.session, self.kind = session, session.growth_plan.kind
        self.max_nodes = session.growth_plan.max_nodes

    def start(self, context: Context) -> DraftSession:
        return self.session(context)


def spec_of(part: type, kind: DraftKind | None = None, config: type = Nothing) -> DrafterSpec:
    """The spec of a session class or of a drafter made from config and target."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", part.__name__).lower()
    factory: Callable[..., Any] = part
    if issubclass(part, Branching):
        kind = kind or part.growth_plan.kind
        factory = lambda config, target: TreeDrafter(part, target)  # noqa: E731
    elif issubclass(part, TokenSession):
        kind = kind or CHOSEN
    return DrafterSpec(name, factory, config, kind=kind or DraftKind(), contract=1)


def planter(planted: list[Planted]) -> Callable[..., Callable[[Part], Part]]:
    """A decorator that adds a broken drafter to a list: the fault, and the checks that catch it."""

    def fault(
        what: str,
        *caught_by: str,
        kind: DraftKind | None = None,
        config: type = Nothing,
        **values: Any,
    ) -> Callable[[Part], Part]:
        def add(part: Part) -> Part:
            spec = spec_of(part, kind, config)
            planted.append(Planted(spec.name, what, spec, caught_by, values))
            return part

        return add

    return fault


HEALTHY = [
    spec_of(part)
    for part in (
        Bigram, Bigram32, Drawn, Ending, Unigrams, Copier, Recurrent, Branching, BranchingAlike,
    )
]  # fmt: skip
