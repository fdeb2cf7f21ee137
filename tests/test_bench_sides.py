"""What a sweep's clock counts, on a target whose steps take a known time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import tiny_model

from foredraft.framework import load
from foredraft.framework.bench.measure import run_generate
from foredraft.framework.bench.sides import Sides, decoded
from foredraft.framework.clock import book
from foredraft.framework.config import as_dict, compose
from foredraft.framework.errors import ForedraftError

PREFILL, STEP = 10.0, 1.0


@pytest.mark.parametrize("words", [("drafter=none",), ("drafter=ngram", "policy.gamma=3")])
@pytest.mark.parametrize("prompts", [[[0, 1, 2]], [[0, 1, 2], [3, 1]]])
def test_the_prefill_is_told_apart(
    words: tuple[str, ...], prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load("target=table", "max_new_tokens=6", *words)
    target = engine.parts.target
    kept = target.start

    def start(*given: Any) -> Any:
        session = kept(*given)
        for name, seconds in (("prefill", PREFILL), ("forward", STEP)):
            monkeypatch.setattr(session, name, slowed(getattr(session, name), seconds))
        return session

    monkeypatch.setattr(target, "start", start)
    found = decoded(engine, prompts, range(len(prompts)))
    rounds = max(row["rounds"] for row in found["rows"])
    assert found["prefill"] == pytest.approx(PREFILL, abs=0.5)
    assert found["seconds"] - found["prefill"] == pytest.approx(rounds * STEP, abs=0.5)
    assert found["time"]["verify"] == pytest.approx(rounds * STEP, abs=0.5)
    assert "prefill" not in found["time"]


@pytest.mark.parametrize("kind", ["generate", "generate_lookup", "generate_assisted"])
def test_generate_and_its_kin_give_plain_decodings_ids(kind: str, tmp_path: Path) -> None:
    model, assistant = str(tmp_path / "model"), str(tmp_path / "assistant")
    tiny_model("llama").save_pretrained(model)
    tiny_model("llama", seed=1).save_pretrained(assistant)
    words = ["target=causal_lm", f"target.model={model}", "drafter=none", "max_new_tokens=8"]
    config = as_dict(compose(words))
    cells = {name: {"kind": name, "config": config} for name in ("plain", kind)}
    prompts = {0: {"content": [5, 6, 7, 5, 6]}, 1: {"content": [9, 3, 9]}}
    sides = Sides(cells, prompts, assistant=assistant)
    plain, theirs = (sides.run(name, [0, 1]) for name in cells)
    assert [row["ids"] for row in theirs["rows"]] == [row["ids"] for row in plain["rows"]]
    assert 0 < theirs["prefill"] < theirs["seconds"]
    # One token comes with the prefill of each prompt; of a round of drafts, all that stood.
    most = {"generate": 1, "generate_lookup": 11, "generate_assisted": 8}[kind]
    assert 2 <= theirs["by_prefill"] <= 2 * most


def test_what_a_first_round_let_go_of_is_no_decoding(tmp_path: Path) -> None:
    """A model that repeats itself on a prompt that does, too: prompt lookup is right at once."""
    model = tiny_model("llama")
    with torch.no_grad():
        for weights in model.parameters():
            weights.zero_()  # all logits alike, so the answer is 0 0 0 ...
    found = run_generate(model, [[5, 0, 0, 0, 0, 0, 0, 0]], 12, prompt_lookup_num_tokens=5)
    assert found.tokens == [[0] * 12] and found.by_prefill == 6


def test_an_assistant_that_is_no_model_is_refused(tmp_path: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path / "model")
    words = ["target=causal_lm", f"target.model={tmp_path / 'model'}", "max_new_tokens=8"]
    cell = {"kind": "generate_assisted", "config": as_dict(compose(words))}
    sides = Sides({"a": cell}, {0: {"content": [5, 6]}}, assistant=str(tmp_path / "nothing"))
    with pytest.raises(ForedraftError, match="nothing"):
        sides.run("a", [0])


def slowed(call: Any, seconds: float) -> Any:
    def slow(*given: Any, **named: Any) -> Any:
        book(seconds)
        return call(*given, **named)

    return slow
