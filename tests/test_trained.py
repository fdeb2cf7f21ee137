"""Folders of trained weights: what they must hold, and whom they are for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from foredraft.framework.errors import ConfigError, InputError
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.testing.tiny import tiny_model
from foredraft.framework.testing.tiny_tokenizer import tiny_tokenizer
from foredraft.framework.trained import Card, Trained, fingerprint, read_trained, write_trained

IDS = torch.tensor([1, 4, 9])


def target(seed: int = 0, tokenizer: Any = None, **options: Any) -> CausalLM:
    values = {"layers": 2, "vocab": 32, **options}
    return CausalLM(tiny_model("llama", seed=seed, dtype=torch.float32, **values), tokenizer)


def write(
    folder: Path, of: CausalLM | None = None, ids: torch.Tensor | None = IDS, **card: Any
) -> str:
    shape = {"heads": 2, "vocabulary": None if ids is None else len(ids)}
    about = {"drafter": "medusa", "shape": shape, "target": fingerprint(of or target()), **card}
    tensors = {"weight": torch.ones(2, 3)}
    write_trained(folder, tensors if ids is None else {**tensors, "ids": ids}, Card(**about))
    return str(folder)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    found = read_trained(write(tmp_path / "w"), "medusa", target())
    assert found.whole("heads", 1, 4) == 2
    with pytest.raises(
        InputError, match="says heads=2 in its card; it must be a whole number from 3"
    ):
        found.whole("heads", 3, 4)
    assert found.ids is not None and torch.equal(found.ids, IDS)
    net = nn.Module()
    net.weight = nn.Parameter(torch.zeros(2, 3))
    found.fill(net)
    assert torch.equal(net.weight, torch.ones(2, 3))


def test_other_weights_of_the_same_shape_are_taken(tmp_path: Path) -> None:
    """A fine-tuned target has another law, which costs acceptance and nothing else."""
    assert read_trained(write(tmp_path / "w"), "medusa", target(seed=1)).ids is not None


@pytest.mark.parametrize("options", [{"layers": 3}, {"vocab": 40}, {"hidden_size": 48}])
def test_another_model_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    path = write(tmp_path / "w", target={**fingerprint(target()), "name": "the-other"})
    with pytest.raises(ConfigError, match=r"was trained for another model \(the-other\)"):
        read_trained(path, "medusa", target(**options))


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    path = write(tmp_path / "w", target(tokenizer=tokenizer))
    other = tiny_tokenizer()
    other.add_tokens(["<new>"])
    assert read_trained(path, "medusa", target(tokenizer=tokenizer)).ids is not None
    with pytest.raises(ConfigError, match="trained for another tokenizer"):
        read_trained(path, "medusa", target(tokenizer=other))


def test_another_drafter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds drafter=medusa, not drafter=eagle"):
        read_trained(write(tmp_path / "w"), "eagle", target())


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "w")) / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match="is no whole safetensors file") as error:
        read_trained(str(path.parent), "medusa", target())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("missing", ["weights.safetensors", "card.json"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    folder = Path(write(tmp_path / "w"))
    (folder / missing).unlink()
    with pytest.raises(InputError, match=f"has no {missing}"):
        read_trained(str(folder), "medusa", target())


def test_pickled_weights_are_named_and_not_read(tmp_path: Path) -> None:
    folder = Path(write(tmp_path / "w"))
    (folder / "weights.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(
        InputError, match="pytorch_model.bin is not read, because a pickle can run code"
    ):
        read_trained(str(folder), "medusa", target())


def test_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("nowhere", "file"):
        with pytest.raises(
            InputError, match="is no folder; it must hold weights.safetensors and card"
        ):
            read_trained(str(tmp_path / name), "medusa", target())


BROKEN = [
    "",
    "[]",
    '{"drafter": "medusa"',
    '{"drafter": 3}',
    '{"drafter": "medusa", "shape": []}',
    '{"drafter": "medusa", "shape": {}, "target": NaN}',
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_card_is_refused(tmp_path: Path, text: str) -> None:
    folder = Path(write(tmp_path / "w"))
    (folder / "card.json").write_text(text)
    with pytest.raises(InputError, match="card.json"):
        read_trained(str(folder), "medusa", target())


@pytest.mark.parametrize(
    "ids",
    [[4, 1, 9], [1, 1, 9], [-1, 4, 9], [1, 4, 32], [[1, 4, 9]], [1.0, 4.0, 9.0], [1, 4]],
    ids=["unsorted", "twice", "negative", "beyond", "shape", "floats", "too few"],
)
def test_a_wrong_map_is_refused(tmp_path: Path, ids: list[Any]) -> None:
    path = write(tmp_path / "w", ids=torch.tensor(ids), shape={"vocabulary": 3})
    with pytest.raises(InputError, match="has a map that is no 3 ascending ids from 0 to 31"):
        read_trained(path, "medusa", target())


@pytest.mark.parametrize(
    ("ids", "size", "says"), [(None, 3, "has no map"), (IDS, None, "has a map")]
)
def test_a_reduced_vocabulary_without_its_map_is_refused(
    tmp_path: Path, ids: torch.Tensor | None, size: int | None, says: str
) -> None:
    path = write(tmp_path / "w", ids=ids, shape={"vocabulary": size})
    with pytest.raises(InputError, match=says):
        read_trained(path, "medusa", target())


def test_weights_of_another_shape_are_one_sentence() -> None:
    found = Trained({"weight": torch.ones(4, 3)}, {"shape": {}}, "drafter.path=x")
    net = nn.Module()
    net.weight = nn.Parameter(torch.zeros(2, 3))
    with pytest.raises(
        InputError, match="drafter.path=x does not fit its card: size mismatch"
    ) as error:
        found.fill(net)
    assert "\n" not in str(error.value)


def test_nothing_is_left_of_a_card_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        write(tmp_path / "file" / "w")


def test_a_card_is_json_for_people(tmp_path: Path) -> None:
    card = json.loads((Path(write(tmp_path / "w")) / "card.json").read_text())
    assert set(card) == {"drafter", "shape", "target", "training", "held_out", "guesses"}
