"""Constraints: which tokens may follow a text, by a rule that has a state (a grammar).

A constraint says what is allowed; ``Constraints`` puts its masks on the logits at every place of a
draft; ``Progress`` is the state behind the committed tokens, shared with whatever ends the answer
once nothing may follow. ``grammar.py`` has constraints made from JSON schemas, regular expressions
and grammars.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from .controls import Committed, Control
from .device import upload
from .errors import InputError, PluginFault
from .guard import blame
from .hosttree import HostTree, read_trees
from .tree import NONE, Branches


class ConstraintState(ABC):
    """Where a text stands in its constraint. The prompt is no part of that text."""

    @abstractmethod
    def allowed(self) -> Tensor:
        """Which ids may follow: bool ``[vocab]`` on the CPU, vocab being the target's.

        An id that ends the answer is allowed where the text may end and may also go on. All False
        says that the text is complete and nothing may follow. The tensor is not changed by anybody.
        """

    @abstractmethod
    def advance(self, token: int) -> bool:
        """Takes in a token. False, and the state stays as it was, if it is not allowed."""

    @abstractmethod
    def rollback(self, count: int) -> None:
        """Takes back the newest ``count`` tokens."""

    @abstractmethod
    def fork(self) -> ConstraintState:
        """An independent copy in the same state."""

    @property
    def finished(self) -> bool:
        """Whether nothing may follow. To be overridden only by what says the same, faster."""
        return not bool(self.allowed().numpy().any())  # which is much faster than torch's


class Constraint(ABC):
    """A constraint. Immutable: one may serve many requests; their states are their own."""

    @abstractmethod
    def start(self) -> ConstraintState:
        """The state before the first token of an answer."""


class Progress:
    """How far one request's committed answer has come in its constraint.

    Each committed token advances the state once, through ``completes`` or through ``catch_up``,
    whoever comes first.

    Args:
        constraint: the request's own.
        prompt_length: how many of the committed ids are the prompt.

    Raises:
        InputError: the constraint allows no token at all.
    """

    def __init__(self, constraint: Constraint, prompt_length: int) -> None:
        self.name = f"constraint {type(constraint).__name__!r}"
        self._seen = prompt_length
        with blame(self.name):
            self.state = constraint.start()
            if self.state.finished:
                raise InputError(f"{self.name} allows no token; give one that can be met.")

    @property
    def finished(self) -> bool:
        """Whether nothing may follow the committed answer."""
        return self.state.finished

    def completes(self, token: int) -> bool:
        """Takes in the next committed token; True if nothing may follow it."""
        with blame(self.name):
            if not self.state.advance(token):
                raise PluginFault(
                    f"{self.name} does not allow token {token}, but it was committed at position "
                    f"{self._seen}; no control that comes after a constraint may allow more."
                )
            self._seen += 1
            return self.state.finished

    def catch_up(self, committed: Sequence[int]) -> None:
        """Takes in the committed ids that ``completes`` was not given."""
        for token in committed[self._seen :]:
            self.completes(token)


class Constraints(Control):
    """Sets what a row's constraint does not allow to -inf, at every place of a draft.

    Places behind a drafted token that is not allowed, and places behind which nothing may follow,
    stay as they are: the first can never be reached, at the second the answer ends, and both need
    some law. For that, an accepted run has to be cut at the token that ``Progress.completes`` says.

    Args:
        rows: each row's progress, or None for a row without a constraint.
    """

    host_reads = 1

    def __init__(self, rows: Sequence[Progress | None]) -> None:
        self.rows = list(rows)

    def apply(self, logits: Tensor, committed: Committed, branches: Branches) -> Tensor:
        forbidden = torch.zeros(logits.shape, dtype=torch.bool)
        for row, tree in enumerate(read_trees(branches)):
            progress = self.rows[row]
            if progress is not None:
                progress.catch_up(committed[row])
                with blame(progress.name):
                    _forbid(progress, tree, forbidden[row])
        return logits.masked_fill(upload(forbidden, logits.device), -math.inf)

    def finished(self, row: int) -> bool:
        """Whether nothing may follow what the row has committed."""
        progress = self.rows[row]
        return progress is not None and progress.finished

    def select(self, rows: list[int]) -> None:
        self.rows = [self.rows[row] for row in rows]


def constraints_for(rows: Sequence[Progress | None]) -> Constraints | None:
    """The control for a batch, or None if no row has a constraint."""
    return Constraints(rows) if any(row is not None for row in rows) else None


def _forbid(progress: Progress, tree: HostTree, forbidden: Tensor) -> None:
    """Fills ``forbidden [places, vocab]``, all False, for one row."""
    state, places = progress.state, tree.places()
    for node in _legal_nodes(state, tree):
        if node not in places or state.finished:
            continue
        allowed = state.allowed()
        if allowed.shape != forbidden.shape[1:] or allowed.dtype != torch.bool:
            raise PluginFault(
                f"{progress.name} gave a mask of shape {tuple(allowed.shape)} and {allowed.dtype}; "
                f"{tuple(forbidden.shape[1:])} and torch.bool are due."
            )
        forbidden[places[node]] = ~allowed


def _legal_nodes(state: ConstraintState, tree: HostTree) -> Iterator[int]:
    """Goes depth first through the nodes that are allowed, the root (-1) first.

    While a node is out, ``state`` stands behind it; at the end it stands where it began.
    """
    children = tree.children()
    yield NONE
    levels = [iter(children.get(NONE, ()))]
    while levels:
        node = next(levels[-1], None)
        if node is None:
            levels.pop()
            if levels:
                state.rollback(1)
        elif state.advance(tree.tokens[node]):
            yield node
            levels.append(iter(children.get(node, ())))
