"""Pairs that cannot work are refused when they are built, in one sentence that says what would."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import model_of, target_of

from foredraft.drafters.builtin import PromptLookupConfig
from foredraft.drafters.prompt_lookup import PromptLookup
from foredraft.framework import ConfigError, load
from foredraft.framework.config import compose, to_objects
from foredraft.framework.config.build import check_pairing
from foredraft.framework.decoding import Parts
from foredraft.framework.engine import Engine
from foredraft.framework.growth import Growth
from foredraft.framework.plugins import registry
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.specs import DraftKind, VerifierSpec
from foredraft.framework.targets.builtin import TableConfig
from foredraft.framework.targets.table import TableTarget
from foredraft.framework.testing.tables import TableDrafter, TableTreeDrafter
from foredraft.verifiers.greedy import GreedyVerifier
from foredraft.verifiers.kseq import KSeqVerifier
from foredraft.verifiers.token import TokenVerifier

TREE = ["drafter=prompt_lookup", "drafter.branches=4"]
SAMPLED = ["drafter=ngram", "drafter.widths=[2,2]", "drafter.children=without_replacement"]
HOT = "sampling.temperature=0.8"
REFUSED = {
    "a tree and a chain rule": ([*TREE, "verifier=token"], "verifier=recursive"),
    "a tree and block": ([*TREE, "verifier=block"], "verifier=traversal"),
    "a tree and coupled": ([*TREE, "verifier=coupled"], "trees of tokens not drawn"),
    "a tree and lenient": ([*TREE, "verifier=lenient"], "verifier=recursive"),
    "chosen children and kseq": ([*TREE, "verifier=kseq"], "verifier=recursive"),
    "children without replacement and kseq": (
        [*SAMPLED, "verifier=kseq", HOT],
        "without replacement",
    ),
    "greedy and a temperature": ([HOT, "verifier=greedy"], "sampling.temperature=0"),
    "a tree, greedy and a temperature": ([*TREE, HOT, "verifier=greedy"], "verifier=recursive"),
}


@pytest.mark.parametrize("pair", REFUSED)
def test_a_wrong_pair_in_a_config_is_refused_before_anything_loads(pair: str) -> None:
    overrides, says = REFUSED[pair]
    with pytest.raises(ConfigError) as caught:
        check_pairing(to_objects(compose(overrides)))
    text = str(caught.value)
    assert says in text and text.count(".") <= 3 and "use verifier=" in text


@pytest.mark.parametrize("verifier", ["recursive", "traversal", "greedy", "typical"])
def test_rules_for_trees_take_trees(verifier: str) -> None:
    check_pairing(to_objects(compose([*TREE, f"verifier={verifier}"])))


def parts(drafter: Any, verifier: Any, target: Any = None) -> Parts:
    target = target or TableTarget.from_config(TableConfig(vocab_size=4))
    return Parts(target, drafter, verifier, Fixed(FixedConfig(2)), {})


def test_objects_are_paired_by_the_same_rule() -> None:
    table = TableTarget.from_config(TableConfig(vocab_size=4))
    with pytest.raises(ConfigError, match="cannot judge what drafter=PromptLookup"):
        Engine(parts(PromptLookup(PromptLookupConfig(branches=3)), TokenVerifier()))
    with pytest.raises(ConfigError, match="without replacement"):
        Engine(parts(TableTreeDrafter(table, Growth((2,))), KSeqVerifier()))
    engine = Engine(parts(TableDrafter(table), GreedyVerifier()))
    from foredraft.framework.params import SamplingParams

    with pytest.raises(ConfigError, match="works only with sampling.temperature=0"):
        engine.generate([1], sampling=SamplingParams(temperature=1.0))


def test_a_target_that_scores_no_trees_is_refused() -> None:
    chains_only = TableTarget.from_config(TableConfig(vocab_size=4))
    chains_only.trees = False
    from foredraft.verifiers.recursive import RecursiveVerifier

    with pytest.raises(ConfigError, match="cannot score"):
        Engine(
            parts(PromptLookup(PromptLookupConfig(branches=3)), RecursiveVerifier(), chains_only)
        )


def test_a_rule_for_chosen_drafts_refuses_drawn_ones() -> None:
    class ChosenOnly(TokenVerifier):
        chains = ("deterministic",)

    table = TableTarget.from_config(TableConfig(vocab_size=4))
    Engine(parts(PromptLookup(PromptLookupConfig()), ChosenOnly()))
    with pytest.raises(ConfigError, match="chains of tokens drawn from a law"):
        Engine(parts(TableDrafter(table), ChosenOnly()))


def test_specs_say_what_their_classes_say() -> None:
    for offer in registry().offers("verifier"):
        spec = offer.spec
        assert isinstance(spec, VerifierSpec)
        rule = spec.factory(spec.config())
        for name in ("lossless", "greedy_only", "chains", "trees", "shared_noise"):
            assert getattr(rule, name) == getattr(spec, name), (spec.name, name)


@pytest.mark.parametrize(
    "name", ["prompt_lookup", "ngram", "early_exit", "none", "token_recycling", "jacobi"]
)
def test_drafters_specs_say_what_their_objects_say(name: str) -> None:
    from foredraft.framework.specs import DrafterSpec

    spec = registry().get("drafter", name)
    assert isinstance(spec, DrafterSpec)
    config = spec.config(layers=1) if name == "early_exit" else spec.config()
    assert spec.factory(config, target_of("llama")).kind == spec.kind_of(config)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("sampling.num_beams=4", "beam search is not offered, samples=N"),
        ("num_beams=4", "beam search is not offered"),
        ("sampling.do_sample=true", "sampling.temperature=0 is greedy"),
        ("max_length=9", "max_new_tokens"),
    ],
)
def test_what_others_call_it_is_answered_with_what_does_the_job(override: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        compose([override])


def test_a_lossy_rule_says_so() -> None:
    lossy = {o.name for o in registry().offers("verifier") if not o.spec.lossless}  # type: ignore[attr-defined]
    assert lossy == {"lenient", "typical"}
    engine = load("drafter=prompt_lookup", verifier="typical", model=model_of("llama"))
    assert not engine.parts.verifier.lossless
    assert str(DraftKind("deterministic", True)) == "trees of tokens not drawn, but chosen"
