"""What a sweep asks: the project's own prompts, a file of prompts, or a data set of a hub.

Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from ..cli.prompts import Item, read_items, read_object, read_text
from ..config.values import read_record
from ..errors import ConfigError, InputError, near_match
from .options import TaskConfig

__all__ = ["BenchPrompt", "TaskConfig", "own_prompts", "read_task"]

GROUPS = ("conversation", "translation", "summarization", "qa", "math", "code")
UNGROUPED = "prompts"  # the group of a prompt that names none


@dataclass(frozen=True)
class BenchPrompt:
    """One prompt of a sweep.

    Args:
        index: its place among the prompts of the sweep; part of the noise key.
        id: the line's own, else its place in the file.
        group: what it is a prompt of.
        form: ``prompt``, ``prompt_ids`` or ``messages``.
        content: a text, token ids, or messages.
    """

    index: int
    id: str | int
    group: str
    form: str
    content: Any

    @property
    def words(self) -> int:
        """Words of a text, or ids."""
        if self.form == "prompt_ids":
            return len(self.content)
        texts = [self.content] if self.form == "prompt" else [m["content"] for m in self.content]
        return sum(len(text.split()) for text in texts)


def read_task(values: TaskConfig | Mapping[str, Any]) -> list[BenchPrompt]:
    """The prompts of a task, in the order of their source, counted from 0.

    Raises:
        ConfigError: a group that the source does not have.
        InputError: a source that cannot be read, or that leaves no prompt.
    """
    task = values if isinstance(values, TaskConfig) else read_record(TaskConfig, values, "task")
    if task.source == "own":
        prompts = own_prompts()
    elif task.source == "file":
        prompts = _file_prompts(str(task.file))
    else:
        from .hub import hub_prompts

        prompts = hub_prompts(task)
    return select(prompts, task)


def own_prompts() -> list[BenchPrompt]:
    """The prompts that ship, group by group."""
    folder = resources.files(__package__).joinpath("prompts")
    found: list[BenchPrompt] = []
    for group in GROUPS:
        for line in folder.joinpath(f"{group}.jsonl").read_text("utf-8").splitlines():
            read = read_object(line, f"a line of {group}.jsonl")
            found.append(
                BenchPrompt(len(found), read["id"], read["group"], "prompt", read["prompt"])
            )
    return found


def select(prompts: Iterable[BenchPrompt], task: TaskConfig) -> list[BenchPrompt]:
    """The prompts that a task keeps, counted anew."""
    prompts = list(prompts)
    known = list(dict.fromkeys(prompt.group for prompt in prompts))
    for group in task.groups:
        if group not in known:
            hint = near_match(group, known)
            raise ConfigError(
                f"task.groups names {group!r}, which has no prompt; {hint}groups: {', '.join(known)}."
            )
    kept: list[BenchPrompt] = []
    for prompt in prompts:
        of_group = sum(other.group == prompt.group for other in kept)
        wanted = not task.groups or prompt.group in task.groups
        short = task.most_words is None or prompt.words <= task.most_words
        if wanted and short and (task.per_group is None or of_group < task.per_group):
            kept.append(replace(prompt, index=len(kept)))
    if not kept:
        raise InputError(
            f"task.most_words={task.most_words} leaves none of the {len(prompts)} prompts."
        )
    return kept


def check_ids(prompts: Iterable[BenchPrompt], where: str) -> None:
    """Refuses two prompts of one id: results are told apart by it."""
    seen: set[str] = set()
    for prompt in prompts:
        if str(prompt.id) in seen:
            raise InputError(f"{where} has two prompts of the id {prompt.id!r}.")
        seen.add(str(prompt.id))


def _file_prompts(path: str) -> list[BenchPrompt]:
    if path == "-":
        raise ConfigError("task.file=- is not possible; a sweep reads its prompts from a file.")
    place = Path(path).expanduser()
    if (
        place.exists() and not place.is_file()
    ):  # a pipe would be waited for, and cannot be read twice
        raise InputError(f"task.file={path} cannot be read: it is not a file.")
    if not read_text(path, "task.file").strip():
        raise InputError(f"task.file={path} holds no prompt.")
    items = read_items({"prompt": None, "prompts": path})
    prompts = [_prompt(index, item) for index, item in enumerate(items)]
    check_ids(prompts, f"task.file={path}")
    return prompts


def _prompt(index: int, item: Item) -> BenchPrompt:
    if item.options:
        key = next(iter(item.options))
        raise InputError(
            f"{item.where} sets {key!r}, which a sweep sets for each cell: grid.policy."
        )
    form, content = item.form, item.content
    if form == "turns":
        form, content = "prompt", content[0]
    return BenchPrompt(index, item.id, item.group or UNGROUPED, form, content)
