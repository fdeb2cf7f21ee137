"""The lean forward: whose it is, that it is used, and that the model stays what it was. That it says the same
in every shape of batch: tests/test_cache.py and tests/test_hidden.py, layouts ``lean``."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import make_engine, random_prompts
from torch import Tensor, nn

from foredraft.drafters.builtin import EarlyExitConfig, QuantizedConfig
from foredraft.drafters.causal_lm import CausalLMDrafter
from foredraft.drafters.early_exit import EarlyExit
from foredraft.drafters.quantized import Quantized
from foredraft.framework import lean as lean_module
from foredraft.framework.cache import RaggedModel
from foredraft.framework.interfaces import Drafter
from foredraft.framework.kernels import tune
from foredraft.framework.lean import Lean, lean_of, make_lean
from foredraft.framework.linear import Int8Linear
from foredraft.framework.requests import Answer
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.testing.tiny import KINDS, tiny_model


def lean(**options: Any) -> Any:
    model = tiny_model("llama", **options)
    assert make_lean(model)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_only_models_that_it_reproduces_have_one(kind: str) -> None:
    """Qwen3 has norms on queries, GPT-2 another shape, Mistral and Gemma 2 windows."""
    assert make_lean(tiny_model(kind)) == (kind == "llama")


@pytest.mark.parametrize(
    "options",
    [
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
        {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4}},
    ],
)
def test_other_sums_are_left_to_the_model(options: dict[str, Any]) -> None:
    assert not make_lean(tiny_model("llama", **options))


def test_a_part_with_a_forward_of_its_own_is_noticed() -> None:
    """The parts look like a Llama's; only the logits say that they are not."""
    model = tiny_model("llama")
    real = model.model.layers[1].mlp.forward
    model.model.layers[1].mlp.forward = lambda hidden: real(hidden) * 1.01
    assert not make_lean(model) and lean_of(model) is None


@pytest.mark.parametrize("theta", [1e4, 5e5])
def test_it_reads_rotary_tables_of_any_length(theta: float) -> None:
    rope = {"rope_type": "default", "rope_theta": theta}
    model = lean(context=300, rope_parameters=rope)
    ragged, text = RaggedModel(model, 1, 300), random_prompts((290,))[0]
    ragged.prefill([text[:-4]], 64)
    with torch.no_grad():
        due = model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -4:]
    torch.testing.assert_close(ragged.forward(torch.tensor([text[-4:]]), [4])[0], due)


def test_the_model_keeps_its_parameters_and_needs_no_more_memory(tmp_path: Path) -> None:
    model = tiny_model("llama", tie_word_embeddings=True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    names = [name for name, _ in model.named_parameters()]
    assert make_lean(model)
    assert [name for name, _ in model.named_parameters()] == names
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    own, shared = storages(lean_of(model)), storages(model)
    assert own == shared
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path, dtype=model.dtype)
    for name, value in again.state_dict().items():
        assert torch.equal(value, before[name])


def storages(module: nn.Module | None) -> set[int]:
    assert module is not None
    return {p.untyped_storage().data_ptr() for p in module.parameters()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_copy_of_the_model_is_not_lean_by_itself(dtype: torch.dtype) -> None:
    """An int8 copy with the lean forward of its original would draft as the target does, at its price."""
    model = lean(dtype=dtype)
    assert lean_of(copy.deepcopy(model)) is None
    drafter = Quantized(QuantizedConfig(), CausalLM(model))
    own = lean_of(drafter.model)
    assert own is not None and own is not lean_of(model)
    assert drafter.model.dtype == dtype
    kinds = {type(part) for part in own.modules()}
    assert Int8Linear in kinds and nn.Linear not in kinds
    held = {name: value.untyped_storage().data_ptr() for name, value in own.named_buffers()}
    shared = {value.untyped_storage().data_ptr() for value in drafter.model.buffers()}
    assert {at for name, at in held.items() if "weight" in name} <= shared


def test_it_goes_with_its_model() -> None:
    model = lean()
    count = len(lean_module._made)
    del model
    assert len(lean_module._made) < count


def drafters(target: CausalLM) -> dict[str, Drafter | None]:
    return {
        "plain": None,
        "early_exit": EarlyExit(EarlyExitConfig(layers=1), target),
        "causal_lm": CausalLMDrafter(lean(seed=5, layers=1), target),
    }


def test_decoding_uses_it_and_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """An early exit has the target's cache, and the lean forward of its first layers."""
    calls: list[int] = []
    real = Lean.forward

    def counted(self: Lean, tokens: Tensor, *args: Any) -> Any:
        calls.append(tokens.shape[1])
        return real(self, tokens, *args)

    monkeypatch.setattr(Lean, "forward", counted)
    prompts, found = random_prompts((3, 9, 1)), []
    for model in (tiny_model("llama"), tune(tiny_model("llama"))):
        target = CausalLM(model)
        for name, drafter in drafters(target).items():
            calls.clear()
            engine = make_engine(target, drafter, 3)
            rows = [
                Answer(engine.request(p, i, max_new_tokens=9 + i)) for i, p in enumerate(prompts)
            ]
            for _ in engine.run(rows):
                pass
            assert bool(calls) == (lean_of(model) is not None or name == "causal_lm")
            found.append([row.token_ids for row in rows])
    assert all(one == found[0] for one in found)
