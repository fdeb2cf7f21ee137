"""Verdicts are on all answers that there are, and a cell that fails one wins nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from bench_inline import WORDS, Inline, Message, kept, write_prompts
from cli_helpers import Cli, make_cli
from sweep_worlds import cell, manifest, record

from foredraft.framework.bench import hand
from foredraft.framework.bench.store import Store
from foredraft.framework.bench.summary import summarise
from foredraft.framework.bench.verdicts import better, due, stands

SAME = {"verdict": "same", "answers": 2}


@pytest.fixture
def cli(
    only_builtins: Any,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hand, "Worker", Inline)
    write_prompts()
    return make_cli(capsys)


def test_a_sweep_that_goes_on_is_judged_on_what_came_since(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*WORDS, "bench.baselines=[plain]")
    monkeypatch.setattr(Inline, "before", staticmethod(slowly))
    first = cli("bench", *words, "bench.minutes=0.01", "bench.dir=r")
    assert first.code == 0 and "runs are left" in first.err
    monkeypatch.setattr(Inline, "before", staticmethod(lambda message: None))
    partly = Store.open("r").verdicts()
    assert partly and all(one["answers"] < 3 for one in partly.values())
    assert cli("bench", *words, "bench.resume=r", "bench.minutes=5").code == 0
    whole = Store.open("r").verdicts()
    assert len(kept("r")) == 9 and len(whole) == 2
    assert all(one["answers"] == 3 and "3 of 3" in one["says"] for one in whole.values())


def slowly(message: Message) -> None:
    if message["do"] == "run":
        time.sleep(0.2)  # of .6 seconds


@pytest.mark.parametrize(
    ("verdict", "answers", "as_it_is"),
    [
        (None, 1, False),
        ({"verdict": "unknown", "answers": 3}, 3, False),
        (SAME, 2, True),
        (SAME, 3, False),
        ({"verdict": "near-tie", "answers": 2}, 3, False),
        ({"verdict": "different", "answers": 2}, 3, True),
        ({"verdict": "audited", "answers": 2}, 3, True),
        ({"verdict": "same"}, 3, True),  # of a folder that did not say how many
    ],
)
def test_a_verdict_by_ids_stands_for_the_answers_it_saw(
    verdict: dict[str, Any] | None, answers: int, as_it_is: bool
) -> None:
    assert stands(verdict, answers) == as_it_is


def test_the_verdict_on_more_answers_is_the_better() -> None:
    more, unknown = {"verdict": "different", "answers": 3}, {"verdict": "unknown", "answers": 3}
    assert better(SAME, None) and better(SAME, unknown) and better(more, SAME)
    assert not better(unknown, SAME) and not better(SAME, more) and not better(SAME, SAME)


def test_pairs_are_of_prompts_that_both_have_answered() -> None:
    runs = [record("plain", 0, decode=1.0, tokens=4), record("fast", 0, decode=1.0, tokens=4)]
    runs.append(record("fast", 1, decode=1.0, tokens=4))
    cells = [cell("plain"), cell("fast")]
    ids = list(range(4))
    assert list(due(cells, runs, {})) == [("fast", [[0, ids, ids]])]
    assert list(due(cells, runs, {"fast": {"verdict": "same", "answers": 1}})) == []


@pytest.mark.parametrize("word", ["different", "faulty"])
def test_a_cell_with_another_output_is_no_winner(word: str) -> None:
    cells = [cell("plain", "plain"), cell("fast"), cell("slow")]
    paces = {"plain": 1.0, "fast": 0.4, "slow": 0.8}
    runs = [
        record(name, unit, repeat, decode=pace * (1 + 0.01 * unit), rounds=8, gamma=3)
        for name, pace in paces.items()
        for unit in range(12)
        for repeat in (0, 1)
    ]
    found = summarise(manifest(cells, 12), runs)
    assert found.winners["plain"].cell == "fast"
    found = summarise(manifest(cells, 12), runs, {}, {"fast": {"verdict": word}})
    assert found.winners["plain"].cell == "slow"
