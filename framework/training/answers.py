"""Answers of the target to train on: sampled by our own engine, kept line by line, taken up after a kill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..bench.lines import append_line, read_lines
from ..bench.tasks import BenchPrompt
from ..engine import Engine
from ..errors import InputError
from ..requests import Answer

NAME = "answers.jsonl"


@dataclass(frozen=True)
class Answered:
    """A prompt and an answer.

    Args:
        index: the prompt's place in its task.
        group: the prompt's.
        prompt, answer: ids.
    """

    index: int
    group: str
    prompt: list[int]
    answer: list[int]


def answered(
    engine: Engine, prompts: Sequence[BenchPrompt], folder: Path,
    told: Callable[[int], None] = lambda count: None,
) -> list[Answered]:  # fmt: skip
    """Answers to all prompts, in their order: those in the folder, and those that are missing.

    Args:
        told: hears of each answer that is there.

    Raises:
        InputError: the file is not what these prompts begin with, or cannot be written.
    """
    path = folder / NAME
    found = {one.index: one for one in _read(path)}
    told(len(found))
    missing = [prompt for prompt in prompts if prompt.index not in found]
    size = engine.defaults.batch_size
    # Of like length, so that a batch has little padding.
    missing.sort(key=lambda prompt: (prompt.words, prompt.index))
    for begin in range(0, len(missing), size):
        for one in answers_to(engine, missing[begin : begin + size]):
            append_line(path, vars(one))
            found[one.index] = one
            told(1)
    unknown = found.keys() - {prompt.index for prompt in prompts}
    if unknown:
        raise InputError(
            f"{path} has an answer to prompt {min(unknown)}, which the task does not have."
        )
    return [found[prompt.index] for prompt in prompts if found[prompt.index].answer]


def answers_to(engine: Engine, prompts: Sequence[BenchPrompt]) -> list[Answered]:
    """What the engine answers, all in one batch."""
    answers = [Answer(engine.request(prompt.content, prompt.index)) for prompt in prompts]
    for _ in engine.run(answers):
        pass
    return [
        Answered(prompt.index, prompt.group, list(answer.request.prompt), list(answer.token_ids))
        for prompt, answer in zip(prompts, answers, strict=True)
    ]


def _read(path: Path) -> list[Answered]:
    found = []
    for number, value in read_lines(path):
        try:
            found.append(Answered(**value))
            _check(found[-1])
        except (TypeError, ValueError):
            raise InputError(f"line {number} of {path} is no answer.") from None
    return found


def _check(one: Answered) -> None:
    ids: list[Any] = [one.index, *one.prompt, *one.answer]
    if not all(type(token) is int and token >= 0 for token in ids) or type(one.group) is not str:
        raise ValueError
