"""What ``foredraft demo`` shows: targets with their prompts, and the drafters beside each. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

Sides = Mapping[str, tuple[str, ...]]
Prompts = list[dict[str, str]]

# Each row: the name shown, then what is chosen through config. `{small}` is a folder that holds two
# thirds of the target's layers, as a stand-in for a small model of the same family; `{exit}` is four
# fifths of its depth.
SIDES: Sides = {
    "prompt_lookup": ("drafter=prompt_lookup", "policy.gamma=6"),
    "ngram": ("drafter=ngram", "drafter.order=4", "policy.gamma=3"),
    "bigram": ("drafter=bigram", "policy.gamma=2"),
    "early_exit": ("drafter=early_exit", "drafter.layers={exit}", "policy.gamma=2"),
    "causal_lm": (
        "drafter=causal_lm",
        "drafter.model={small}",
        "drafter.kernels=tuned",
        "policy.gamma=2",
    ),
    "quantized": ("drafter=quantized", "policy.gamma=4"),
}
UNTRAINED = "prompt_lookup", "ngram", "bigram", "quantized"
TRAINED = "medusa", "eagle", "exit", "small"
SET: Sides = {name: SIDES[name] for name in UNTRAINED} | {
    f"smollm2_{name}": (f"drafter=smollm2_{name}", "policy.gamma=2") for name in TRAINED
}
PAIR: Sides = {
    "unigram": ("drafter=unigram", "policy.gamma=1"),
    "bigram": ("drafter=bigram", "policy.gamma=2"),
    "prompt_lookup": ("drafter=prompt_lookup", "policy.gamma=4"),
    "pycode_small": ("drafter=pycode_small", "policy.gamma=2"),
}


@dataclass(frozen=True)
class Show:
    """One table.

    Args:
        title: above it.
        target: what is chosen of the target.
        sides: drafters, by the name shown.
        prompts: the file beside ``framework/bench/``.
        traced: the side whose rounds are shown, of the last prompt.
    """

    title: str
    target: tuple[str, ...]
    sides: Sides
    prompts: str = "prompts.jsonl"
    traced: str = "prompt_lookup"

    def read(self) -> Prompts:
        """Its prompts."""
        place = resources.files("foredraft.framework.bench").joinpath(self.prompts)
        return [json.loads(line) for line in place.read_text("utf-8").splitlines()]


def shows(overrides: list[str]) -> list[Show]:
    """Those of the models that come along, or one of another target."""
    if overrides:
        return [Show("Greedy, batch 1", tuple(overrides), SIDES)]
    return [
        Show(
            "pycode, a model of Python source that comes with Foredraft: greedy, batch 1",
            ("target=pycode", "target.kernels=library"), PAIR, "code.jsonl", "pycode_small",
        ),
        Show("SmolLM2-135M-Instruct: greedy, batch 1", ("target=smollm2",), SET),
    ]  # fmt: skip
