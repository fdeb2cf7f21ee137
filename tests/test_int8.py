"""``dtype=int8``: a target whose weights are rounded, and all drafters for it; a drafter of int8."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import assert_same, plain, random_prompts

from foredraft.framework import Engine, load
from foredraft.framework.errors import ConfigError
from foredraft.framework.heads import LMHead
from foredraft.framework.linear import Int8Linear
from foredraft.framework.testing.tiny import tiny_model

PROMPTS = random_prompts((5, 12, 2))
LOSSLESS = [
    ("drafter=ngram", "drafter.order=2", "policy.gamma=3"),
    ("drafter=quantized", "policy.gamma=4"),
    ("drafter=early_exit", "drafter.layers=1", "policy.gamma=2"),
    ("drafter=layer_skip", "drafter.skip=[2]", "policy.gamma=2"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("int8") / "model"
    tiny_model("llama", dtype=torch.float32).save_pretrained(path)
    return path


@pytest.fixture(scope="module", params=["library", "tuned"])
def target(request: pytest.FixtureRequest, folder: Path) -> Any:
    words = "target=causal_lm", f"target.model={folder}", "target.dtype=int8", "drafter=none"
    return load(*words, f"target.kernels={request.param}").parts.target


def test_its_linear_layers_are_int8_and_nothing_else(target: Any) -> None:
    parts = list(target.model.modules())
    assert sum(isinstance(one, Int8Linear) for one in parts) > 10
    assert not any(type(one) is torch.nn.Linear for one in parts)
    assert target.model.dtype == torch.float32


@pytest.mark.parametrize("words", LOSSLESS, ids=lambda words: str(words[0]))
def test_drafts_change_no_token(target: Any, words: tuple[str, ...]) -> None:
    """Rows of different fates, and plain decoding by the model itself."""
    engine: Engine = load(*words, target=target)
    given = engine.generate_many(PROMPTS, max_new_tokens=24)
    for prompt, answer in zip(PROMPTS, given, strict=True):
        assert_same(target.model, prompt, plain(target.model, prompt, 24), answer.token_ids)
    assert sum(answer.metrics.drafted for answer in given) > 0


def test_a_drafter_may_be_of_int8(folder: Path) -> None:
    words = "target=causal_lm", f"target.model={folder}", "target.dtype=float32"
    own = "drafter=causal_lm", f"drafter.model={folder}", "drafter.dtype=int8", "policy.gamma=3"
    pair = load(*words, *own)
    model: Any = pair.parts.target
    for prompt in PROMPTS:
        answer = pair.generate(prompt, max_new_tokens=20)
        assert_same(model.model, prompt, plain(model.model, prompt, 20), answer.token_ids)
        assert answer.metrics.tau > 2  # nearly the target's law


@pytest.mark.parametrize("name", ["medusa", "eagle"])
def test_drafters_that_need_the_lm_head_get_it_in_float32(target: Any, name: str) -> None:
    head = LMHead.of(target, name)
    hidden = torch.randn(1, 3, head.weight.shape[1])
    own: Any = target.model.get_output_embeddings()
    with torch.inference_mode():
        torch.testing.assert_close(head(hidden), own(hidden), atol=0.02, rtol=0.02)
    assert head.own_bytes == head.weight.nbytes and head.weight.dtype == torch.float32


def test_spread_over_devices_it_is_refused(folder: Path) -> None:
    words = "target=causal_lm", f"target.model={folder}", "target.dtype=int8"
    with pytest.raises(
        ConfigError, match=r"target.dtype=int8 .* device_map='auto'; set target.device"
    ):
        load(*words, "target.device_map=auto", "drafter=none")
