"""What an installed package has to do, wherever it is run from: no file of the checkout is read."""

from __future__ import annotations

import json
from importlib import metadata, resources

import pytest

from foredraft.framework import load
from foredraft.framework.cli.main import main
from foredraft.framework.config import compose
from foredraft.framework.plugins import registry

BUILT_IN = {
    "target": {"causal_lm", "smollm2", "table"},
    "drafter": {
        "none",
        "prompt_lookup",
        "ngram",
        "causal_lm",
        "early_exit",
        "quantized",
        "token_recycling",
        "jacobi",
        "layer_skip",
        "first_of",
        "one_of",
        "cascade",
        "synthetic",
        "medusa",
        "eagle",
    },
    "verifier": {"token", "greedy", "block", "coupled", "recursive", "kseq", "traversal"},
    "policy": {"fixed"},
}


@pytest.mark.parametrize("kind", BUILT_IN)
def test_built_in_parts_are_offered(kind: str) -> None:
    assert set(registry().names(kind)) >= BUILT_IN[kind]


def test_nothing_shipped_is_broken() -> None:
    ours = [b for b in registry().broken() if b.source.distribution == "foredraft"]
    assert ours == []


def test_presets_came_along() -> None:
    names = {
        entry.name for entry in resources.files("foredraft.conf").joinpath("drafter").iterdir()
    }
    assert {"unigram.yaml", "bigram.yaml"} <= names
    assert compose(["drafter=bigram"]).drafter.order == 2


@pytest.mark.parametrize("folder", ["framework", "drafters", "verifiers", "conf"])
def test_types_are_visible_to_checkers(folder: str) -> None:
    assert resources.files(f"foredraft.{folder}").joinpath("py.typed").is_file()


def test_it_decodes(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["generate", "target=table", "prompt=0 1 2 0 1", "max_new_tokens=9", "output=json"])
    answer = json.loads(capsys.readouterr().out)
    assert code == 0
    assert len(answer["token_ids"]) == 9
    plain = load("drafter=none", "target=table").generate("0 1 2 0 1", max_new_tokens=9)
    assert answer["token_ids"] == plain.token_ids


def test_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert metadata.version("foredraft") in capsys.readouterr().out
