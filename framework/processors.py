"""Logits processors as transformers has them, run on the host at every place of a draft.

A processor is a callable ``(input_ids [1, n] int64, scores [1, vocab]) -> scores``, both on the
device of the logits. At each place it is shown what plain decoding would have shown it there: the
committed ids and the drafted tokens on the path to the place. It must depend on nothing else, or
have a state that can be copied:

Stateful processors have a method ``fork()`` that returns an independent copy in the same state.
Each request works on forks of the object it was given, which itself is never called. A copy's calls
are those of plain decoding: first the prompt, then the prompt and one id, and so on; each prefix
once, in order, with the scores of its place. Behind a drafted token, a fork of the state behind the
token before it is called. When tokens are committed, the fork that was called behind them goes on
in the request, and every other is dropped. The target's laws are asked for last before a commit,
so what goes on has seen the target's scores; a drafter's scores are shown to forks that end with
the round. Where a drafter has no law at a place before the one it asks for, that place's prefix is
shown with the scores of the later one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .controls import Committed, Control
from .device import upload
from .errors import PluginFault
from .guard import blame
from .hosttree import HostTree, read_trees
from .tree import Branches

Processor = Callable[[Tensor, Tensor], Tensor]
Path = tuple[int, ...]  # drafted tokens, the root's child first


class HostProcessors(Control):
    """Every row's own processors, applied in order, once per place.

    Args:
        per_row: each row's processors, as ``processor_checks.prepare`` returns them.
    """

    host_reads = 1

    def __init__(self, per_row: Sequence[Sequence[Processor]]) -> None:
        self.rows = [_Row(processors) if processors else None for processors in per_row]

    def apply(self, logits: Tensor, committed: Committed, branches: Branches) -> Tensor:
        out = logits.clone()
        for row, tree in enumerate(read_trees(branches)):
            processed = self.rows[row]
            if processed is not None:
                processed.catch_up(committed[row], logits[row, :1])
                processed.fill(out[row], tree)
        return out

    def select(self, rows: list[int]) -> None:
        self.rows = [self.rows[row] for row in rows]


def host_processors(per_row: Sequence[Sequence[Processor]]) -> HostProcessors | None:
    """The control for a batch, or None if no row has a processor."""
    return HostProcessors(per_row) if any(per_row) else None


class _Row:
    """One request's processors, and the copies of them that were called since the last commit.

    Attributes:
        state: copies that were called with every committed prefix but the newest.
        called: copies that were also called with the newest and with the drafted tokens on a
            path behind it, by that path.
        ids: the committed ids on the device, ``[1, n]``.
    """

    def __init__(self, processors: Sequence[Processor]) -> None:
        self.stateful = any(hasattr(processor, "fork") for processor in processors)
        self.state = fork(processors)
        self.called: dict[Path, list[Processor]] = {}
        self.ids: Tensor | None = None

    def catch_up(self, committed: Sequence[int], scores: Tensor) -> None:
        """Takes in newly committed ids."""
        if self.ids is None:
            self.ids = upload([list(committed)], scores.device)
            return
        new = committed[self.ids.shape[1] :]
        if not new:
            return
        if self.stateful:
            self.state = self._behind(tuple(new), scores)
            self.called.clear()
        self.ids = torch.cat([self.ids, upload([list(new)], scores.device)], 1)

    def fill(self, out: Tensor, tree: HostTree) -> None:
        """Processes ``out [places, vocab]`` in place, parents before children.

        Of places with the same drafted tokens the first is called last, and its state stays: the
        others may be padding.
        """
        paths = [(place, tree.path(place)) for place in range(len(tree.at))]
        known = [(place, path) for place, path in paths if path is not None]
        for place, path in sorted(known, key=lambda item: (len(item[1]), -item[0])):
            tokens = tuple(tree.tokens[node] for node in path)
            out[place] = self._call(tokens, out[place : place + 1].clone())[0]

    def _call(self, path: Path, scores: Tensor) -> Tensor:
        assert self.ids is not None
        state = self.state
        if self.stateful:
            state = self.called[path] = fork(self._behind(path, scores))
        added = upload(torch.tensor([path], dtype=torch.int64), self.ids.device)
        return run(state, torch.cat([self.ids, added], 1), scores)

    def _behind(self, path: Path, scores: Tensor) -> list[Processor]:
        """Copies that were called with every prefix before this path's own."""
        for length in range(len(path)):
            if path[:length] not in self.called:
                self._call(path[:length], scores.clone())
        return self.called[path[:-1]] if path else self.state


def fork(processors: Sequence[Processor]) -> list[Processor]:
    """Copies of those that have a state, and the others themselves."""
    copies: list[Processor] = []
    for processor in processors:
        with blame(name_of(processor)):
            copies.append(processor.fork() if hasattr(processor, "fork") else processor)
    return copies


def run(processors: Sequence[Processor], input_ids: Tensor, scores: Tensor) -> Tensor:
    """``scores [1, vocab]`` through the processors in order; it may be overwritten."""
    for processor in processors:
        with blame(name_of(processor)):
            result: Any = processor(input_ids, scores)
            if not isinstance(result, Tensor) or result.shape != scores.shape:
                got = list(result.shape) if isinstance(result, Tensor) else type(result).__name__
                raise PluginFault(
                    f"{name_of(processor)} returned {got}; scores of shape "
                    f"{list(scores.shape)} are due."
                )
            scores = result.to(scores)
    return scores


def name_of(processor: object) -> str:
    """``logits processor 'Ban'``: by the name of a function, or of an object's class."""
    name = getattr(processor, "__name__", type(processor).__name__)
    return f"logits processor {name!r}"
