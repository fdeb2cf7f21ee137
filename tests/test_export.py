"""``foredraft export``: every name is published by the server, and what is lost is said."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Cli, make_cli, refused
from tune_helpers import StagedWorker, write_prompts

from foredraft.framework.bench import hand
from foredraft.framework.bench.exporting import SERVERS, export
from foredraft.framework.bench.exporting.common import NEAR, published
from foredraft.framework.config import as_dict, compose
from foredraft.framework.errors import ConfigError
from foredraft.framework.plugins import registry

SMALL = ("drafter=causal_lm", "drafter.model=small")
pytestmark = [pytest.mark.usefixtures("only_builtins"), pytest.mark.xdist_group("bench")]
# Every drafter that can be carried over, with every rule and policy that goes with it.
CASES = [
    ("drafter=prompt_lookup",),
    ("drafter=prompt_lookup", "policy.gamma=7", "drafter.max_ngram=5", "drafter.min_ngram=2"),
    ("drafter=prompt_lookup", "drafter.branches=4", "drafter.nodes=20", "verifier=recursive"),
    ("drafter=prompt_lookup", "policy=heuristic", "verifier=greedy", "sampling.temperature=0"),
    ("drafter=prompt_lookup", "policy=schedule"),
    ("drafter=prompt_lookup", "verifier=lenient", "sampling.temperature=1"),
    (*SMALL, "sampling.temperature=0"),
    (*SMALL, "sampling.temperature=1", "verifier=block", "drafter.revision=main"),
    (*SMALL, "policy=confidence", "verifier=coupled", "sampling.temperature=1"),
    (*SMALL, "drafter.nodes=8", "verifier=traversal", "sampling.temperature=1"),
    (*SMALL, "verifier=typical", "policy=optimal", "drafter.dtype=float16"),
]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return make_cli(capsys)


def config(*words: str) -> dict[str, Any]:
    return as_dict(compose(list(words)))


def one(lost: list[str], *words: str) -> None:
    """One sentence has all of the words."""
    assert [line for line in lost if all(word in line for word in words)], lost


@pytest.mark.parametrize("words", CASES, ids=" ".join)
def test_everything_exported_is_published(words: tuple[str, ...]) -> None:
    made = {to: export(config(*words), to) for to in SERVERS}
    for to, name in (("vllm", "vllm_fields.json"), ("sglang", "sglang_flags.json")):
        values, known = made[to].values, published(name)
        assert values and set(values) <= set(known["fields"])
        for key, choices in known["values"].items():
            assert key not in values or values[key] in choices
    assert json.loads(made["vllm"].text) == made["vllm"].values
    flags = re.findall(r"--([a-z-]+)", made["sglang"].text)
    assert [flag.replace("-", "_") for flag in flags] == list(made["sglang"].values or {})


@pytest.mark.parametrize("name", ["vllm_fields.json", "sglang_flags.json"])
def test_the_names_say_where_they_are_from(name: str) -> None:
    known = published(name)
    assert re.match(
        r"https://github\.com/\S+/blob/[0-9a-f]{40}/\S+\.py, class \w+", known["source"]
    )
    assert len(set(known["fields"])) == len(known["fields"]) > 20


def test_prompt_lookup_is_vllms_ngram() -> None:
    made = export(config("drafter=prompt_lookup", "policy.gamma=7", "drafter.min_ngram=2"), "vllm")
    assert made.values == {
        "method": "ngram",
        "num_speculative_tokens": 7,
        "prompt_lookup_max": 3,
        "prompt_lookup_min": 2,
    }
    assert shlex.split(made.use)[-1] == made.text
    assert len(made.lost) == 2  # sampling and batches, which are the server's


def test_a_small_model_is_a_draft_model() -> None:
    sampled = config(*SMALL, "sampling.temperature=1", "verifier=block", "policy.gamma=3")
    assert export(sampled, "vllm").values == {
        "method": "draft_model",
        "model": "small",
        "num_speculative_tokens": 3,
        "draft_sample_method": "probabilistic",
        "rejection_sample_method": "block",
    }
    made = export(sampled, "sglang")
    assert made.text == (
        "--speculative-algorithm STANDALONE --speculative-draft-model-path small "
        "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 "
        "--speculative-use-rejection-sampling"
    )
    one(made.lost, "verifier=block")
    greedy = export(config(*SMALL, "sampling.temperature=0"), "vllm").values
    assert greedy and "draft_sample_method" not in greedy


def test_what_adapts_is_a_number_and_a_sentence() -> None:
    adaptive = config("drafter=prompt_lookup", "policy=heuristic", "policy.start=6")
    made = export(adaptive, "vllm")
    assert made.values and made.values["num_speculative_tokens"] == 6
    one(made.lost, "policy=heuristic", "fixed number", "its start")
    measured = export(adaptive, "sglang", drafted=9)
    assert measured.values and measured.values["speculative_num_draft_tokens"] == 10
    one(measured.lost, "9 is what was drafted per round on average")


def test_a_schedule_by_batch_is_vllms_own() -> None:
    made = export(config("drafter=prompt_lookup", "policy=schedule"), "vllm")
    assert made.values is not None
    assert made.values["num_speculative_tokens_per_batch_size"] == [
        [1, 3, 8],
        [4, 15, 4],
        [16, 1024, 0],
    ]
    assert made.values["num_speculative_tokens"] == 8
    one(made.lost, "policy.gammas", "1024")


def test_trees_and_rules_that_are_lost_are_named() -> None:
    tree = config("drafter=prompt_lookup", "drafter.branches=4", "verifier=recursive")
    one(export(tree, "vllm").lost, "drafter.branches=4", "chains")
    made = export(tree, "sglang")
    assert made.values and made.values["speculative_ngram_max_bfs_breadth"] == 4
    assert made.values["speculative_num_draft_tokens"] == 33
    one(made.lost, "drafter.branches=4", "shape")
    nodes = config(*SMALL, "drafter.nodes=8", "verifier=traversal", "sampling.temperature=1")
    for to in SERVERS:
        one(export(nodes, to).lost, "drafter.nodes=8", "chains")
        one(export(nodes, to).lost, "verifier=traversal")
    coupled = config(*SMALL, "verifier=coupled", "sampling.temperature=1")
    for to in SERVERS:
        one(export(coupled, to).lost, "verifier=coupled", "seed alone")
    lenient = config("drafter=prompt_lookup", "verifier=lenient", "sampling.temperature=1")
    one(export(lenient, "vllm").lost, "verifier=lenient", "lossless")
    found = export(lenient, "sglang")
    assert found.values and found.values["speculative_accept_threshold_acc"] == 0.5
    one(found.lost, "verifier=lenient", "rejection")


def test_every_drafter_is_carried_over_or_refused_with_its_reason() -> None:
    carried = {"none", "prompt_lookup", "causal_lm"}
    assert set(registry().names("drafter")) == carried | set(NEAR)
    base = config("drafter=prompt_lookup")
    for name in NEAR:
        for to, server in (("vllm", "vLLM"), ("sglang", "SGLang")):
            with pytest.raises(
                ConfigError, match=f"drafter={name} cannot be carried over to {server}"
            ):
                export({**base, "drafter": {"name": name}}, to)


def test_plain_decoding_is_no_speculation(cli: Cli) -> None:
    for words in (("drafter=none",), ("drafter=prompt_lookup", "policy.gamma=0")):
        assert export(config(*words), "vllm").text == "null"
        assert export(config(*words), "sglang").text == ""


def test_a_preset_is_exported(cli: Cli) -> None:
    Path("mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /drafter: prompt_lookup\npolicy:\n  gamma: 5\n"
    )
    done = cli("export", "mine.yaml", "to=vllm")
    assert done.code == 0 and done.objects[0]["num_speculative_tokens"] == 5
    assert "not carried over: sampling.temperature" in done.err
    assert "use: vllm serve MODEL --speculative-config" in done.err
    assert cli("export", "mine.yaml", "to=sglang", "out=flags.txt").out == ""
    assert Path("flags.txt").read_text().startswith("--speculative-algorithm NGRAM ")


def test_the_winner_of_a_race_is_exported(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    best = "policy.gamma=3"
    staged = StagedWorker(lambda cell: 0.005 if best in cell else 0.01)
    monkeypatch.setattr(hand, "Worker", lambda limit: staged)
    write_prompts(16, "a")
    race = ("target=table", "task=file", "task.file=p.jsonl", "tune.dir=r", "drafter=prompt_lookup")
    assert cli("tune", *race, "grid.policy.gamma=[1,3]").code == 0
    for source in ("r", "r/conf/experiment/tuned.yaml"):
        done = cli("export", source, "to=vllm")
        assert done.objects[0]["num_speculative_tokens"] == 3, done.err
    assert "speculate: policy.gamma=3 has" in cli("export", "r", "to=sglang").err
    assert cli("export", "r", "to=vllm", "cell=policy.gamma=1").objects[0][
        "num_speculative_tokens"
    ] == 1  # fmt: skip
    refused(cli("export", "r", "to=vllm", "cell=policy.gamma=2"), "has no cell", best)
    found = json.loads(Path("r/tuning.json").read_text())
    found["answer"] |= {"speculate": False, "says": "do not speculate: it is slower"}
    Path("r/tuning.json").write_text(json.dumps(found))
    done = cli("export", "r", "to=vllm")
    assert done.out == "null\n" and "do not speculate" in done.err
    Path("r/tuning.json").write_text('{"race": "over"}')
    refused(cli("export", "r", "to=vllm"), "no answer yet")
    Path("r/tuning.json").unlink()  # as of a sweep: half of the units chooses, the other measures
    assert cli("export", "r", "to=vllm").objects[0]["num_speculative_tokens"] == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("to=vllm",), "takes one preset or folder"),
        (("a", "b", "to=vllm"), "takes one preset or folder"),
        (("mine.yaml",), "one of vllm, sglang"),
        (("mine.yaml", "to=trt"), "to=trt is not possible"),
        (("mine.yaml", "to=vllm"), "mine.yaml is no file"),
        (("mine.yaml", "to=vllm", "cell=a"), "has no effect"),
        (("none", "to=vllm"), "no folder of a sweep"),
    ],
)
def test_what_cannot_be_exported_is_refused(cli: Cli, words: tuple[str, ...], said: str) -> None:
    refused(cli("export", *words), said)


def test_a_schedule_as_one_number_is_its_first_gamma() -> None:
    """Of the smallest key, also as JSON has keys: texts, in any order."""
    made = export(config("drafter=prompt_lookup", "policy=schedule"), "sglang")
    assert made.values and made.values["speculative_num_draft_tokens"] == 9
    one(made.lost, "policy=schedule", "8 is its first gamma, that of batch 1")
    table = {"10": 2, "9": 5, "0": 7}
    by_place = config("drafter=prompt_lookup", "policy=schedule", "policy.by=position",
                      "policy.gammas={0:7}")  # fmt: skip
    by_place["policy"]["gammas"] = table
    made = export(by_place, "vllm")
    assert made.values and made.values["num_speculative_tokens"] == 7
    one(made.lost, "7 is its first gamma, that of position 0")


@pytest.mark.parametrize("to", SERVERS)
@pytest.mark.parametrize(
    ("kind", "key"),
    [("drafter", "max_ngram"), ("drafter", "branches"), ("policy", "gammas"), ("policy", "by")],
)
def test_a_value_that_is_missing_is_named(to: str, kind: str, key: str) -> None:
    short = config("drafter=prompt_lookup", "policy=schedule")
    del short[kind][key]
    with pytest.raises(ConfigError, match=f"has no {kind}.{key} here"):
        export(short, to)
    short[kind][key] = "x"
    with pytest.raises(ConfigError, match=f"{kind}.{key}"):
        export(short, to)
