"""Prompts from a data set of a hub, by the library ``datasets``, which is an extra.

Rows are streamed, so that no more is fetched than is asked. Data sets that would run code of their
own are not loaded: no such permission is ever given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

from ..errors import ConfigError, InputError, near_match
from .options import TaskConfig
from .tasks import UNGROUPED, BenchPrompt

PER_GROUP = 48  # prompts of a group, when task.per_group says nothing
MOST_ROWS = 20_000  # that are looked at


def hub_prompts(task: TaskConfig) -> list[BenchPrompt]:
    """The first prompts of each group of a data set.

    Raises:
        ConfigError: a column that the data set does not have, or the library is not there.
        InputError: the data set cannot be loaded, or holds no prompt.
    """
    found: list[BenchPrompt] = []
    counts: Counter[str] = Counter()
    most = task.per_group or PER_GROUP
    for number, row in enumerate(_rows(task)):
        prompt = _prompt(number, row, task)
        if _wanted(prompt, task) and counts[prompt.group] < most:
            counts[prompt.group] += 1
            found.append(prompt)
        grouped = task.group_column is not None
        full = len(task.groups or [UNGROUPED]) if task.groups or not grouped else None
        if full is not None and sum(count == most for count in counts.values()) == full:
            break
    if not found:
        raise InputError(
            f"task.name={task.name} gives no prompt; see task.groups and task.most_words."
        )
    return found


def _wanted(prompt: BenchPrompt, task: TaskConfig) -> bool:
    short = task.most_words is None or prompt.words <= task.most_words
    return (
        short and bool(prompt.content.strip()) and prompt.group in (task.groups or [prompt.group])
    )


def _rows(task: TaskConfig) -> Iterator[Mapping[str, Any]]:
    try:
        load_dataset = import_module("datasets").load_dataset
    except ImportError as error:
        raise ConfigError(
            "task=hub needs the library datasets; install it by pip install 'foredraft[hub]'."
        ) from error
    try:
        rows: Iterable[Mapping[str, Any]] = load_dataset(
            task.name,
            task.subset,
            split=task.split or "test",
            revision=task.revision,
            streaming=True,
        )
        for number, row in enumerate(rows):
            if number >= MOST_ROWS:
                return
            yield row
    except Exception as error:  # whatever a hub, a network or a file of others raises
        text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise InputError(f"task.name={task.name} cannot be loaded: {text[:300]}.") from error


def _prompt(number: int, row: Mapping[str, Any], task: TaskConfig) -> BenchPrompt:
    text = _cell(row, task.column or "prompt", "column")
    if not isinstance(text, str):
        raise ConfigError(
            f"task.column={task.column or 'prompt'!r} holds {type(text).__name__}, not text."
        )
    group = UNGROUPED
    if task.group_column is not None:
        group = str(_cell(row, task.group_column, "group_column"))
    return BenchPrompt(number, number, group, "prompt", text)


def _cell(row: Mapping[str, Any], name: str, key: str) -> Any:
    if name not in row:
        hint = near_match(name, row)
        raise ConfigError(
            f"task.{key}={name!r} is no column of the data set; {hint}columns: {', '.join(row)}."
        )
    return row[name]
