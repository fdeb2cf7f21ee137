"""A drafter distilled onto a sharp tiny target learns it, through the real command.

The target is a Llama of two layers, trained for 200 steps on a language of six letters in which each letter
is drawn by a law of its own for the two letters before (``Source``: 36 laws, seeded, Dirichlet of 1/8). A
drafter that knows no text cannot come near its laws; one that looks at two letters can.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_helpers import Cli, make_cli

from foredraft.framework.testing.sharp import FIRST, Source, save_sharp, write_prompts

pytestmark = pytest.mark.usefixtures("only_builtins", "no_figures")
SOURCE = Source(letters=6, memory=2)
SECONDS = 180


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sharp")
    losses = save_sharp(folder / "target", SOURCE, steps=200)
    assert losses["end"] < 0.7 < losses["start"]  # nats a letter, of log(6) = 1.8
    write_prompts(folder / "p.jsonl", SOURCE, 120, 8)
    return folder


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return make_cli(capsys)


def test_a_source_draws_by_its_laws() -> None:
    source = Source(seed=3, letters=3, memory=2, sharpness=1.0)
    texts = source.draw(np.random.default_rng(0), 400, 120).numpy() - FIRST
    states = texts[:, :-2] * 3 + texts[:, 1:-1]
    for state, law in enumerate(source.laws):
        found = np.bincount(texts[:, 2:][states == state], minlength=3)
        assert found.sum() > 500
        assert np.allclose(found / found.sum(), law, atol=4 * (0.25 / found.sum()) ** 0.5)


def test_without_the_text_it_cannot_be_guessed() -> None:
    """The shares of letters, which are the best that knows nothing of the text, have an alpha of .5."""
    texts = SOURCE.draw(np.random.default_rng(1), 200, 60).numpy() - FIRST
    shares = np.bincount(texts.ravel(), minlength=6) / texts.size
    laws = SOURCE.laws[texts[:, :-1] * 6 + texts[:, 1:]]
    assert np.minimum(laws, shares).sum(-1).mean() < 0.55


def words(place: Path, *more: str) -> list[str]:
    return [
        "train", "drafter=causal_lm", "target=causal_lm", f"target.model={place / 'target'}", "task=file",
        f"task.file={place / 'p.jsonl'}", "max_new_tokens=48", "sampling.temperature=1",
        "runtime.batch_size=32", "train.lr=0.01", "train.warmup=20", "train.batch_size=12", "out=o", *more,
    ]  # fmt: skip


SHAPES = {
    "new": ("train.shape.hidden_size=32", "train.shape.layers=2", "train.shape.heads=2", "train.steps=160"),
    "cut out": ("train.shape.from_layers=[2]", "train.steps=120"),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_from_under_a_half_it_comes_to_above_nine_tenths(cli: Cli, place: Path, shape: str) -> None:
    begun = time.monotonic()
    done = cli(*words(place, *SHAPES[shape], "train.evaluate_every=40"))
    assert done.code == 0 and time.monotonic() - begun < SECONDS, done.err
    card = json.loads(Path("o/card.json").read_text("utf-8"))
    first, *looks = card["training"]["looks"]
    assert first["alpha 1"] < 0.5 and card["held_out"]["all"][0] > 0.9
    check_falling([look["loss"] for look in looks])
    if shape == "new":
        check_accepted(cli, place, card["held_out"]["all"][0])


def check_falling(losses: list[float]) -> None:
    """Each is the mean of 40 steps."""
    assert len(losses) >= 3
    assert all(later < earlier for earlier, later in zip(losses, losses[1:], strict=False)), losses


def check_accepted(cli: Cli, place: Path, due: float) -> None:
    """What the card says is what sampling with it accepts."""
    drafted: Any = cli(
        "generate", "target=causal_lm", f"target.model={place / 'target'}", "drafter=causal_lm",
        "drafter.model=o", f"prompts={place / 'p.jsonl'}", "policy.gamma=3", "sampling.temperature=1",
        "max_new_tokens=48", "runtime.batch_size=32", "output=json",
    ).objects  # fmt: skip
    alphas = [one["metrics"]["alpha"] for one in drafted]
    assert sum(alphas) / len(alphas) == pytest.approx(due, abs=0.02)
