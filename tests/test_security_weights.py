"""Model folders and fitted files are data: hostile ones are refused and nothing of them runs."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from foredraft.drafters.ngram_table import NgramTable
from foredraft.framework import ConfigError, ForedraftError, InputError, load
from foredraft.framework.targets.builtin import TableConfig
from foredraft.framework.targets.table import TableTarget
from foredraft.framework.testing.tiny import tiny_model


class Bomb:
    """Touches a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good tiny model."""
    tiny_model("llama", dtype=torch.float32).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def refused(folder: Path, *overrides: str) -> str:
    with pytest.raises(ForedraftError) as caught:
        load("drafter=none", "target=causal_lm", f"target.model={folder}", *overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_good_folder_loads(folder: Path) -> None:
    engine = load("drafter=none", "target=causal_lm", f"target.model={folder}")
    assert len(engine.generate([1, 2, 3], max_new_tokens=4).token_ids) == 4


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pkl", "model.ckpt"])
def test_pickle_weights_are_not_read(folder: Path, tmp_path: Path, name: str) -> None:
    mark = tmp_path / "ran"
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Bomb(mark)))
    assert "safetensors" in refused(folder)
    assert not mark.exists()


def test_pickle_under_the_name_of_safetensors_is_not_read(folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    (folder / "model.safetensors").write_bytes(pickle.dumps(Bomb(mark)))
    refused(folder)
    assert not mark.exists()


def test_a_truncated_weight_file_is_one_sentence(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])
    refused(folder)


@pytest.mark.parametrize("kind", ["config.json", "tokenizer_config.json"])
def test_code_in_the_folder_does_not_run(folder: Path, tmp_path: Path, kind: str) -> None:
    mark = tmp_path / "ran"
    (folder / "evil.py").write_text(f"open({str(mark)!r}, 'w').close()\nclass Evil: pass\n")
    path = folder / kind
    config = json.loads(path.read_text()) if path.exists() else {}
    key = "AutoModelForCausalLM" if kind == "config.json" else "AutoTokenizer"
    value = "evil.Evil" if kind == "config.json" else ["evil.Evil", None]
    config |= {"auto_map": {key: value, "AutoConfig": "evil.Evil"}, "model_type": "evil"}
    path.write_text(json.dumps(config))
    refused(folder)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["../../etc", "/nonexistent/model", "./nothing_here"])
def test_a_path_that_is_no_model_is_not_taken_for_a_hub_id(name: str) -> None:
    with pytest.raises(InputError, match="model folder"):
        load("drafter=none", "target=causal_lm", f"target.model={name}")


def test_a_config_that_is_not_json_is_one_sentence(folder: Path) -> None:
    (folder / "config.json").write_text("{ not json")
    assert "config.json" in refused(folder)


TARGET = TableTarget.from_config(TableConfig(vocab_size=8))


def fitted(path: Path) -> dict[str, Any]:
    """A good file, and its arrays to spoil."""
    table = NgramTable.fit([[0, 1, 2, 3, 1, 2]], order=2, vocab_size=8)
    table.save(path, TARGET)
    return dict(table.arrays)


def spoil(path: Path, arrays: dict[str, Any]) -> None:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    save_file(arrays, path, metadata=metadata)


SPOILED = {
    "an id beyond the vocabulary": lambda a: a | {"tokens_1": a["tokens_1"] + 100},
    "a negative id": lambda a: a | {"tokens_1": a["tokens_1"] - 100},
    "offsets beyond the end": lambda a: a | {"offsets_1": a["offsets_1"] * 1000},
    "offsets that go back": lambda a: a | {"offsets_1": a["offsets_1"][::-1].copy()},
    "unsorted keys": lambda a: a | {"keys_1": a["keys_1"][::-1].copy()},
    "a count of zero": lambda a: a | {"counts_1": a["counts_1"] * 0},
    "floats": lambda a: a | {"counts_0": a["counts_0"].astype(np.float64)},
    "a missing array": lambda a: {k: v for k, v in a.items() if k != "keys_1"},
}


@pytest.mark.parametrize("fault", SPOILED)
def test_a_spoiled_table_is_refused(fault: str, tmp_path: Path) -> None:
    path = tmp_path / "table.safetensors"
    spoil(path, SPOILED[fault](fitted(path)))
    with pytest.raises(InputError, match="damaged"):
        NgramTable.load(str(path), TARGET)


def test_a_pickle_is_not_a_table(tmp_path: Path) -> None:
    mark, path = tmp_path / "ran", tmp_path / "table.safetensors"
    path.write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(InputError, match="not a readable"):
        NgramTable.load(str(path), TARGET)
    assert not mark.exists()


def test_a_table_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.safetensors"
    fitted(path)
    other = TableTarget.from_config(TableConfig(vocab_size=9))
    with pytest.raises(ConfigError, match="another vocabulary"):
        NgramTable.load(str(path), other)
