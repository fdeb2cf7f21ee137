"""A grammar's text, of whatever kind, in the form that llguidance takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from .errors import ConfigError

KINDS = ("json_schema", "regex", "lark", "gbnf")
_EXACT = '%llguidance {"no_forcing": true}'


def compiled(kind: str, source: str | Mapping[str, Any]) -> str:
    """What a matcher takes: a Lark grammar in every case.

    Where only one text can follow, the library's masks would by default hold only the tokens in
    which its tokenizer spells it; ``no_forcing`` has them hold every token that the grammar allows.
    """
    if kind not in KINDS:
        raise ConfigError(
            f"grammar kind {kind!r} is not possible; it is one of {', '.join(KINDS)}."
        )
    if kind == "json_schema":
        lark = f"start: %json {_schema(source)}"
    elif not isinstance(source, str):
        raise ConfigError(f"a {kind} grammar must be text, not {type(source).__name__}.")
    elif kind == "regex":
        lark = json.loads(library().LLMatcher.grammar_from_regex(source))["grammars"][0][
            "lark_grammar"
        ]
    else:
        lark = _from_gbnf(source) if kind == "gbnf" else source
    return str(library().LLMatcher.grammar_from_lark(f"{lark}\n{_EXACT}\n"))


def _schema(source: str | Mapping[str, Any]) -> str:
    try:
        schema = dict(source) if isinstance(source, Mapping) else json.loads(source)
        return json.dumps(schema)
    except (TypeError, ValueError) as error:
        raise fault("json_schema", error) from None


def _from_gbnf(text: str) -> str:
    try:
        return str(library("llguidance.gbnf_to_lark").gbnf_to_lark(text))
    except Exception as error:  # its own class, which no release names as public
        raise fault("gbnf", error) from None


def library(name: str = "llguidance") -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ConfigError(
            "grammars need llguidance, which is not installed: pip install 'foredraft[grammar]'."
        ) from None


def fault(kind: str, error: object) -> ConfigError:
    return ConfigError(f"the {kind} cannot be used: {_line(error)}.")


def _line(error: object) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines()]
    return lines[0].rstrip(".") if lines else "no reason given"
