"""Medusa checkpoints of others, written by these tests in their format, against a slow reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import SAMPLED, make_engine, random_prompts
from safetensors.torch import save_file
from test_law_engine import FLOOR, p_values
from torch import Tensor
from torch.nn import functional

from foredraft.drafters.builtin_trained import MedusaConfig
from foredraft.drafters.medusa import Medusa, MedusaSession
from foredraft.framework.errors import ConfigError, InputError
from foredraft.framework.growth import Growth
from foredraft.framework.requests import Answer
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.testing.tiny import tiny_model

SIZE, VOCAB = 32, 12


def target(vocab: int = VOCAB, **options: Any) -> CausalLM:
    values = {"layers": 2, "seed": 0, "dtype": torch.float32, **options}
    return CausalLM(tiny_model("llama", vocab=vocab, **values))


def drawn(
    heads: int = 3, layers: int = 2, prefix: str = "", vocab: int = VOCAB
) -> dict[str, Tensor]:
    noise = torch.Generator().manual_seed(5)
    found = {}
    for head in range(heads):
        for layer in range(layers):
            name = f"{prefix}{head}.{layer}.linear"
            found[f"{name}.weight"] = 0.3 * torch.randn(SIZE, SIZE, generator=noise)
            found[f"{name}.bias"] = torch.randn(SIZE, generator=noise)
        found[f"{prefix}{head}.{layers}.weight"] = 0.3 * torch.randn(vocab, SIZE, generator=noise)
    return found


def written(folder: Path, tensors: dict[str, Tensor]) -> str:
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "medusa_lm_head.safetensors")
    config = {"medusa_num_heads": 2, "medusa_num_layers": 1, "base_model_name_or_path": "x"}
    (folder / "config.json").write_text(json.dumps(config))  # the counts of some are wrong
    return str(folder)


def read(path: str, of: CausalLM, **values: Any) -> Medusa:
    return Medusa.from_config(MedusaConfig(path=path, **values), of)


def due(tensors: dict[str, Tensor], hidden: Tensor, head: int, layers: int) -> Tensor:
    for layer in range(layers):
        weight, bias = (tensors[f"{head}.{layer}.linear.{kind}"] for kind in ("weight", "bias"))
        hidden = hidden + functional.silu(weight @ hidden + bias)
    return tensors[f"{head}.{layers}.weight"] @ hidden


@pytest.mark.parametrize(
    ("layers", "prefix"),
    [(1, ""), (2, "medusa_head."), (1, "medusa_heads."), (1, "model.medusa_head.")],
)
def test_drafts_are_the_references(
    layers: int, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, tensors = target(), drawn(layers=layers)
    path = written(tmp_path / "c", drawn(layers=layers, prefix=prefix))
    drafter, seen = read(path, of), list[tuple[list[int], Tensor]]()
    assert drafter.heads == 3
    real = MedusaSession._guessed

    def noted(session: MedusaSession, count: int) -> Tensor:
        found = real(session, count)
        seen.extend((list(ids), found[row]) for row, ids in enumerate(session.context.tokens))
        return found

    monkeypatch.setattr(MedusaSession, "_guessed", noted)
    engine = make_engine(of, drafter, 8)
    prompts = random_prompts((3, 6), vocab=VOCAB)
    rows = [
        Answer(engine.request(p, i, max_new_tokens=9, sampling=SAMPLED))
        for i, p in enumerate(prompts)
    ]
    for _ in engine.run(rows):
        pass
    assert seen
    for ids, found in seen:
        with torch.no_grad():
            out = of.model(input_ids=torch.tensor([ids]), output_hidden_states=True)
        newest = out.hidden_states[of.depth][0, len(ids) - 2]
        for head, logits in enumerate(found):
            torch.testing.assert_close(
                logits, due(tensors, newest, head, layers), rtol=1e-4, atol=1e-4
            )


def test_draws_follow_the_joint_law(tmp_path: Path) -> None:
    of = target(6)
    path = written(tmp_path / "c", drawn(vocab=6))
    assert min(p_values(of, read(path, of), 2, 8000, 2000)) > FLOOR


def test_trees_are_plain_decoding(tmp_path: Path) -> None:
    of, found = target(), []
    drafter = read(written(tmp_path / "c", drawn()), of, widths=[2, 2, 1])
    assert drafter.growth == Growth((2, 2, 1))
    for one in (drafter, None):
        engine = make_engine(of, one, 3, "greedy")
        rows = [
            Answer(engine.request(p, i, max_new_tokens=12))
            for i, p in enumerate(random_prompts((1, 5, 3), vocab=VOCAB))
        ]
        for _ in engine.run(rows):
            pass
        found.append([row.token_ids for row in rows])
    assert found[0] == found[1]


def test_its_own_heads_count_as_its_memory(tmp_path: Path) -> None:
    drafter = read(written(tmp_path / "c", drawn()), target())
    assert drafter.weight_bytes() == 4 * 3 * (2 * SIZE * (SIZE + 1) + VOCAB * SIZE)


REFUSED: dict[str, tuple[dict[str, Tensor | None], str]] = {
    "missing layer": ({"1.0.linear.bias": None}, "has no 1.0.linear.bias; heads must be all alike"),
    "missing head": ({"2.2.weight": None}, "has no 2.2.weight; heads must be all alike"),
    "unknown": ({"3.norm.weight": torch.ones(2)}, "has a tensor 3.norm.weight, for which there is no"),
    "too many": ({"16.0.linear.bias": torch.ones(SIZE)}, "has 17 heads of 2 layers; 1 to 16"),
    "whole numbers": ({"0.2.weight": torch.ones(VOCAB, SIZE, dtype=torch.int32)}, "a head of shape [12, 32]"),
    "two heads": ({"0.5.weight": torch.ones(VOCAB, SIZE)}, "has more than one LM head for a head"),
}  # fmt: skip


def wrong(path: str, of: CausalLM | None = None) -> str:
    with pytest.raises((ConfigError, InputError)) as error:
        read(path, of or target())
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str, tmp_path: Path) -> None:
    tensors, says = REFUSED[name]
    every: dict[str, Any] = {**drawn(), **tensors}
    path = written(
        tmp_path / "c", {key: value for key, value in every.items() if value is not None}
    )
    assert says in wrong(path)


def test_another_targets_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "c", drawn())
    assert "shape [32]; for this target it must be [48]" in wrong(path, target(hidden_size=48))
    assert "shape [12, 32]; for this target it must be [20, 32]" in wrong(path, target(20))


def test_pickles_are_refused(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "c", drawn()))
    (path / "medusa_lm_head.safetensors").rename(path / "medusa_lm_head.pt")
    assert "medusa_lm_head.pt is not read, because a pickle can run code" in wrong(str(path))
