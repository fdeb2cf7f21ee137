"""The drafter. He et al. 2024, "REST: Retrieval-Based Speculative Decoding", arXiv:2311.08252."""

from __future__ import annotations

from collections.abc import Sequence

from foredraft.framework import Context, Draft, Drafter, Target, TokenSession
from foredraft.framework.trie import trie_draft

from . import RetrievalConfig
from .documents import read_documents
from .suffixes import Corpus, best_chains


class Retrieval(Drafter):
    """Drafts what followed the longest match of the newest tokens.

    The documents are read once, here; all sessions share the index, which nobody changes.
    """

    def __init__(self, config: RetrievalConfig, target: Target) -> None:
        self.config, self.kind = config, config.kind
        self.max_nodes = config.nodes if config.kind.tree else 0
        self.corpus = Corpus(read_documents(config, target), config.max_match)

    def start(self, context: Context) -> RetrievalSession:
        return RetrievalSession(self, context)

    def weight_bytes(self) -> int:
        return self.corpus.nbytes


class RetrievalSession(TokenSession):
    """Reads the newest tokens off the committed ids: there is nothing to remember or roll back."""

    def __init__(self, drafter: Retrieval, context: Context) -> None:
        super().__init__(context)
        self.drafter, self.config = drafter, drafter.config

    def continuation(self, row: int, gamma: int) -> Sequence[int]:
        return next(iter(self.continuations(row, gamma)), [])

    def continuations(self, row: int, gamma: int) -> Sequence[Sequence[int]]:
        """Up to ``branches`` chains of at most ``gamma`` tokens, the best first."""
        newest = self.context.tokens[row][-self.config.max_match :]
        places = self.drafter.corpus.behind(newest, self.config.min_match, self.config.occurrences)
        seen = self.drafter.corpus.read(places, gamma)
        return best_chains(seen, self.config.branches)

    def propose(self, gammas: list[int]) -> Draft:
        if not self.drafter.kind.tree:
            return super().propose(gammas)  # chains, by `continuation`
        found = [
            self.continuations(row, gamma) if gamma else [] for row, gamma in enumerate(gammas)
        ]
        return trie_draft(found, self.drafter.max_nodes, self.context.device)
