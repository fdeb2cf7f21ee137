"""What parts and callers get wrong, each refused in one sentence that names whose fault it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import make_engine

from foredraft.drafters.none import NoDrafter
from foredraft.framework import (
    ConfigError,
    Draft,
    ForedraftError,
    InputError,
    PluginFault,
    SamplingParams,
    Trial,
    Verdict,
    Verifier,
    load,
)
from foredraft.framework.bases import TokenSession, point_mass_draft
from foredraft.framework.config import compose
from foredraft.framework.context import Context
from foredraft.framework.interfaces import Drafter, DraftSession
from foredraft.framework.kernels import tune
from foredraft.framework.targets.builtin import CausalLMConfig, TableConfig
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.targets.table import TableTarget
from foredraft.framework.testing.tiny import tiny_model
from foredraft.verifiers.token import TokenVerifier

TARGET = TableTarget.from_config(TableConfig(vocab_size=4))


class Copy(Drafter):
    """Drafts token 0, always."""

    def start(self, context: Context) -> DraftSession:
        class Session(TokenSession):
            def continuation(self, row: int, gamma: int) -> list[int]:
                return [0] * gamma

        return Session(context)


class Broken(Verifier):
    """The right rule, then ``spoil`` on its verdict."""

    def __init__(self, spoil: Any) -> None:
        self.spoil = spoil

    def verify(self, trial: Trial) -> Verdict:
        right = TokenVerifier().verify(trial)
        return self.spoil(right)  # type: ignore[no-any-return]


VERDICTS = {
    "more than was drafted": lambda v: Verdict(v.accepted + 9, v.next_law, v.accept_probs),
    "fewer than none": lambda v: Verdict(v.accepted - 9, v.next_law, v.accept_probs),
    "a law of the wrong shape": lambda v: Verdict(v.accepted, v.next_law[:, :2], v.accept_probs),
    "counts of the wrong shape": lambda v: Verdict(v.accepted[:, None], v.next_law, v.accept_probs),
    "no verdict": lambda v: v.accepted,
}


@pytest.mark.parametrize("fault", VERDICTS)
def test_a_wrong_verdict_is_the_verifiers(fault: str) -> None:
    engine = make_engine(TARGET, Copy(), 2, names={"verifier": "mine"})
    parts = engine.parts
    spoiled = type(parts)(
        TARGET, parts.drafter, Broken(VERDICTS[fault]), parts.policy, {"verifier": "mine"}
    )
    with pytest.raises(PluginFault, match="verifier 'mine'"):
        type(engine)(spoiled, engine.defaults).generate([1], max_new_tokens=6)


def draft_of(spoil: Any) -> Drafter:
    class Session(DraftSession):
        def __init__(self, context: Context) -> None:
            self.context = context

        def propose(self, gammas: list[int]) -> Draft:
            good = point_mass_draft([[0] * gamma for gamma in gammas], self.context.device)
            return spoil(good)  # type: ignore[no-any-return]

    class Bad(Drafter):
        def start(self, context: Context) -> DraftSession:
            return Session(context)

    return Bad()


DRAFTS = {
    "a tensor as law": lambda d: Draft(d.tokens, d.lengths, torch.ones(1, 2, 4)),
    "lengths that are floats": lambda d: Draft(d.tokens, [2.0], d.law),
    "a law of another width": lambda d: Draft(d.tokens, d.lengths, type(d.law)(d.tokens[:, :1])),
}


@pytest.mark.parametrize("fault", DRAFTS)
def test_a_wrong_draft_is_the_drafters(fault: str) -> None:
    engine = make_engine(TARGET, draft_of(DRAFTS[fault]), 2, names={"drafter": "mine"})
    with pytest.raises(PluginFault, match="drafter 'mine'"):
        engine.generate([1], max_new_tokens=6)


@pytest.mark.parametrize("temperature", [1e-300, 1e-46, 1e-8, 1e38, 1e300])
def test_any_temperature_gives_a_law_in_float32(temperature: float) -> None:
    target = CausalLM(tiny_model("llama", dtype=torch.float32))
    engine = make_engine(target, gamma=0)
    params = SamplingParams(temperature=temperature)
    ids = engine.generate([1, 2, 3], max_new_tokens=6, sampling=params).token_ids
    assert len(ids) == 6
    if temperature < 1e-6:
        assert ids == engine.generate([1, 2, 3], max_new_tokens=6).token_ids


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"seed": 1.5}, "seed=1.5"),
        ({"seed": "3"}, "seed='3'"),
        ({"seed": True}, "seed=True"),
        ({"sampling": {"top_k": 10**20}}, "top_k"),
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
        ({"stop": [""]}, "stop=''"),
    ],
    ids=str,
)
def test_options_of_a_request_are_checked(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        if isinstance(options.get("sampling"), dict):
            options = {"sampling": SamplingParams(**options["sampling"])}
        make_engine(TARGET).generate([1], **options)


def test_prompts_may_be_tensors() -> None:
    engine = make_engine(TARGET)
    expected = engine.generate([1, 2], max_new_tokens=3).token_ids
    assert engine.generate(torch.tensor([1, 2]), max_new_tokens=3).token_ids == expected


def test_streaming_needs_a_tokenizer() -> None:
    engine = make_engine(CausalLM(tiny_model("llama")))
    with pytest.raises(InputError, match="tokenizer"):
        next(engine.stream([1, 2]))


def test_load_takes_a_target_by_name_or_as_an_object() -> None:
    by_name = load(target="table", drafter="ngram").generate("0 1 2", max_new_tokens=4)
    assert by_name.token_ids == load("target=table").generate("0 1 2", max_new_tokens=4).token_ids
    assert load(target=TARGET).config["target"] == "TableTarget"
    with pytest.raises(ConfigError, match="no effect"):
        load("target.kernels=tuned", model=tiny_model("llama"))
    with pytest.raises(ConfigError, match="both given"):
        load(model=tiny_model("llama"), target=TARGET)
    with pytest.raises(ConfigError, match="is not a Target"):
        load(target=NoDrafter())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "overrides",
    [
        ["target=table", "target.vocab_size=1000", "target.order=2"],
        ["target=table", "target.eos=99"],
        ["target=causal_lm", "target.attention=kernels-community/flash-attn2"],
        ["target=causal_lm", "target.device=cpu", "target.device_map=auto"],
        ["drafter=causal_lm", "drafter.dtype=float8"],
    ],
    ids=" ".join,
)
def test_values_that_cannot_be_honoured_name_their_key(overrides: list[str]) -> None:
    key = overrides[-1].partition("=")[0].rsplit(".", 1)[0]
    with pytest.raises(ConfigError, match=key):
        compose(overrides)


@pytest.mark.parametrize("device", ["mps", "meta", "cuda:99", "gpu"])
def test_devices_that_are_not_here_are_refused(device: str, tmp_path: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    config = CausalLMConfig(model=str(tmp_path), device=device)
    with pytest.raises(ConfigError, match=r"target\.device"):
        CausalLM.from_config(config)


def test_local_attention_inside_layers_is_refused() -> None:
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    shape = {"hidden_size": 16, "num_heads": 2, "vocab_size": 32, "num_layers": 2}
    model = GPTNeoForCausalLM(GPTNeoConfig(**shape, attention_types=[[["global", "local"], 1]]))
    with pytest.raises(ConfigError, match="local attention"):
        CausalLM(model)


@pytest.mark.parametrize("by", ["experiment=mine", "target=mine", "local"])
def test_a_file_cannot_switch_remote_code_on(by: str, tmp_path: Path) -> None:
    """Also not where the command line chose the group that the file fills."""
    body = "model: evil/repo\ntrust_remote_code: true\n"
    if by == "target=mine":
        (tmp_path / "target").mkdir()
        (tmp_path / "target" / "mine.yaml").write_text(f"defaults: [causal_lm, _self_]\n{body}")
        given = ["target=mine"]
    else:
        name = "experiment/mine" if by.startswith("experiment") else "local/default"
        (tmp_path / name).parent.mkdir()
        nested = "".join(f"  {line}\n" for line in body.splitlines())
        (tmp_path / f"{name}.yaml").write_text(f"# @package _global_\ntarget:\n{nested}")
        given = ["target=causal_lm", *([by] if by != "local" else [])]
    with pytest.raises(ForedraftError, match="trust_remote_code"):
        compose(given, tmp_path)
    assert compose([*given, "target.trust_remote_code=true"], tmp_path).target.trust_remote_code


def test_tuning_leaves_the_global_generator_alone() -> None:
    model = tiny_model("llama", dtype=torch.float32)
    before = torch.random.get_rng_state()
    tune(model)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_point_mass_is_not_written_out() -> None:
    class Asks(TokenVerifier):
        def verify(self, trial: Trial) -> Verdict:
            trial.draft.law.rows()
            return super().verify(trial)

    engine = make_engine(TARGET, Copy(), 2)
    parts = type(engine.parts)(TARGET, engine.parts.drafter, Asks(), engine.parts.policy, {})
    with pytest.raises(PluginFault, match="leaves 'deterministic' out"):
        type(engine)(parts, engine.defaults).generate([1], max_new_tokens=6)
