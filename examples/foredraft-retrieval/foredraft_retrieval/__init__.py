"""A drafter that copies from a folder of documents. What it offers; imports no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foredraft.framework import DrafterSpec, DraftKind, hookimpl


@dataclass
class RetrievalConfig:
    """Copy what followed the newest tokens in a folder of documents.

    Args:
        path: the folder, or one file. It has to be set.
        glob: which files of the folder are documents, text in UTF-8.
        max_match: longest match of the newest tokens that is looked for.
        min_match: shortest match that is enough for a draft.
        occurrences: places compared for a draft; of more matches, that many evenly spread ones.
        branches: how many continuations are drafted; above 1, the draft is a tree.
        nodes: the most tokens of such a tree.
    """

    path: str = ""
    glob: str = "**/*.txt"
    max_match: int = 16
    min_match: int = 2
    occurrences: int = 256
    branches: int = 1
    nodes: int = 32

    def __post_init__(self) -> None:
        for name in ("max_match", "min_match", "occurrences", "branches", "nodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.min_match > self.max_match:
            raise ValueError(f"min_match={self.min_match} is above max_match={self.max_match}")

    @property
    def kind(self) -> DraftKind:
        """Tokens that were chosen, not drawn: a chain, or a tree of several continuations."""
        return DraftKind("deterministic", tree=self.branches > 1)


def kind_of(config: RetrievalConfig) -> DraftKind:
    """What drafts look like under a config; the verifier has to judge it."""
    return config.kind


@hookimpl
def foredraft_drafters() -> Iterable[DrafterSpec]:
    """The drafter ``retrieval``; its class is imported when it is chosen."""
    yield DrafterSpec(
        "retrieval",
        "foredraft_retrieval.drafter:Retrieval",
        RetrievalConfig,
        "copies what followed the newest tokens in a folder of documents",
        kind=kind_of,
        contract=1,
    )


@hookimpl
def foredraft_config_packages() -> Iterable[str]:
    """The preset ``drafter=retrieval_tree`` and the experiment ``documents``."""
    return ["pkg://foredraft_retrieval.conf"]
