"""Every built-in drafter passes every check of the conformance kit, and no check is left out that
has something to say about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foredraft.framework.interfaces import Target
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.testing.kit import Report, check_drafter, run_checks, subject_of
from foredraft.framework.testing.kit.report import SKIPPED
from foredraft.framework.testing.tiny import tiny_model
from foredraft.framework.testing.tiny_tokenizer import save_tiny

Case = tuple[str, dict[str, Any]]
DRAWN: dict[str, Case] = {
    "ngram": ("ngram", {}),
    "ngram as a tree": ("ngram", {"widths": [2, 2, 1]}),
    "ngram with independent children": ("ngram", {"widths": [2, 2], "children": "independent"}),
    "ngram within a budget": ("ngram", {"nodes": 8}),
    "early_exit": ("early_exit", {"layers": 1}),
    "quantized": ("quantized", {}),
    "first_of": ("first_of", {}),
    "first_of with a model": (
        "first_of",
        {"drafters": [{"name": "prompt_lookup", "min_ngram": 3}, "quantized"]},
    ),
    "one_of": ("one_of", {"start_with": 1}),
    "synthetic": ("synthetic", {"alpha": 0.6, "step_seconds": 0.001}),
}
CHOSEN: dict[str, Case] = {
    "none": ("none", {}),
    "prompt_lookup": ("prompt_lookup", {}),
    "prompt_lookup as a tree": ("prompt_lookup", {"branches": 3, "nodes": 12}),
    "ngram with the likeliest children": ("ngram", {"widths": [2, 2], "children": "deterministic"}),
}
LEARNING: dict[str, Case] = {
    "token_recycling": ("token_recycling", {}),
    "token_recycling as chains": ("token_recycling", {"successors": 1}),
    "jacobi": ("jacobi", {}),
}
# Variants of what is tested in any case: ten seconds or more each.
SLOW = {
    "ngram as a tree",
    "prompt_lookup as a tree",
    "ngram with independent children",
    "ngram with the likeliest children",
    "ngram within a budget",
    "token_recycling as chains",
    "first_of with a model",
    "one_of",
}
VARIANT = (pytest.mark.slow,)
SMALL: dict[str, Any] = {"vocab": 12, "context": 64}


@pytest.mark.parametrize("case", [pytest.param(c, marks=VARIANT * (c in SLOW)) for c in DRAWN])
def test_drafters_with_a_law_conform(case: str) -> None:
    shown(check_drafter(*DRAWN[case]), "causal_stopping")


@pytest.mark.parametrize("case", [pytest.param(c, marks=VARIANT * (c in SLOW)) for c in CHOSEN])
def test_drafters_that_choose_conform(case: str) -> None:
    shown(check_drafter(*CHOSEN[case]), "reported_law", "causal_stopping")


@pytest.mark.parametrize("case", [pytest.param(c, marks=VARIANT * (c in SLOW)) for c in LEARNING])
def test_drafters_that_learn_conform(case: str) -> None:
    state = ("rollback", "every_round_observed")
    shown(check_drafter(*LEARNING[case]), "reported_law", "causal_stopping", *state)


@pytest.mark.parametrize(
    "values",
    [pytest.param({}, id="chain"), pytest.param({"widths": [2, 2]}, id="tree", marks=VARIANT)],
)
def test_a_model_conforms_on_a_target_of_the_callers(
    values: dict[str, Any], tmp_path: Path
) -> None:
    shown(check_drafter("causal_lm", saved(tmp_path, **values), target=own()), "causal_stopping")


@pytest.mark.parametrize(
    "inner",
    ["prompt_lookup", pytest.param({"name": "ngram", "order": 2}, marks=VARIANT)],
)
def test_a_model_that_is_drafted_for_conforms(inner: Any, tmp_path: Path) -> None:
    shown(check_drafter("cascade", saved(tmp_path, drafter=inner), target=own()))


def test_a_model_with_a_shorter_context_than_the_target_conforms(tmp_path: Path) -> None:
    values = saved(tmp_path, context=20)
    only = ["end_of_context", "greedy_equality", "row_fates"]
    run_checks(subject_of("drafter", "causal_lm", values, target=own()), only=only).raise_failures()


def shown(report: Report, *left_out: str) -> None:
    """Only these checks have nothing to say."""
    skipped = {one.check.name for one in report.outcomes if one.status == SKIPPED}
    assert skipped - {"no_host_sync"} == set(left_out)
    dear = sorted(report.outcomes, key=lambda one: -one.seconds)[:4]
    print(f"{sum(one.seconds for one in report.outcomes):.1f} s, of which ", end="")
    print(", ".join(f"{one.check.name} {one.seconds:.1f}" for one in dear))


def own() -> Target:
    return CausalLM(tiny_model("llama", layers=2, seed=0, **SMALL))


def saved(folder: Path, context: int = 64, **values: Any) -> dict[str, Any]:
    """The values of a drafter whose model lies in a folder."""
    options: dict[str, Any] = {**SMALL, "context": context}
    save_tiny(folder / "model", eos=False, layers=1, seed=1, **options)
    return {"model": str(folder / "model"), **values}
