"""What goes to the terminal: answers as they arrive, and notes beside them. Imports no torch."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from ..metrics import Metrics


def note(line: str) -> None:
    """One line on standard error, where nothing counts as a result."""
    print(visible(line).replace("\n", "\\n"), file=sys.stderr, flush=True)


def one_line(text: str) -> str:
    """Text of any origin as one harmless line."""
    return visible(" ".join(text.split()))


def visible(text: str) -> str:
    """Text whose control characters, but newline and tab, are spelt out.

    A model could otherwise drive the terminal it is shown on.
    """
    return "".join(_spelt(sign) if _steers(sign) else sign for sign in text)


def _steers(sign: str) -> bool:
    return unicodedata.category(sign) in ("Cc", "Cs") and sign not in "\n\t"


def _spelt(sign: str) -> str:
    return sign.encode("unicode_escape", "surrogatepass").decode("ascii")


def write(text: str) -> None:
    """Text of an answer to standard output: as it is into a pipe or file, visible on a terminal."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def console(stderr: bool = False) -> Console:
    """A rich console that prints text as it is: no markup, no emoji codes, no guessed colours."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # A pipe has no width; rich would take 80 columns and wrap what somebody greps.
    width = None if stream.isatty() or "COLUMNS" in os.environ else 140
    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False)


def named_column(table: Table, heading: str, names: Sequence[str]) -> None:
    """A column of names that somebody may copy: where there is no room, others wrap."""
    table.add_column(heading, no_wrap=True, min_width=max(map(len, names), default=0))


@contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, if that is a terminal; what it gives moves it on."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    shown = console(stderr=True)
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=shown,
        transient=True,
        disable=not shown.is_terminal,
    ) as progress:
        task = progress.add_task(title, total=total)
        yield partial(progress.advance, task)


def summary(parts: Sequence[Metrics], seconds: float, finish_reason: str = "") -> str:
    """``64 tokens in 1.20 s (53.3 tokens/s), tau 2.90, accept rate 0.63, ended by eos``."""
    from ..metrics import total

    whole = total(parts)
    rate = f" ({whole.emitted / seconds:.1f} tokens/s)" if seconds > 0 else ""
    words = [f"{whole.emitted} tokens in {seconds:.2f} s{rate}", f"tau {_figure(whole.tau)}"]
    words.append(f"accept rate {_figure(whole.accept_rate)}")
    return ", ".join([*words, *([f"ended by {finish_reason}"] if finish_reason else [])])


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
