"""Prompts of a run: one text, or a file of JSON lines, checked whole before anything runs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import strict_json
from ..checks import check_whole
from ..errors import ConfigError, ForedraftError, InputError
from ..policies.builtin import MAX_GAMMA
from ..policies.reading import policy_part

FORMS = ("prompt", "turns", "prompt_ids", "messages")
# What a line may not set, because it would be ignored: these hold for all prompts of a run.
FOR_ALL = ("max_new_tokens", "seed", "stop", "temperature")
OWN = ("gamma", "policy")  # what it may set for itself


@dataclass(frozen=True)
class Item:
    """One prompt, or one conversation.

    Args:
        id: the line's own, else its place among the prompts.
        form: which of ``FORMS`` it came in.
        content: what the line holds under that name.
        first: the number of its first turn among all turns of the run; part of the noise key.
        where: for messages, ``line 3 of questions.jsonl``; empty when there is one prompt.
        sample: which of the prompt's samples this is.
        options: the line's own ``gamma`` or ``policy``.
        group: the line's own ``group``, or ``category``.
    """

    id: str | int
    form: str
    content: Any
    first: int = 0
    where: str = ""
    sample: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    group: str | None = None

    @property
    def about(self) -> dict[str, Any]:
        """What a trace of it says: its id, and its group if it has one."""
        return {"id": self.id, **({"group": self.group} if self.group is not None else {})}

    @property
    def turns(self) -> int:
        """Answers that it asks for."""
        return len(self.content) if self.form == "turns" else 1

    @property
    def sha256(self) -> str:
        """A hash by which a file of answers knows its prompts again."""
        own = [self.options] if self.options else []
        text = json.dumps([self.form, self.content, *own], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def asked(self, turn: int) -> Any:
        """What a turn asks, without the turns before it."""
        return self.content[turn] if self.form == "turns" else self.content


def several(items: list[Item], samples: int) -> list[Item]:
    """Every item ``samples`` times, one behind the other. The first sample of a prompt keeps its
    number, and so its noise, whatever the number of samples."""
    every = sum(item.turns for item in items)
    return [
        dataclasses.replace(item, first=item.first + sample * every, sample=sample)
        for item in items
        for sample in range(samples)
    ]


def read_items(config: dict[str, Any]) -> list[Item]:
    """The prompts that a config names."""
    if config["prompt"] is not None:
        return [Item(0, "prompt", config["prompt"])]
    if config["prompts"] is None:
        raise InputError('there is no prompt; give prompt="..." or prompts=FILE.')
    items: list[Item] = []
    for line, form, where in _lines(config["prompts"]):
        first = items[-1].first + items[-1].turns if items else 0
        own_id = line.get("id", line.get("question_id"))
        name = len(items) if own_id is None else own_id
        options = {key: line[key] for key in OWN if line.get(key) is not None}
        group = line.get("group", line.get("category"))
        kept = group if isinstance(group, str) else None
        items.append(Item(name, form, line[form], first, where, options=options, group=kept))
    if not items:
        raise InputError(f"prompts={config['prompts']} holds no prompt.")
    return items


def _lines(path: str) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Each line, the form that its prompt came in, and where it stands."""
    # Split at newlines only: JSON may hold U+2028 and its like inside a text.
    for number, line in enumerate(read_text(path, "prompts").split("\n"), 1):
        if line.strip():
            where = f"line {number} of {'standard input' if path == '-' else path}"
            values = read_object(line, where)
            yield values, _checked(values, where), where


def read_text(path: str, key: str) -> str:
    """A file, or standard input for ``-``, as text; one sentence when that is not possible."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).expanduser().read_bytes()
    except OSError as error:
        raise InputError(f"{key}={path} cannot be read: {error.strerror or error}.") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{key}={path} is not UTF-8 text: see line {line}.") from None


def read_object(line: str, where: str) -> dict[str, Any]:
    """One line of strict JSON (``strict_json.py``)."""
    return strict_json.read_object(line, where, '; write {"prompt": "..."}')


def _checked(line: dict[str, Any], where: str) -> str:
    """The form of the line's prompt; everything in it is looked at."""
    forms = [form for form in FORMS if form in line]
    if len(forms) != 1:
        given = " and ".join(forms) or "none of them"
        raise InputError(f"{where} must have one of {', '.join(FORMS)}; it has {given}.")
    ignored = [key for key in FOR_ALL if key in line]
    if ignored:
        raise InputError(f"{where} sets {ignored[0]!r}, which is set for all prompts of a run.")
    own_id = line.get("id", line.get("question_id"))
    if own_id is not None and type(own_id) not in (str, int):
        raise InputError(f"{where} has the id {own_id!r}; it must be text or a whole number.")
    problem = content_problem(forms[0], line[forms[0]])
    if problem:
        raise InputError(f"{where}: {problem}.")
    _check_options(line, where)
    return forms[0]


def _check_options(line: dict[str, Any], where: str) -> None:
    gamma, policy = (line.get(key) for key in OWN)
    try:
        if gamma is not None:
            check_whole("gamma", gamma, 0, MAX_GAMMA)
        if policy is not None:
            policy_part(policy)
        if gamma is not None and policy is not None:
            raise ConfigError("gamma and policy are both given; give one of them.")
    except ForedraftError as error:
        raise InputError(f"{where}: {error}") from error


def content_problem(form: str, value: Any) -> str:
    """What is wrong with a prompt that came in this form; empty if nothing is."""
    if form == "prompt":
        return "" if _is_text(value) else "prompt is empty or no text"
    if not isinstance(value, list) or not value:
        return f"{form} is empty or no list"
    if form == "turns":
        return "" if all(map(_is_text, value)) else "a turn is empty or no text"
    if form == "prompt_ids":
        good = all(type(token) is int and token >= 0 for token in value)
        return "" if good else "prompt_ids must be whole numbers from 0"
    return "" if all(map(_is_message, value)) else "a message must have the texts role and content"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return isinstance(value.get("role"), str) and isinstance(value.get("content"), str)
