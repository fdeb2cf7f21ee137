"""What the parts of ``run.json``, prompts, verdicts and traces must hold. Imports no torch.

A folder may come from somebody else, or have been changed by hand. Everything that a report, a
comparison or a resumed sweep takes out of it is looked at here first, so that none of them has to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..cli.prompts import content_problem
from ..config.values import read_record
from ..errors import ForedraftError
from ..plugins.registry import CHOSEN
from .cells import ENGINE, PLAIN
from .checking import amount, whole, wholes
from .options import GENERATE, SOURCES, BenchOptions

KINDS = (ENGINE, PLAIN, *GENERATE)
FORMS = ("prompt", "prompt_ids", "messages")
CELL = {
    "choices": dict,
    "overrides": list,
    "config": dict,
    "kind": str,
    "baseline": str,
    "lossless": bool,
}
UNIT = ("index", "group", "prompts", "batch_size")
PARTS = ("accepted", "rejected", "own")
# A cell's id is a file's name: no slash, no leading dot, and short enough for what is added to it.
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,=+@~-]{0,199}")


def about_problem(manifest: dict[str, Any]) -> str:
    """What is wrong with what a manifest says of the sweep as a whole; empty if nothing is."""
    for key in ("versions", "hardware", "options", "task"):
        if not isinstance(manifest[key], dict):
            return f"{key!r} is not an object"
    for key in ("command", "started"):
        if not isinstance(manifest[key], str):
            return f"{key!r} is no text"
    if not isinstance(manifest["commit"], str | None):
        return "'commit' is no text"
    source = manifest["task"].get("source")
    if source not in SOURCES:
        return f"task.source={source!r} is none of {', '.join(SOURCES)}"
    try:
        read_record(BenchOptions, manifest["options"], "options")
    except ForedraftError as error:
        return str(error).removesuffix(".")
    return ""


def cells_problem(cells: Any) -> str:
    """The same for its cells."""
    if not isinstance(cells, list) or not cells:
        return "it lists no cells"
    return _named(cells) or next(filter(None, map(_cell_problem, cells)), "") or _baselines(cells)


def units_problem(units: Any) -> str:
    """The same for its units."""
    if not isinstance(units, list) or not units:
        return "it lists no units"
    for place, unit in enumerate(units):
        good = isinstance(unit, dict) and set(unit) == set(UNIT) and whole(unit["index"])
        good = good and unit["index"] == place and isinstance(unit["group"], str)
        good = good and wholes(unit["prompts"]) and len(unit["prompts"]) > 0
        if not good or not whole(unit["batch_size"]) or not unit["batch_size"]:
            return (
                f"unit {place} is not an object with the index {place}, a group, the numbers of its "
                "prompts, and a batch_size from 1"
            )
    return ""


def prompt_problem(prompt: Any, index: int) -> str:
    """The same for a line of ``prompts.jsonl``."""
    if not isinstance(prompt, dict) or not whole(prompt.get("index")) or prompt["index"] != index:
        return f"prompt {index} is not an object with the index {index}"
    if type(prompt.get("id")) not in (str, int):
        return f"prompt {index} has the id {prompt.get('id')!r}"
    if not isinstance(prompt.get("group"), str):
        return f"prompt {index} has the group {prompt.get('group')!r}"
    if prompt.get("form") not in FORMS:
        return f"prompt {index} has the form {prompt.get('form')!r}; possible: {', '.join(FORMS)}"
    problem = content_problem(prompt["form"], prompt.get("content"))
    return f"prompt {index}: {problem}" if problem else ""


def verdict_problem(verdict: dict[str, Any]) -> str:
    """The same for a verdict."""
    if not isinstance(verdict.get("verdict"), str):
        return f"verdict={verdict.get('verdict')!r} is no word"
    return (
        "" if isinstance(verdict.get("says", ""), str) else f"says={verdict['says']!r} is no text"
    )


def trace_problem(trace: dict[str, Any], prompts: int) -> str:
    """The same for the answers of a cell that were taken down, of so many prompts."""
    answers = trace.get("answers")
    if not isinstance(answers, list) or not all(isinstance(answer, dict) for answer in answers):
        return "answers is no list of objects"
    for answer in answers:
        index, rounds = answer.get("prompt"), answer.get("rounds")
        if not whole(index) or index >= prompts:
            return f"prompt={index!r} is none of the {prompts} there are"
        if not isinstance(rounds, list) or not all(map(_is_round, rounds)):
            return (
                f"a round of prompt {index} does not hold lists of accepted, rejected and own tokens, "
                "each with a text, a draft_prob and an accept_prob"
            )
    return ""


def _named(cells: Sequence[Any]) -> str:
    """Ids can be file names, and are no two the same: not all file systems tell capitals apart."""
    seen: dict[str, str] = {}
    for cell in cells:
        name = cell.get("id") if isinstance(cell, dict) else None
        if not isinstance(name, str) or not _ID.fullmatch(name):
            return f"it has the cell id {name!r}, which cannot name a file"
        if name.lower() in seen:
            return f"it has the cells {seen[name.lower()]!r} and {name!r}"
        seen[name.lower()] = name
    return ""


def _cell_problem(cell: dict[str, Any]) -> str:
    for key in cell:
        if key not in CELL and key != "id":
            return f"the cell {cell['id']!r} has {key!r}, which no cell has"
    for key, kind in CELL.items():
        if type(cell.get(key)) is not kind:
            return f"the cell {cell['id']!r} has {key}={cell.get(key)!r}"
    if cell["kind"] not in KINDS:
        return f"the cell {cell['id']!r} has kind={cell['kind']!r}; possible: {', '.join(KINDS)}"
    if not all(isinstance(text, str) for text in cell["overrides"]):
        return f"the cell {cell['id']!r} has an override that is no text"
    problem = next(_config_problems(cell["config"]), "")
    return f"the cell {cell['id']!r} has config.{problem}" if problem else ""


def _config_problems(config: dict[str, Any]) -> Iterator[str]:
    """Of what is read here; the rest is checked by whoever builds parts from it."""
    for key in (*CHOSEN, "runtime"):
        if not isinstance(config.get(key), dict):
            yield f"{key}={config.get(key)!r}"
        elif key != "runtime" and not isinstance(config[key].get("name"), str):
            yield f"{key}.name={config[key].get('name')!r}"
    yield from _sampling_problems(config)
    size = config["runtime"].get("batch_size")
    if not whole(size) or not size:
        yield f"runtime.batch_size={size!r}"
    gamma = config["policy"].get("gamma")
    if config["policy"]["name"] == "fixed" and not whole(gamma):
        yield f"policy.gamma={gamma!r}"


def _sampling_problems(config: dict[str, Any]) -> Iterator[str]:
    sampling = config.get("sampling")
    if not isinstance(sampling, dict):
        yield f"sampling={sampling!r}"
        return
    if not amount(sampling.get("temperature")):
        yield f"sampling.temperature={sampling.get('temperature')!r}"
    if not isinstance(sampling.get("draft"), str):
        yield f"sampling.draft={sampling.get('draft')!r}"
    limit = config.get("max_new_tokens", "")
    if limit is not None and not (whole(limit) and limit):
        yield f"max_new_tokens={config.get('max_new_tokens', 'nothing')!r}"


def _baselines(cells: Sequence[dict[str, Any]]) -> str:
    loops = [cell["id"] for cell in cells if not cell["baseline"]]
    for cell in cells:
        if cell["baseline"] and cell["baseline"] not in loops:
            return (
                f"the cell {cell['id']!r} has baseline={cell['baseline']!r}, which is no plain loop"
            )
    return ""


def _is_round(one: Any) -> bool:
    if not isinstance(one, dict):
        return False
    parts = [one.get(key) for key in PARTS]
    return all(isinstance(part, list) and all(map(_is_token, part)) for part in parts)


def _is_token(token: Any) -> bool:
    if not isinstance(token, dict) or not isinstance(token.get("text"), str):
        return False
    known = [token[key] for key in ("draft_prob", "accept_prob") if key in token]
    return len(known) == 2 and all(value is None or amount(value) for value in known)
