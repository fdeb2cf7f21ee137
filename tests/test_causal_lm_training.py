"""A small transformer that is trained for its target: new or cut out of it, with all ids or with some."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_helpers import Cli, make_cli, refused
from helpers import cycle
from safetensors.torch import load_file
from torch import Tensor

from foredraft.drafters.builtin import CausalLMConfig
from foredraft.drafters.causal_lm import CausalLMDrafter
from foredraft.drafters.causal_lm_training import CausalLMShape, CausalLMTrainee, cut_out
from foredraft.framework.errors import ConfigError, InputError
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.testing.tiny import tiny_model
from foredraft.framework.testing.tiny_tokenizer import save_tiny
from foredraft.framework.trained import Card, fingerprint
from foredraft.framework.training.trainee import Texts

KINDS = ("llama", "qwen3", "gpt2", "gemma2")
IDS = torch.tensor([0, 3, 7, 8, 20])


def target(kind: str = "llama", **options: Any) -> CausalLM:
    return CausalLM(
        tiny_model(kind, seed=0, dtype=torch.float32, **{"layers": 3, "vocab": 32, **options})
    )


def logits(model: Any, ids: list[int]) -> Tensor:
    with torch.inference_mode():
        found: Tensor = model(input_ids=torch.tensor([ids])).logits
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_all_layers_are_the_target(kind: str) -> None:
    model = target(kind).model
    whole = cut_out(model, [1, 2, 3], None).eval()
    torch.testing.assert_close(logits(whole, [1, 5, 9]), logits(model, [1, 5, 9]))
    assert not torch.allclose(
        logits(cut_out(model, [1, 3], None).eval(), [1, 5]), logits(model, [1, 5])
    )


@pytest.mark.parametrize("kind", KINDS)
def test_with_some_ids_it_has_their_rows(kind: str) -> None:
    """Logits of kept ids, read through kept ids, are the target's."""
    of = target(kind)
    trainee = CausalLMTrainee(CausalLMConfig(), of, CausalLMShape(from_layers=[1, 2, 3]), IDS)
    text = torch.tensor([[3, 7, 20, 0]])
    with torch.inference_mode():
        (guess,) = trainee.guesses(Texts(text, text > -1))
        found = trainee.logits(guess.states)
    due = logits(of.model, text[0].tolist())[..., IDS]
    torch.testing.assert_close(found, due, rtol=1e-4, atol=1e-4)
    assert guess.ahead == 1 and guess.position == 0


def test_a_new_one_has_the_shape_asked_for() -> None:
    shape = CausalLMShape(layers=3, hidden_size=32, heads=2)
    trainee = CausalLMTrainee(CausalLMConfig(), target(), shape, IDS)
    config = trainee.module.config
    assert (config.num_hidden_layers, config.hidden_size, config.vocab_size) == (
        3,
        32,
        len(IDS) + 1,
    )
    assert trainee.described()["vocabulary"] == len(IDS)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"layers": 0}, "train.shape.layers=0"),
        ({"hidden_size": 30, "heads": 4}, "train.shape.hidden_size=30"),
        ({"from_layers": [0]}, "train.shape.from_layers=0"),
        ({"from_layers": [4]}, "train.shape.from_layers=4"),
        ({"from_layers": [1], "from_model": "m"}, "train.shape.from_model=m"),
    ],
)
def test_impossible_shapes_are_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        CausalLMTrainee(CausalLMConfig(), target(), CausalLMShape(**values))


def test_it_goes_on_from_a_model_that_is_there(tmp_path: Path) -> None:
    of, first = target(), tmp_path / "first"
    written(first, of, None)
    trainee = CausalLMTrainee(CausalLMConfig(), of, CausalLMShape(from_model=str(first)))
    begun = CausalLMDrafter.from_config(CausalLMConfig(model=str(first)), of).model
    torch.testing.assert_close(logits(trainee.module, [1, 5, 9]), logits(begun, [1, 5, 9]))
    with pytest.raises(ConfigError, match=r"train.vocabulary=5 is not possible with train.shape.f"):
        CausalLMTrainee(CausalLMConfig(), of, CausalLMShape(from_model=str(first)), IDS)
    with pytest.raises(ConfigError, match="32 ids and the target 40"):
        CausalLMTrainee(CausalLMConfig(), target(vocab=40), CausalLMShape(from_model=str(first)))


def test_a_target_without_a_model_is_refused() -> None:
    table = cycle(4)
    with pytest.raises(ConfigError, match="cannot be trained for target TableTarget"):
        CausalLMTrainee(CausalLMConfig(), table, CausalLMShape())


def written(folder: Path, of: CausalLM, ids: Tensor | None = IDS) -> CausalLMConfig:
    trainee = CausalLMTrainee(
        CausalLMConfig(), of, CausalLMShape(layers=1, hidden_size=16, heads=2), ids
    )
    trainee.write(folder, Card("causal_lm", trainee.described(), fingerprint(of)))
    return CausalLMConfig(model=str(folder))


@pytest.mark.parametrize("ids", [None, IDS], ids=["all ids", "some ids"])
def test_what_is_written_drafts(tmp_path: Path, ids: Tensor | None) -> None:
    of = target()
    drafter = CausalLMDrafter.from_config(written(tmp_path, of, ids), of)
    assert (drafter.ids.ids is None) == (ids is None)
    assert ids is None or torch.equal(drafter.ids.ids, ids)  # type: ignore[arg-type]


def test_a_reduced_model_without_its_map_is_refused(tmp_path: Path) -> None:
    of = target()
    config = written(tmp_path, of)
    (tmp_path / "ids.safetensors").unlink()
    with pytest.raises(InputError, match="says vocabulary=5, and has no map of ids"):
        CausalLMDrafter.from_config(config, of)
    (tmp_path / "card.json").unlink()
    with pytest.raises(ConfigError, match="6 ids and the target 32"):
        CausalLMDrafter.from_config(config, of)


def test_one_for_another_target_is_refused(tmp_path: Path) -> None:
    config = written(tmp_path, target())
    with pytest.raises(ConfigError, match=r"drafter.model=.* was trained for another model"):
        CausalLMDrafter.from_config(config, target(layers=2))


def test_one_of_another_drafter_is_refused(tmp_path: Path) -> None:
    of = target()
    config = written(tmp_path, of)
    card = json.loads((tmp_path / "card.json").read_text())
    (tmp_path / "card.json").write_text(json.dumps({**card, "drafter": "medusa"}))
    with pytest.raises(ConfigError, match="holds drafter=medusa, not drafter=causal_lm"):
        CausalLMDrafter.from_config(config, of)


# --- the whole command ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    save_tiny(
        folder / "model", eos=False, layers=2, hidden_size=32, intermediate_size=64, head_dim=8,
        num_attention_heads=4, num_key_value_heads=2, context=256, dtype=torch.float32, sharp=1.0, seed=5,
    )  # fmt: skip
    lines = [
        {"prompt": f"{word} {n}", "group": word} for n in range(12) for word in ("add", "tell")
    ]
    (folder / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return make_cli(capsys)


def words(place: Path, *more: str) -> list[str]:
    return [
        "train", "drafter=causal_lm", "target=causal_lm", f"target.model={place / 'model'}", "task=file",
        f"task.file={place / 'p.jsonl'}", "max_new_tokens=24", "sampling.temperature=1", "runtime.batch_size=8",
        "train.evaluate_every=10", *more,
    ]  # fmt: skip


@pytest.mark.parametrize("reduced", [(), ("train.vocabulary=40",)], ids=["all ids", "some ids"])
def test_it_learns_and_drafts(cli: Cli, place: Path, reduced: tuple[str, ...]) -> None:
    shape = ("train.shape.hidden_size=32", "train.shape.layers=1", "train.shape.heads=2")
    small = ("train.stored=float16", "train.steps=40", "train.lr=0.01")
    done = cli(*words(place, "out=o", *small, *shape, *reduced))
    assert done.code == 0 and "drafter=causal_lm drafter.model=o" in done.err, done.err
    looks = json.loads(Path("o/card.json").read_text())["training"]["looks"]
    assert looks[-1]["score"] > looks[0]["score"]
    common = ["generate", "target=causal_lm", f"target.model={place / 'model'}", "prompt=add 3",
              "max_new_tokens=20"]  # fmt: skip
    plain = cli(*common, "drafter=none")
    kinds = {value.dtype for value in load_file("o/model.safetensors").values()}
    assert kinds == {torch.float16}
    drafted = cli(*common, "drafter=causal_lm", "drafter.model=o", "drafter.dtype=float32")
    assert plain.code == drafted.code == 0 and plain.out == drafted.out, drafted.err


def test_a_model_is_not_trained_on(cli: Cli, place: Path) -> None:
    refused(
        cli(*words(place, "out=o", "drafter.model=m")),
        "drafter.model=m has no effect on a training",
    )
