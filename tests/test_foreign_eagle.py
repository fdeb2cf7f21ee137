"""EAGLE checkpoints of others, written by these tests in their formats, against a slow reference."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import SAMPLED, make_engine, random_prompts
from safetensors.torch import save_file
from test_eagle import Noted
from test_law_engine import FLOOR, p_values
from torch import Tensor
from torch.nn import functional

from foredraft.drafters.builtin_trained import EagleConfig
from foredraft.drafters.eagle import Eagle
from foredraft.drafters.rotary import scaled_rotations
from foredraft.framework.errors import ConfigError, InputError
from foredraft.framework.requests import Answer
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.testing.tiny import tiny_model

SIZE, HEADS, KEPT, HEAD, INNER, VOCAB, DRAFTED, DEPTH = 32, 4, 2, 8, 24, 24, 10, 6
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip


@dataclass
class Checkpoint:
    """A network by the names of EAGLE's authors, and how the reference runs it."""

    tensors: dict[str, Tensor]
    config: dict[str, Any]
    reads: tuple[int, ...] = (DEPTH,)
    scale: dict[str, Any] = field(default_factory=dict)  # of its positions
    residual_is_normed: bool = False

    def write(self, folder: Path) -> str:
        folder.mkdir(exist_ok=True)
        save_file(
            {k: v.contiguous() for k, v in self.tensors.items()}, folder / "model.safetensors"
        )
        (folder / "config.json").write_text(json.dumps(self.config))
        return str(folder)


def target(vocab: int = VOCAB, **options: Any) -> CausalLM:
    values = {"layers": DEPTH, "seed": 0, "dtype": torch.float32, **options}
    return CausalLM(tiny_model("llama", vocab=vocab, **values))


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) / shape[-1] ** 0.5


def layer(prefix: str, wide: int) -> dict[str, Tensor]:
    shapes = {
        "self_attn.q_proj": (HEADS * HEAD, wide), "self_attn.k_proj": (KEPT * HEAD, wide),
        "self_attn.v_proj": (KEPT * HEAD, wide), "self_attn.o_proj": (SIZE, HEADS * HEAD),
        "mlp.gate_proj": (INNER, SIZE), "mlp.up_proj": (INNER, SIZE), "mlp.down_proj": (SIZE, INNER),
    }  # fmt: skip
    found = {
        f"{prefix}{name}.weight": 2 * drawn(*shape, seed=seed)
        for seed, (name, shape) in enumerate(shapes.items())
    }
    return {**found, f"{prefix}post_attention_layernorm.weight": 1 + drawn(SIZE, seed=20)}


CONFIG = {
    "model_type": "llama", "hidden_size": SIZE, "num_attention_heads": HEADS,
    "num_key_value_heads": KEPT, "intermediate_size": INNER, "vocab_size": VOCAB, "hidden_act": "silu",
    "rms_norm_eps": 1e-5, "num_hidden_layers": 1,
}  # fmt: skip


def eagle1(**config: Any) -> Checkpoint:
    tensors = {**layer("layers.0.", SIZE), "fc.weight": drawn(SIZE, 2 * SIZE, seed=9)}
    return Checkpoint(tensors, {**CONFIG, **config})


def eagle3(vocab: int = VOCAB, **config: Any) -> Checkpoint:
    places = torch.randperm(vocab, generator=torch.Generator().manual_seed(3))[:DRAFTED].sort()[0]
    tensors = {
        **layer("midlayer.", 2 * SIZE),
        "midlayer.hidden_norm.weight": 1 + drawn(SIZE, seed=21),
        "midlayer.input_layernorm.weight": 1 + drawn(SIZE, seed=22),
        "norm.weight": 1 + drawn(SIZE, seed=23), "fc.weight": drawn(SIZE, 3 * SIZE, seed=24),
        "lm_head.weight": 2 * drawn(DRAFTED, SIZE, seed=25),
        "d2t": places - torch.arange(DRAFTED),
        "t2d": torch.zeros(vocab, dtype=torch.bool).scatter(0, places, True),
    }  # fmt: skip
    config = {**CONFIG, "vocab_size": vocab, "draft_vocab_size": DRAFTED, **config}
    return Checkpoint(tensors, config, (2, 3, 3))


def with_bias() -> Checkpoint:
    """EAGLE with a bias, another base of positions, and the target's own embeddings once more."""
    made = eagle1(rope_theta=500.0)
    made.tensors["fc.bias"] = drawn(SIZE, seed=30)
    made.tensors["embed_tokens.weight"] = target().model.get_input_embeddings().weight.detach()
    made.scale = {"rope_theta": 500.0}
    return made


def own_embeddings() -> Checkpoint:
    """EAGLE-3 with embeddings, layers and positions of its own."""
    made = eagle3(
        eagle_config={"eagle_aux_hidden_state_layer_ids": [0, 2, 5]}, rope_scaling=LLAMA3, head_dim=HEAD
    )  # fmt: skip
    made.tensors["embed_tokens.weight"] = drawn(VOCAB, SIZE, seed=31)
    made.scale, made.reads = {"rope_scaling": LLAMA3}, (1, 3, 6)
    return made


def speculators1() -> Checkpoint:
    made = eagle1()
    made.config = {
        "speculators_model_type": "eagle", "transformer_layer_config": made.config, "layernorms": False,
        "fusion_bias": False, "architectures": ["EagleSpeculator"],
    }  # fmt: skip
    return made


def speculators3() -> Checkpoint:
    made = eagle3()
    made.config = {
        "speculators_model_type": "eagle3", "transformer_layer_config": made.config,
        "draft_vocab_size": DRAFTED, "norm_before_residual": True,
        "eagle_aux_hidden_state_layer_ids": [0, 1, 6],
    }  # fmt: skip
    made.reads, made.residual_is_normed = (0, 1, 6), True
    return made


def renamed(made: Checkpoint) -> Checkpoint:
    """As the speculators library writes the same tensors."""
    names = (
        {"fc.": "fusion_fc.", "layers.0.": "transformer."}
        if made.reads == (DEPTH,)
        else {"midlayer.": "layers.0."}
    )
    for old, new in names.items():
        made.tensors = {
            new + k.removeprefix(old) if k.startswith(old) else k: v
            for k, v in made.tensors.items()
        }
    return made


KINDS = {
    "eagle": eagle1, "with a bias": with_bias, "eagle3": eagle3, "own embeddings": own_embeddings,
    "speculators": speculators1, "speculators eagle3": speculators3,
}  # fmt: skip


# --- the reference: no cache, no masks of others, everything anew for each draft --------------------


def rms(values: Tensor, weight: Tensor) -> Tensor:
    return values / (values.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def turned(heads: Tensor, made: Checkpoint) -> Tensor:
    """Positions as turns in the complex plane."""
    angles = scaled_rotations({"rope_theta": 10_000.0, **made.scale}, HEAD, "")
    turn = torch.polar(torch.ones(1), torch.arange(len(heads)).outer(angles)).unsqueeze(1)
    found = torch.complex(*heads.chunk(2, -1)) * turn
    return torch.cat([found.real, found.imag], -1)


def run(made: Checkpoint, embedded: Tensor, features: Tensor) -> Tensor:
    """The layer over a whole text, ``[n, size]``."""
    t = made.tensors
    prefix = "midlayer." if "norm.weight" in t else "layers.0."
    if "norm.weight" in t:
        normed = rms(features, t["midlayer.hidden_norm.weight"])
        inputs = torch.cat([rms(embedded, t["midlayer.input_layernorm.weight"]), normed], -1)
        residual = normed if made.residual_is_normed else features
    else:
        inputs = torch.cat([embedded, features], -1) @ t["fc.weight"].T
        inputs = residual = inputs + t.get("fc.bias", torch.zeros(SIZE))
    q, k, v = (
        (inputs @ t[f"{prefix}self_attn.{x}_proj.weight"].T).unflatten(-1, (-1, HEAD))
        for x in "qkv"
    )
    q, k = turned(q, made), turned(k, made)
    out = torch.zeros(len(inputs), HEADS, HEAD)
    for head in range(HEADS):
        kv = head * KEPT // HEADS
        for place in range(len(inputs)):
            scores = k[: place + 1, kv] @ q[place, head] / HEAD**0.5
            out[place, head] = scores.softmax(0) @ v[: place + 1, kv]
    states = residual + out.flatten(1) @ t[f"{prefix}self_attn.o_proj.weight"].T
    inner = rms(states, t[f"{prefix}post_attention_layernorm.weight"])
    gate, up, down = (t[f"{prefix}mlp.{x}_proj.weight"] for x in ("gate", "up", "down"))
    return states + (functional.silu(inner @ gate.T) * (inner @ up.T)) @ down.T


@torch.no_grad()
def due(made: Checkpoint, of: CausalLM, ids: list[int], drafted: list[int]) -> Tensor:
    """Logits behind the drafted ids."""
    hidden = of.model(input_ids=torch.tensor([ids[:-1]]), output_hidden_states=True).hidden_states
    features = torch.cat([hidden[layer][0] for layer in made.reads], -1)
    if "norm.weight" in made.tensors:
        features = features @ made.tensors["fc.weight"].T
    table = made.tensors.get("embed_tokens.weight", of.model.get_input_embeddings().weight)
    for upto in range(len(drafted) + 1):
        states = run(made, table[[*ids[1:], *drafted[:upto]]], features)
        features = torch.cat([features, states[-1:]])
    last = features[-1]
    if "norm.weight" not in made.tensors:
        return of.model.lm_head(last)  # type: ignore[no-any-return]
    own = made.tensors["lm_head.weight"] @ rms(last, made.tensors["norm.weight"])
    whole = torch.full((of.vocab_size,), -torch.inf)
    whole[torch.arange(DRAFTED) + made.tensors["d2t"]] = own
    return whole


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_are_the_references(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each draft in a ragged batch, over rounds of both fates."""
    of, made = target(), KINDS[kind]()
    path = (renamed(KINDS[kind]()) if "speculators" in kind else made).write(tmp_path / "c")
    drafter, noted = Eagle.from_config(EagleConfig(path=path), of), Noted(monkeypatch)
    assert drafter.layers == made.reads and drafter.reads == tuple(sorted({*made.reads}))
    engine = make_engine(of, drafter, 3)
    rows = [
        Answer(engine.request(p, i, max_new_tokens=8, sampling=SAMPLED))
        for i, p in enumerate(random_prompts((5, 2, 9), vocab=VOCAB))
    ]
    accepted = [row.accepted for outcome in engine.run(rows) for row in outcome.rows]
    assert min(accepted) == 0 < max(accepted)
    assert {len(drafted) for _, drafted, _ in noted.seen} == {0, 1, 2}
    for ids, drafted, found in noted.seen:
        torch.testing.assert_close(found, due(made, of, ids, drafted), rtol=1e-3, atol=1e-3)


def test_the_targets_own_embeddings_are_not_kept_twice(tmp_path: Path) -> None:
    of = target()
    drafter = Eagle.from_config(EagleConfig(path=with_bias().write(tmp_path / "a")), of)
    assert drafter.embed is of.model.get_input_embeddings() and drafter.own_bytes == 0
    other = Eagle.from_config(EagleConfig(path=own_embeddings().write(tmp_path / "b")), of)
    assert other.own_bytes == 4 * SIZE * (VOCAB + DRAFTED)


def test_draws_follow_the_joint_law(tmp_path: Path) -> None:
    """It drafts 10 of 11 ids."""
    of = target(11, layers=5, sharp=0.6)
    config = EagleConfig(path=eagle3(11).write(tmp_path / "c"))
    assert min(p_values(of, Eagle.from_config(config, of), 1, 8000, 2000)) > FLOOR


@pytest.mark.parametrize("scaling", [None, {"rope_type": "linear", "factor": 4.0}, LLAMA3])
def test_positions_are_those_of_transformers(scaling: dict[str, Any] | None) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rope = {"rope_theta": 500.0, **(scaling or {"rope_type": "default"})}
    config = LlamaConfig(hidden_size=64, num_attention_heads=2, rope_parameters=rope)
    found = scaled_rotations({"rope_theta": 500.0, "rope_scaling": scaling}, 32, "")
    torch.testing.assert_close(found, LlamaRotaryEmbedding(config).inv_freq)
    torch.testing.assert_close(scaled_rotations({"rope_parameters": rope}, 32, ""), found)


# --- what is refused -------------------------------------------------------------------------------


def wrong(path: str, of: CausalLM | None = None) -> str:
    with pytest.raises((ConfigError, InputError)) as error:
        Eagle.from_config(EagleConfig(path=path), of or target())
    assert "\n" not in str(error.value)
    return str(error.value)


ROWS = torch.ones(5, SIZE)
INT8 = torch.ones(SIZE, 2 * SIZE, dtype=torch.int8)
NEEDED = "24 of size 32 are needed"
NO_MAP = "has a map d2t that does not lead to different ids from 0 to 23"
# What the config says, tensors that are added or left out, and the refusal.
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Tensor | None], str]] = {
    "vocabulary": ({"vocab_size": 99}, {}, "is for a vocabulary of 99, and this target has 24"),
    "activation": ({"hidden_act": "gelu"}, {}, "says hidden_act='gelu'; only 'silu' is possible"),
    "positions": ({"rope_scaling": {"type": "dynamic"}}, {}, "scales its positions by 'dynamic'"),
    "half positions": ({"rope_scaling": {"type": "linear"}}, {}, "which is not whole"),
    "heads": ({"num_attention_heads": 5}, {}, "says num_attention_heads=5"),
    "epsilon": ({"rms_norm_eps": "x"}, {}, "says rms_norm_eps='x'"),
    "kind": ({"speculators_model_type": "dflash"}, {}, "eagle or eagle3 is possible"),
    "norms": ({"layernorms": True}, {}, "says layernorms=True; only False is possible"),
    "two layers": ({}, {"layers.1.mlp.up_proj.weight": ROWS}, "has a tensor layers.1.mlp.up_proj"),
    "quantized": ({}, {"fc.weight": INT8}, "has a tensor fc.weight of int8"),
    "no matrix": ({}, {"layers.0.self_attn.o_proj.weight": None}, "has no self_attn.o_proj.weight"),
    "a vector": ({}, {"lm_head.weight": ROWS[0]}, "has a lm_head.weight that is no matrix"),
    "no norm": ({}, {"layers.0.post_attention_layernorm.weight": None}, "is no EAGLE network: Missing key"),
    "embeddings": ({}, {"embed_tokens.weight": ROWS}, f"has 5 embeddings of size 32; {NEEDED}"),
    "head": ({}, {"lm_head.weight": ROWS}, f"has an LM head of 5 ids and size 32; {NEEDED}"),
    "map": ({}, {"d2t": torch.tensor([0, 0, 40])}, NO_MAP),
    "map twice": ({}, {"d2t": torch.tensor([1, 0])}, NO_MAP),
    "map of numbers": ({}, {"d2t": torch.ones(3)}, NO_MAP),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str, tmp_path: Path) -> None:
    config, tensors, says = REFUSED[name]
    made = eagle1(**config)
    every: dict[str, Any] = {**made.tensors, **tensors}
    made.tensors = {key: value for key, value in every.items() if value is not None}
    assert says in wrong(made.write(tmp_path / "c"))


def test_another_targets_are_refused(tmp_path: Path) -> None:
    path = eagle1().write(tmp_path / "a")
    said = wrong(path, target(hidden_size=48))
    assert "is for features of size 32, and this target has 48" in said
    path = eagle3().write(tmp_path / "b")
    assert "is for features of size 96, and this target has 144" in wrong(
        path, target(hidden_size=48)
    )
    assert "reads layers [2, 1, -1] of its target, and this one has 2" in wrong(
        path, target(layers=2)
    )


def test_pickles_are_refused(tmp_path: Path) -> None:
    path = Path(eagle1().write(tmp_path / "c"))
    (path / "model.safetensors").rename(path / "pytorch_model.bin")
    said = wrong(str(path))
    assert (
        "has no .safetensors weights; pytorch_model.bin is not read, because a pickle can run code"
        in said
    )


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = Path(eagle1().write(tmp_path / "c"))
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])
    assert "model.safetensors is no whole safetensors file" in wrong(str(path))
    (path / "config.json").write_text("{")
    assert "config.json" in wrong(str(path))


def test_a_hub_id_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = eagle1().write(tmp_path / "c"), list[Any]()

    def fetched(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        if name == "some/other":
            raise OSError("Connection refused.\nmore")
        return made

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetched)
    assert Eagle.from_config(EagleConfig(path="some/eagle"), target()).reads == (DEPTH,)
    assert asked == [("some/eagle", ["config.json", "*.safetensors"])]
    said = wrong("some/other")
    assert (
        said
        == "drafter.path=some/other is no folder, and the hub does not give it: Connection refused."
    )
