"""What exports to different servers share: names that are published, gammas, and sentences on losses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from importlib import resources
from typing import Any

from ...config.values import read_record
from ...errors import ConfigError
from ...plugins import registry

Config = Mapping[str, Any]
CARRIED = ("prompt_lookup", "causal_lm")  # drafters that servers have
# Drafters that no server has, and what comes near.
NEAR = {
    "ngram": "a law of n-grams has no like there; prompt_lookup has, but was not what was measured",
    "token_recycling": "the target's candidates of earlier rounds have no like there",
    "jacobi": "the target's guesses of earlier rounds have no like there",
    "eagle": "its folder of weights is not in the form that servers read",
    "medusa": "its folder of weights is not in the form that servers read",
    "quantized": "it makes its int8 copy itself; there, give a quantized model as the small model "
    "of drafter=causal_lm",
    "early_exit": "the target's first layers cannot draft there without training",
    "layer_skip": "the target without some of its layers cannot draft there",
    "first_of": "several drafters in turn have no like there",
    "one_of": "a choice among several drafters has no like there",
    "cascade": "a drafter of a drafter has no like there",
    "synthetic": "it is for studies",
}
GAMMAS = ("gamma", "start", "max_gamma")


@dataclass
class Exported:
    """What a server is given.

    Args:
        values: its keys and values; None: no speculation.
        text: the same as it is typed.
        use: how it is used, in a line.
        lost: a sentence for each thing that is not carried over, or only nearly.
    """

    values: dict[str, Any] | None
    text: str
    use: str
    lost: list[str] = field(default_factory=list)


@lru_cache
def published(name: str) -> dict[str, Any]:
    """Names that a server publishes, with their source: ``fields``, and ``values`` of some."""
    text = resources.files(__package__).joinpath(name).read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def checked(values: Mapping[str, Any], name: str) -> None:
    """Holds an export against the published names: a fault of ours, not of the caller."""
    known = published(name)
    for key, value in values.items():
        assert key in known["fields"], key
        assert value in known["values"].get(key, [value]), (key, value)


def gamma_of(config: Config, drafted: int | None, server: str, lost: list[str]) -> int:
    """Tokens per round, as one number."""
    policy = config["policy"]
    if policy["name"] == "fixed":
        return int(policy["gamma"])
    gamma, source = _first(policy)
    if drafted:
        gamma, source = drafted, "what was drafted per round on average"
    lost.append(
        f"policy={policy['name']}: {server} drafts a fixed number of tokens per round; {gamma} is "
        f"{source}, and was not measured as a fixed number."
    )
    return max(int(gamma), 1)


def _first(policy: Mapping[str, Any]) -> tuple[int, str]:
    """The gamma that a policy begins with, and what it is."""
    if policy["name"] == "schedule":
        table = policy["gammas"] or {1: 8}
        start = min(table, key=int)  # JSON has texts for keys
        return int(table[start]), f"its first gamma, that of {policy['by']} {int(start)}"
    key = next((key for key in GAMMAS if key in policy), None)
    return (int(policy[key]), f"its {key}") if key else (4, "a usual value")


def check(config: Config) -> None:
    """Holds the parts that are carried over against their keys: a folder may have been changed by hand.

    Raises:
        ConfigError: a value is missing, or one that it cannot have.
    """
    for kind in ("drafter", "policy", "verifier"):
        given = {key: value for key, value in config[kind].items() if key != "name"}
        name = config[kind]["name"]
        if name in registry().names(kind):
            schema = registry().get(kind, name).config
            missing = next((f.name for f in fields(schema) if f.name not in given), None)
            if missing is not None:
                raise ConfigError(
                    f"{kind}={name} has no {kind}.{missing} here, without which it cannot be exported; "
                    "set it."
                )
            read_record(schema, given, kind)


def refuse(config: Config, server: str) -> ConfigError:
    """A drafter that cannot be carried over at all."""
    name = config["drafter"]["name"]
    why = NEAR.get(name, "it is of a plugin")
    return ConfigError(f"drafter={name} cannot be carried over to {server}: {why}.")


def chain_only(config: Config, server: str, lost: list[str]) -> None:
    """Says that a tree is lost."""
    drafter = config["drafter"]
    wide = ["branches", "nodes"] if drafter.get("branches", 1) > 1 else []
    if drafter.get("widths") or ("branches" not in drafter and drafter.get("nodes")):
        wide = ["widths", "nodes", "branching"]
    words = [f"drafter.{key}={drafter[key]}" for key in wide if drafter.get(key) is not None]
    if words:
        lost.append(
            f"{', '.join(words)}: {server} drafts chains here, not trees; tau will be smaller."
        )


def shared(config: Config, server: str, lost: list[str]) -> None:
    """What no server is told with its speculation."""
    sampling, batch = config["sampling"], config["runtime"]["batch_size"]
    lost.append(
        f"sampling.temperature={sampling['temperature']} and all else of sampling: {server} takes it "
        "with each request."
    )
    lost.append(
        f"runtime.batch_size={batch}: {server} batches requests as they come, and speculation gains "
        "less in larger batches; measure it there again."
    )
