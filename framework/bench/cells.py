"""A cell: one setting that a sweep measures, with a name that can be that of a file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

ENGINE, PLAIN = "engine", "plain"
MOST = 120  # characters of an id; a file name may have 255 bytes


@dataclass(frozen=True)
class Cell:
    """One setting.

    Args:
        id: unique without regard to case, readable, possible as a file name.
        choices: what sets it apart from other cells: keys and values, in the order of the axes.
        overrides: what composes it, by ``grid.compose_cell``.
        config: all of it as plain values, as ``as_dict`` gives.
        kind: ``engine``, ``plain``, or one of ``options.GENERATE``.
        baseline: id of the plain cell of the same setting; empty for that cell itself.
        lossless: whether its verifier keeps the target's law.
    """

    id: str
    choices: dict[str, Any]
    overrides: list[str]
    config: dict[str, Any]
    kind: str
    baseline: str
    lossless: bool

    @property
    def batch_size(self) -> int:
        """Prompts that decode together."""
        return int(self.config["runtime"]["batch_size"])


def new_id(kind: str, choices: Mapping[str, Any], taken: Collection[str], ending: str = "") -> str:
    """A readable name that no other cell has.

    Args:
        kind: leads the name of a baseline.
        taken: the ids so far, in lower case: some file systems do not tell ``A`` from ``a``.
        ending: of the name.
    """
    parts = [] if kind == ENGINE else [kind]
    parts += [f"{key}={_shown(value)}" for key, value in choices.items()]
    parts += [ending] if ending else []
    name = re.sub(r"[^A-Za-z0-9._=,+]+", "-", ",".join(parts)).strip("-.")
    if len(name) <= MOST and name.lower() not in taken:
        return name
    text = json.dumps([kind, choices, ending], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{name[: MOST - len(ending) - 10]}-{digest}{f',{ending}' if ending else ''}"


def _shown(value: object) -> str:
    """Of a path the last name: results may be shown to others, and it says nothing to them."""
    if not isinstance(value, str):
        return json.dumps(value)
    return re.split(r"[/\\]", value)[-1] if re.match(r"~|[/\\]|[A-Za-z]:[/\\]", value) else value
