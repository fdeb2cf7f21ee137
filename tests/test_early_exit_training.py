"""Trained exits: how they begin, what they learn, what their folder holds, and what it is refused for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_helpers import Cli, make_cli, refused
from helpers import cycle, make_engine, plain, random_prompts
from test_kit_drafters import own, shown
from test_law_engine import FLOOR, p_values
from torch import Tensor

from foredraft.drafters.builtin import EarlyExitConfig
from foredraft.drafters.early_exit import EarlyExit
from foredraft.drafters.early_exit_training import EarlyExitShape, EarlyExitTrainee
from foredraft.framework.errors import ConfigError, InputError
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.testing import check_drafter
from foredraft.framework.testing.tiny import tiny_model
from foredraft.framework.testing.tiny_tokenizer import save_tiny
from foredraft.framework.trained import Card, fingerprint
from foredraft.framework.training.trainee import Texts

KINDS = ("llama", "qwen3", "gpt2", "gemma2")


def target(kind: str = "llama", vocab: int = 32, **options: Any) -> CausalLM:
    values: dict[str, Any] = {"layers": 4, "seed": 0, "dtype": torch.float32, **options}
    return CausalLM(tiny_model(kind, vocab=vocab, **values))


def trainee_for(
    of: CausalLM, exits: tuple[int, ...] = (1, 3), ids: Tensor | None = None, scale: float = 0.0
) -> EarlyExitTrainee:
    """New exits; with a scale, they say something of their own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        found = EarlyExitTrainee(EarlyExitConfig(), of, EarlyExitShape(list(exits), rank=8), ids)
    noise = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in found.module.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=noise))
    return found


def saved(folder: Path, of: CausalLM, **values: Any) -> str:
    made = trainee_for(of, scale=0.3, **values)
    made.write(folder, Card("early_exit", made.described(), fingerprint(of)))
    return str(folder)


# --- the network ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@torch.inference_mode()
def test_a_new_exit_is_the_untrained_one(kind: str, tmp_path: Path) -> None:
    of = target(kind)
    made = trainee_for(of)
    made.write(tmp_path, Card("early_exit", made.described(), fingerprint(of)))
    hidden = torch.randn(3, 32)
    for layer in (1, 3):
        trained = EarlyExit(EarlyExitConfig(layer, str(tmp_path)), of)
        untrained = EarlyExit(EarlyExitConfig(layer), of)
        assert trained.layers == layer
        torch.testing.assert_close(trained.logits(hidden), untrained.logits(hidden))


@torch.inference_mode()
def test_it_drafts_as_it_was_trained(tmp_path: Path) -> None:
    """Each exit of the file has its own norm and adapter."""
    of, ids = target(), torch.tensor([1, 4, 5, 9])
    path = saved(tmp_path, of, ids=ids)
    made = trainee_for(of, ids=ids, scale=0.3)
    text = torch.tensor([[3, 7, 2]])
    out = of.model(input_ids=text, output_hidden_states=True)
    texts = Texts(text, text > -1, dict(enumerate(out.hidden_states)))
    guesses = made.guesses(texts)
    assert [(guess.name, guess.ahead, guess.position) for guess in guesses] == [
        ("layer 1", 1, 0), ("layer 3", 1, 0)
    ]  # fmt: skip
    for layer, guess in zip((1, 3), guesses, strict=True):
        found = EarlyExit(EarlyExitConfig(layer, path), of).logits(texts.hidden[layer])
        torch.testing.assert_close(found[..., ids], made.logits(guess.states))
        assert bool(found[..., 0].isneginf().all())


def test_only_the_exits_learn() -> None:
    of = target()
    made = trainee_for(of)
    text = torch.tensor([[3, 7, 2]])
    hidden = {layer: torch.randn(1, 3, 32) for layer in (1, 3)}
    made.logits(made.guesses(Texts(text, text > -1, hidden))[1].states).square().sum().backward()
    module = made.module
    assert float(module.get_parameter("up").grad[1].abs().sum()) > 0  # type: ignore[index]
    assert float(module.get_parameter("norms.1.weight").grad.abs().sum()) > 0  # type: ignore[union-attr]
    assert all(parameter.grad is None for parameter in of.model.parameters())


def test_without_a_choice_the_fewest_layers_draft(tmp_path: Path) -> None:
    of = target()
    assert EarlyExit(EarlyExitConfig(path=saved(tmp_path, of)), of).layers == 1
    assert EarlyExit(EarlyExitConfig(), target(layers=6)).layers == 4


# --- drafts --------------------------------------------------------------------------------------


def test_it_conforms(tmp_path: Path) -> None:
    path = saved(tmp_path, own(), exits=(1,))  # type: ignore[arg-type]
    shown(check_drafter("early_exit", {"path": path}, target=own()), "causal_stopping")


@pytest.mark.parametrize("some", [False, True], ids=["all ids", "some ids"])
def test_draws_follow_the_joint_law(tmp_path: Path, some: bool) -> None:
    of = target("qwen3", vocab=6, layers=3)
    ids = torch.tensor([0, 2, 3, 5]) if some else None
    path = saved(tmp_path, of, exits=(1, 2), ids=ids)
    drafter = EarlyExit(EarlyExitConfig(2, path), of)
    assert min(p_values(of, drafter, 2, 12_000, batch=2000)) > FLOOR


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_ids_are_plain_ones_in_a_ragged_batch(kind: str, tmp_path: Path) -> None:
    of = target(kind, dtype=torch.float64)
    drafter = EarlyExit(EarlyExitConfig(3, saved(tmp_path, of)), of)
    prompts = random_prompts((1, 4, 9, 2), vocab=32)
    found = make_engine(of, drafter, 3, max_new_tokens=16).generate_many(prompts)
    for prompt, answer in zip(prompts, found, strict=True):
        assert answer.token_ids == plain(of.model, prompt, 16)


# --- what is refused -----------------------------------------------------------------------------


def test_a_layer_without_an_exit_is_refused_with_those_that_have_one(tmp_path: Path) -> None:
    of = target()
    with pytest.raises(ConfigError, match=r"drafter.layers=2 is not .* exits behind layers 1, 3\."):
        EarlyExit(EarlyExitConfig(2, saved(tmp_path, of)), of)


def test_exits_of_another_target_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, target())
    with pytest.raises(ConfigError, match="was trained for another model"):
        EarlyExit(EarlyExitConfig(1, path), target(layers=5))


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ({"exits": [3, 1]}, r"exits=\[3, 1\] in its card; it must be a list of layers from 1 to 3"),
        ({"exits": [1, 4]}, r"exits=\[1, 4\] in its card"),
        ({"exits": "13"}, "exits='13' in its card"),
        ({"exits": []}, r"exits=\[\] in its card"),
        ({"rank": 9}, "does not fit its card"),
        ({"rank": 0}, "rank=0 in its card"),
        ({"exits": [1, 2, 3]}, "does not fit its card"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(
    shape: dict[str, Any], says: str, tmp_path: Path
) -> None:
    of = target()
    path = saved(tmp_path, of)
    card = json.loads((tmp_path / "card.json").read_text())
    card["shape"] |= shape
    (tmp_path / "card.json").write_text(json.dumps(card))
    with pytest.raises(InputError, match=says):
        EarlyExit(EarlyExitConfig(1, path), of)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"exits": []}, r"train.shape.exits=\[\]"),
        ({"exits": [2, 2]}, r"train.shape.exits=\[2, 2\]"),
        ({"exits": [4]}, "train.shape.exits=4 is not possible"),
        ({"rank": 0}, "train.shape.rank=0"),
    ],
)
def test_impossible_shapes_are_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        EarlyExitTrainee(EarlyExitConfig(), target(), EarlyExitShape(**values))


def test_a_target_without_layers_is_refused() -> None:
    with pytest.raises(ConfigError, match="early_exit is not possible with target TableTarget"):
        EarlyExitTrainee(EarlyExitConfig(), cycle(4), EarlyExitShape([1]))


# --- from the command line -----------------------------------------------------------------------


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    save_tiny(tmp_path / "model", context=128, layers=4, dtype=torch.float32)
    lines = [json.dumps({"prompt": f"add {number}"}) for number in range(12)]
    (tmp_path / "p.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    return make_cli(capsys)


WORDS = (
    "drafter=early_exit", "train.shape.exits=[1,3]", "train.shape.rank=16", "target=causal_lm",
    "target.model=model", "task=file", "task.file=p.jsonl", "max_new_tokens=16", "out=o",
    "sampling.temperature=1", "train.warmup=2", "train.lr=0.02", "train.batch_size=4",
    "train.held_out=3", "train.evaluate_every=1",
)  # fmt: skip


def test_training_raises_alpha_of_every_exit(cli: Cli, tmp_path: Path) -> None:
    done = cli("train", *WORDS, "train.steps=60")
    assert done.code == 0 and "layer 1" in done.out and "layer 3" in done.out
    card = json.loads((tmp_path / "o/card.json").read_text())
    assert card["guesses"] == ["layer 1", "layer 3"]
    assert card["shape"] == {"exits": [1, 3], "rank": 16, "vocabulary": None}
    looks, held_out = card["training"]["looks"], card["held_out"]["all"]
    best = max(looks, key=lambda look: float(look["score"]))  # the one whose weights are written
    for place, name in enumerate(card["guesses"]):
        first, last = looks[0][f"alpha {name}"], best[f"alpha {name}"]
        assert last > first + 0.05 and abs(held_out[place] - last) < 1e-3
    words = ("target=causal_lm", "target.model=model", "prompt=add 3", "max_new_tokens=8")
    drafted = cli("generate", *words, "drafter=early_exit", "drafter.path=o", "drafter.layers=3")
    alone = cli("generate", *words, "drafter=none")
    assert drafted.code == 0 and drafted.out == alone.out
    refused(cli("generate", *words, "drafter=early_exit", "drafter.path=o", "drafter.layers=2"),
            "drafter.layers=2", "layers 1, 3")  # fmt: skip
    shutil.rmtree(tmp_path / "o/work")


def test_layers_and_path_have_no_effect_on_a_training(cli: Cli) -> None:
    refused(
        cli("train", *WORDS, "train.steps=1", "drafter.layers=2"), "write train.shape.exits=[2]"
    )
    refused(cli("train", *WORDS, "train.steps=1", "drafter.path=x"), "drafter.path=x has no effect")
