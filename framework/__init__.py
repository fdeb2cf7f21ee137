"""Foredraft's façade: what users and plugin authors import.

Names resolve on first use, so that listing plugins and ``--help`` import neither torch nor
transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import load
    from .bases import ParallelSession, StepDrafter, StepSession, TokenSession
    from .constraints import Constraint, ConstraintState
    from .context import Context
    from .engine import Defaults, Engine
    from .errors import ConfigError, ForedraftError, InputError, PluginFault
    from .grammar import grammar_constraint
    from .growth import Growth, TreeConfig
    from .interfaces import (
        Drafter,
        DraftSession,
        GammaPolicy,
        Observer,
        PolicySession,
        Target,
        TargetSession,
        Verifier,
    )
    from .law import DenseLaw, DraftLaw, PointMass
    from .observing import RequestRecord, RoundRecord, RunRecord, RunSummary
    from .params import SamplingParams
    from .plugins import hookimpl
    from .records import Draft, DraftStep, Round, RowOutcome, Scored, Trial, Verdict
    from .requests import Answer, Request
    from .specs import DrafterSpec, DraftKind, ObserverSpec, PolicySpec, TargetSpec, VerifierSpec
    from .tree import Branches, Tree
    from .tree_bases import Frontier, TreeStepSession
    from .weights import load_weights

_HOMES = {
    "api": ("load",),
    "engine": ("Defaults", "Engine"),
    "errors": ("ConfigError", "ForedraftError", "InputError", "PluginFault"),
    "bases": ("ParallelSession", "StepDrafter", "StepSession", "TokenSession"),
    "interfaces": (
        "DraftSession", "Drafter", "GammaPolicy", "Observer", "PolicySession", "Target",
        "TargetSession", "Verifier",
    ),
    "records": ("Draft", "DraftStep", "Round", "RowOutcome", "Scored", "Trial", "Verdict"),
    "observing": ("RequestRecord", "RoundRecord", "RunRecord", "RunSummary"),
    "context": ("Context",),
    "law": ("DenseLaw", "DraftLaw", "PointMass"),
    "plugins": ("hookimpl",),
    "requests": ("Answer", "Request"),
    "params": ("SamplingParams",),
    "specs": (
        "DraftKind", "DrafterSpec", "ObserverSpec", "PolicySpec", "TargetSpec", "VerifierSpec",
    ),
    "tree": ("Branches", "Tree"),
    "growth": ("Growth", "TreeConfig"),
    "tree_bases": ("Frontier", "TreeStepSession"),
    "constraints": ("Constraint", "ConstraintState"),
    "grammar": ("grammar_constraint",),
    "weights": ("load_weights",),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Answer", "Branches", "ConfigError", "Constraint", "ConstraintState", "Context", "Defaults",
    "DenseLaw", "Draft", "DraftKind", "DraftLaw", "DraftSession", "DraftStep", "Drafter", "DrafterSpec",
    "Engine", "ForedraftError", "Frontier", "GammaPolicy", "Growth", "InputError", "Observer",
    "ObserverSpec", "ParallelSession",
    "PluginFault", "PointMass", "PolicySession", "PolicySpec", "Request", "Round", "RowOutcome", "SamplingParams",
    "RequestRecord", "RoundRecord", "RunRecord", "RunSummary", "Scored",
    "StepDrafter", "StepSession", "Target", "TargetSession", "TargetSpec", "TokenSession", "Tree", "TreeConfig",
    "TreeStepSession", "Trial", "Verdict", "Verifier", "VerifierSpec", "grammar_constraint",
    "hookimpl", "load", "load_weights",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
