"""All planted faults, by the kind of part."""

from __future__ import annotations

from broken_drafters import PLANTED as DRAFTERS
from broken_policies import PLANTED as POLICIES
from broken_verifiers import PLANTED as VERIFIERS
from planted import Planted

PLANTED: dict[str, list[Planted]] = {
    "drafter": list(DRAFTERS),
    "verifier": list(VERIFIERS),
    "policy": list(POLICIES),
}
