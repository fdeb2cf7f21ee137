"""Controls, scores, samples and lossy rules on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import Cli, make_cli, refused

TABLE = ("target=table", "target.vocab_size=6", "prompt=0 1 2 0 1", "max_new_tokens=12")
HOT = "sampling.temperature=1"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return make_cli(capsys, "generate")


def test_samples_scores_and_their_place_in_the_answer(cli: Cli) -> None:
    values = cli(
        *TABLE, HOT, "samples=3", "logprobs=raw", "prompt_logprobs=true", "output=json"
    ).objects
    assert [value["sample"] for value in values] == [0, 1, 2]
    assert len({tuple(value["token_ids"]) for value in values}) == 3
    for value in values:
        assert len(value["logprobs"]) == len(value["ranks"]) == len(value["token_ids"])
        assert len(value["prompt_logprobs"]) == value["prompt_tokens"] - 1
        assert all(rank >= 1 for rank in value["ranks"])
    (alone,) = cli(*TABLE, HOT, "output=json").objects
    assert alone["token_ids"] == values[0]["token_ids"] and "logprobs" not in alone


def test_samples_are_kept_and_taken_up_again(cli: Cli, tmp_path: Path) -> None:
    out, prompts = tmp_path / "a.jsonl", tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "0 1"}\n{"prompt": "2 3"}\n')
    command = (
        "target=table",
        "target.vocab_size=6",
        HOT,
        f"prompts={prompts}",
        f"out={out}",
        "samples=2",
    )
    assert cli(*command, "max_new_tokens=5").code == 0
    whole = out.read_text().splitlines()
    assert [(v["id"], v["sample"]) for v in map(json.loads, whole)] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    out.write_text("\n".join(whole[:3]) + "\n" + whole[3][:40])
    assert cli(*command, "max_new_tokens=5").code == 0
    strip = [{k: v for k, v in json.loads(text).items() if k != "metrics"} for text in whole]
    again = [
        {k: v for k, v in json.loads(text).items() if k != "metrics"}
        for text in out.read_text().splitlines()
    ]
    assert again == strip


def test_samples_cannot_be_swept(cli: Cli) -> None:
    refused(cli(*TABLE, "-m", "samples=1,2", "output=json"), "samples", "sweep")


def test_a_lossy_rule_is_called_lossy(cli: Cli) -> None:
    done = cli(*TABLE, HOT, "verifier=typical", "output=json")
    (value,) = done.objects
    assert value["lossless"] is False and "lossy" in done.err
    done = cli(*TABLE, HOT, "verifier=block", "output=json")
    assert done.objects[0]["lossless"] is True and "lossy" not in done.err


def test_the_same_text_for_every_drafter(cli: Cli) -> None:
    command = (
        *TABLE,
        HOT,
        "verifier=coupled",
        "output=json",
        "-m",
        "drafter=none,prompt_lookup,ngram",
    )
    assert len({tuple(value["token_ids"]) for value in cli(*command).objects}) == 1


def test_bans_and_ends(cli: Cli) -> None:
    (value,) = cli(*TABLE, HOT, "sampling.bad_words=[[3],[0,1]]", "output=json").objects
    ids = value["token_ids"]
    assert 3 not in ids and (0, 1) not in zip(ids, ids[1:], strict=False)
    (value,) = cli(*TABLE, HOT, "stop_ids=[2]", "sampling.min_new_tokens=4", "output=json").objects
    assert 2 not in value["token_ids"][:4]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("samples=0", ("samples=0", "whole number")),
        ("logprobs=all", ("logprobs='all'", "raw", "processed")),
        ("stop_ids=[-1]", ("stop_ids=-1", "whole number")),
        ("sampling.bad_words=[[9]]", ("bad_words", "9")),
        ("sampling.logit_bias={9:1.0}", ("logit_bias", "9")),
        ("sampling.typical_p=0", ("sampling.typical_p=0",)),
        ("sampling.draft=half", ("sampling.draft", "full")),
        ("verifier.lenience=2", ("lenience",)),
        ("grammar=answers.txt", ("grammar", ".json")),
        ("grammar=missing.json", ("grammar=missing.json", "cannot be read")),
    ],
)
def test_impossible_values_end_in_one_sentence(
    cli: Cli, override: str, words: tuple[str, ...]
) -> None:
    refused(cli(*TABLE, override), *words)
