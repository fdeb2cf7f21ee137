"""How far a training is, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .display import console


@contextmanager
def stages() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each stage; what it gives sets how much of one is done, and of how much."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console(stderr=True), disable=not console(stderr=True).is_terminal
    ) as shown:
        known = {}

        def told(stage: str, done: int, whole: int) -> None:
            if stage not in known:
                known[stage] = shown.add_task(stage, total=whole)
            shown.update(known[stage], completed=done, total=whole)

        yield told
