"""The models that come with Foredraft: whole, small, documented, and lossless together."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch
from cli_helpers import make_cli

from foredraft.framework import Engine, load
from foredraft.framework.errors import InputError
from foredraft.framework.lean import lean_of
from foredraft.framework.shipped import HERE, names, place

PAIR = {"pycode", "pycode_small"}
SET = {"smollm2_eagle", "smollm2_exit", "smollm2_medusa", "smollm2_small"}
MOST_BYTES = {"pycode": 40_000_000, "smollm2": 25_000_000}
PROMPTS = ["import argparse\n", "def test_", "class Table:\n    def __init__(self"]


@pytest.fixture(scope="module")
def target() -> Engine:
    torch.set_num_threads(1)
    return load("target=pycode", "drafter=none")


def test_names_lead_to_folders() -> None:
    assert set(names()) == PAIR | SET
    assert place("shipped:pycode") == str(HERE / "pycode") and place("else/where") == "else/where"
    with pytest.raises(
        InputError, match=r"shipped:nothing is not possible; .* pycode, pycode_small"
    ):
        place("shipped:nothing")
    with pytest.raises(InputError, match="shipped:nothing"):
        load("target=causal_lm", "target.model=shipped:nothing")


@pytest.mark.parametrize("target", MOST_BYTES)
def test_they_are_small(target: str) -> None:
    files = [path for path in HERE.rglob("*") if path.parent.name.startswith(target)]
    assert 0 < sum(path.stat().st_size for path in files) < MOST_BYTES[target]


def test_the_pair_says_what_it_is_made_of() -> None:
    lines = gzip.decompress((HERE / "pycode" / "sources.jsonl.gz").read_bytes()).splitlines()
    sources = [json.loads(line) for line in lines]  # of both: they learnt from the same files
    for name in PAIR:
        card = json.loads((HERE / name / "card.json").read_text("utf-8"))
        assert len(sources) == card["files"] and all(len(one["sha256"]) == 64 for one in sources)
        for one in sources:
            assert card["packages"][one["package"]]["license"] == one["license"]
        assert card["training"]["looks"][-1]["score"] > card["training"]["looks"][0]["score"]


@pytest.mark.parametrize("name", sorted(SET))
def test_drafters_for_smollm2_say_what_they_learnt(name: str) -> None:
    folder = HERE / name
    card = json.loads((folder / "card.json").read_text("utf-8"))
    assert card["target"]["name"] == "smollm2" and card["shape"]["vocabulary"] == 4096
    guess = f"alpha {card['guesses'][0]}"
    first, *looks = [look[guess] for look in card["training"]["looks"]]
    assert max(looks) > 2 * first and card["training"]["texts"] > 500
    assert len(card["held_out"]) == 7  # all, and six groups of questions
    assert not [path for path in folder.rglob("*") if path.suffix not in (".json", ".safetensors")]


@pytest.mark.parametrize("temperature", [0, 1])
def test_the_pair_says_what_the_target_says(target: Engine, temperature: int) -> None:
    """At temperature 1 by the rule with shared noise, under which the text is plain decoding's as well."""
    options = (
        f"sampling.temperature={temperature}",
        "verifier=coupled" if temperature else "verifier=token",
    )
    model = target.parts.target
    plain = load("drafter=none", *options, target=model)
    pair = load("drafter=pycode_small", "policy.gamma=3", *options, target=model)
    assert lean_of(model.model) is not None  # type: ignore[attr-defined]
    for prompt in PROMPTS:
        ours, theirs = (engine.generate(prompt, max_new_tokens=40) for engine in (pair, plain))
        assert ours.token_ids == theirs.token_ids
        assert ours.metrics.drafted > 0


def test_counts_are_fitted_to_its_tokens(
    target: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Texts become tokens without the model's weights, by a way of their own."""
    text, out = tmp_path / "a.py", tmp_path / "counts.npz"
    text.write_text("import os\nimport sys\n" * 20, "utf-8")
    done = make_cli(capsys, "fit")(f"text={text}", f"out={out}", "order=2", "target=pycode")
    assert done.code == 0, done.err
    words = "drafter=ngram", "drafter.order=2", f"drafter.path={out}"
    pair = load(*words, target=target.parts.target)
    assert pair.generate("import os\nimport", max_new_tokens=8).metrics.drafted > 0
