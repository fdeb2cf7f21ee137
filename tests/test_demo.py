"""The demo on a tiny model: every side is run and judged."""

from __future__ import annotations

import json

import pytest
from cli_helpers import make_cli, refused

from foredraft.framework.bench.measure import Difference, Sample, verdict, worst_difference
from foredraft.framework.bench.trace import trace
from foredraft.framework.cli.demo_shows import SIDES, shows
from foredraft.framework.records import Round, RowOutcome
from foredraft.framework.targets.table import NumberTokenizer
from foredraft.framework.testing.tiny import tiny_model
from foredraft.framework.testing.tiny_tokenizer import save_tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("tiny")
    return save_tiny(place, layers=3, context=2048)


def test_every_side_is_lossless(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = make_cli(capsys, "demo")(
        "target=causal_lm", f"target.model={folder}", "--tokens", "6", "--json"
    )
    assert done.code == 0, done.err
    rows = json.loads(done.out)
    assert [row["side"] for row in rows] == ["plain loop", "generate", *SIDES]
    assert {row["output"] for row in rows} == {"same"}
    drafted = [row for row in rows if row["side"] in SIDES]
    assert all(row["tau"] >= 1 and row["memory_mib"] >= 0 for row in drafted)


def test_the_table_is_whole_in_a_pipe(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = make_cli(capsys, "demo")("target=causal_lm", f"target.model={folder}", "--tokens", "3")
    assert done.code == 0, done.err
    for word in ("prompt_lookup", "x generate", "tok/s", "MiB", "same", "rejected draft"):
        assert word in done.out


def test_what_it_cannot_do_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    cli = make_cli(capsys, "demo")
    refused(cli("--tokens", "1"), "--tokens 1")
    refused(cli("target=table"), "transformers target")
    refused(cli("--jsn"), "--jsn")


def test_a_near_tie_does_not_hide_a_difference() -> None:
    model = tiny_model("llama")
    one = Sample(1.0, [[1, 2], [3, 4]])
    other = Sample(1.0, [[1, 2], [3, 5]])
    assert worst_difference(model, [[0], [0]], one, one) is None
    found = worst_difference(model, [[0], [0]], one, other)
    assert found is not None
    assert (found.prompt, found.position) == (1, 1)
    wide = Difference(0, 0, 1.0, 2.0)
    assert verdict(wide).startswith("DIFFERENT")
    assert verdict(Difference(0, 3, 1.0, 1.00001)).startswith("near-tie at token 3")
    assert verdict(None) == "same"


def test_the_trace_shows_the_three_kinds_of_token() -> None:
    row = RowOutcome(0, [1, 2, 3], 1, [1, 9], [0.5, 0.1], rejected=[2])
    text = trace([Round(0, [row])], NumberTokenizer(10))
    styles = {text.plain[span.start : span.end]: str(span.style) for span in text.spans}
    assert styles == {"1": "green", "2": "red strike", "9": "bold cyan"}


def test_control_characters_do_not_reach_the_terminal() -> None:
    class Hostile:
        def decode(self, ids: list[int]) -> str:
            return "\x1b[2J"

    text = trace([Round(0, [RowOutcome(0, [], 0, [1], [])])], Hostile())
    assert "\x1b" not in text.plain


def test_prompts_are_shipped() -> None:
    own, chat = [show.read() for show in shows([])]
    assert {one["kind"] for one in chat} == {"open question", "summary", "code edit"}
    assert {one["kind"] for one in own} == {"class", "tests", "script"}
