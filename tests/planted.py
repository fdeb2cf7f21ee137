"""What a planted fault is: a part that is broken in one way, and the checks that have to notice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from foredraft.framework.specs import DrafterSpec, PartSpec, PolicySpec, VerifierSpec
from foredraft.framework.testing.kit import Subject, subject_of

KIND_OF: dict[type[PartSpec], str] = {
    DrafterSpec: "drafter",
    VerifierSpec: "verifier",
    PolicySpec: "policy",
}


@dataclass(frozen=True)
class Planted:
    """One broken part.

    Args:
        name: of the case.
        what: the fault, in one line.
        spec: the part.
        caught_by: names of the checks that are expected to fail; at least the first one has to.
        values: of the part's config.
    """

    name: str
    what: str
    spec: PartSpec
    caught_by: tuple[str, ...]
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Drafter, verifier or policy."""
        return KIND_OF[type(self.spec)]

    def subject(self, seed: int = 0) -> Subject:
        """The part, ready to be checked."""
        return subject_of(self.kind, self.spec, self.values, seed)
