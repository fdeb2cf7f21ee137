"""Acceptance over the course of an answer: what is kept of it, and what comes of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bench_store_helpers
import pytest
from sweep_worlds import cell, manifest

from foredraft.framework import load
from foredraft.framework.bench.checking import record_problem
from foredraft.framework.bench.course import Stretch, begun, by_round
from foredraft.framework.bench.sides import decoded
from foredraft.framework.bench.store import Store
from foredraft.framework.bench.summary import summarise
from foredraft.framework.records import RowOutcome

Each = list[list[int]]
UNITS = [{"index": 0, "group": "math", "prompts": [0]}]


def row(prompt: int, each: Each | None) -> dict[str, Any]:
    """A record's row whose rounds were ``each``; None leaves them out."""
    rounds = each or [[0, 0, 0]] * 8
    drafted, reached, accepted = (sum(one[at] for one in rounds) for at in range(3))
    emitted = accepted + len(rounds)
    found = {
        **{"prompt": prompt, "ids": list(range(emitted)), "finish": "length", "overlap": 0.0},
        **{"rounds": len(rounds), "drafted": drafted, "accepted": accepted, "emitted": emitted},
        **{"reached_at": [reached], "accepted_at": [accepted]},
    }
    return found if each is None else {**found, "by_round": each}


def record(name: str, unit: int, each: Each | None, repeat: int = 0) -> dict[str, Any]:
    return {
        **{"cell": name, "unit": unit, "repeat": repeat, "order": 0, "started": 0.0},
        **{"group": ("math", "code")[unit % 2], "seconds": 2.0, "prefill": 1.0, "time": {}},
        **{"contended": False, "rows": [row(unit, each)]},
    }


def of(answers: list[Each | None], repeats: int = 1) -> list[Stretch]:
    """The course of a cell with these rounds of each unit."""
    cells = [cell("plain", "plain"), cell("fast")]
    records = [record("plain", unit, None) for unit in range(len(answers))]
    records += [
        record("fast", unit, each, again)
        for unit, each in enumerate(answers)
        for again in range(repeats)
    ]
    return list(summarise(manifest(cells, len(answers)), records)["fast"].course)


def test_rounds_count_where_they_began() -> None:
    # 16 tokens, so stretches of 2: rounds begin at tokens 0, 4, 6, 7, 8, ... of the answer.
    each = [[3, 3, 3], [3, 2, 1], [3, 1, 0], [0, 0, 0], *[[1, 1, 1]] * 4]
    found = of([each] * 4, repeats=2)
    assert [part.first for part in found] == [1, 5, 7, 9, 11, 13, 15]
    assert [part.rate.value for part in found] == [1.0, 0.5, 0.0, 1.0, 1.0, 1.0, 1.0]
    assert all(part.last == part.first + 1 for part in found)
    assert found[1].rate.bounds == (0.5, 0.5) and found[1].rate.units == 4


def test_intervals_are_over_prompts_and_stay_rates() -> None:
    found = of([[[1, 1, on]] * (8 - 4 * on) for on in (0, 1, 1, 0, 1)])
    assert found[0].rate.value == pytest.approx(0.6)
    assert found[0].rate.bounds == (0.0, 1.0)
    # Some prompts weigh more: the rate is of tokens, not of prompts.
    found = of([[[3, 3, 3]] * 2, [[1, 1, 0]] * 8, [[1, 1, 0]] * 8])
    assert found[0].rate.value == pytest.approx(3 / 5)


def test_a_stretch_that_few_prompts_reach_is_left_out() -> None:
    long, short = [[1, 1, 0]] * 16, [[1, 1, 0]] * 8
    assert [part.last for part in of([long, long, *[short] * 3])] == [2, 4, 6, 8]
    assert len(of([long, long, long, short])) == 8
    # But a sweep over two prompts shows what both have.
    assert len(of([long, short])) == 4
    assert of([long])[0].rate.bounds is None


def test_records_without_it_have_no_course() -> None:
    assert of([None] * 4) == []
    assert len(of([None, *[[[1, 1, 1]] * 4] * 3])) == 4


def test_what_is_kept_adds_up_to_the_counters() -> None:
    words = ("target=table", "drafter=ngram", "policy.gamma=3", "max_new_tokens=24")
    engine = load(*words)
    found = decoded(engine, [[1, 2, 3, 1, 2], [3, 3, 3]], [7, 4])
    for one in found["rows"]:
        assert len(one["by_round"]) == one["rounds"]
        sums = [sum(each) for each in zip(*one["by_round"], strict=True)]
        assert sums == [one["drafted"], sum(one["reached_at"]), one["accepted"]]
        assert one["accepted"] + one["rounds"] == len(one["ids"]) == 24
    assert found["rows"][0]["by_round"] != found["rows"][1]["by_round"]


def test_plain_decoding_keeps_nothing_of_it() -> None:
    rows = [RowOutcome(3, [], 0, [1], []), RowOutcome(3, [], 0, [1], [])]
    assert by_round(rows) == {}
    assert by_round([*rows, RowOutcome(3, [5, 6], 1, [5, 9], [0.9, 0.1])]) == {
        3: [[0, 0, 0], [0, 0, 0], [2, 2, 1]]
    }


GOOD: Each = [[3, 2, 1], [3, 3, 3], [0, 0, 0]]


@pytest.mark.parametrize(
    "each",
    [
        {}, "321", [3, 2, 1], [[3, 2]], [[3, 2, 1, 0]], [*GOOD, [0, 0, 0]], GOOD[:2], [],
        [[3, 2, 1], [3, 3, 3], [False, 0, 0]], [[3, 2, 1.0], *GOOD[1:]], [[3, 2, True], *GOOD[1:]],
        [[3, 2, -1], [3, 3, 5], [0, 0, 0]], [[3, 1, 2], [3, 4, 2], [0, 0, 0]],
        [[1, 2, 1], [5, 3, 3], [0, 0, 0]], [[3, 2, 0], [3, 3, 3], [0, 0, 0]],
        [[3, 3, 1], [3, 3, 3], [0, 0, 0]], [[4, 2, 1], [3, 3, 3], [0, 0, 0]],
    ],
)  # fmt: skip
def test_rounds_that_cannot_be_are_refused(each: Any) -> None:
    good = record("fast", 0, GOOD)
    assert record_problem(good, "fast", UNITS) == ""
    good["rows"][0]["by_round"] = each
    assert "by_round is no list" in record_problem(good, "fast", UNITS)


def test_a_record_without_them_is_as_good_as_ever() -> None:
    old = record("fast", 0, None)
    assert record_problem(old, "fast", UNITS) == ""
    old["rows"][0]["by_round"] = None
    assert record_problem(old, "fast", UNITS) == "" and begun(old["rows"]) == []


def test_it_is_in_the_parquet_file(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rounds = [[3, 2, 1], [3, 1, 0]]
    run = bench_store_helpers.record(bench_store_helpers.CELLS[0], 1, 0)
    run["rows"][0]["by_round"] = rounds
    with Store.create(tmp_path / "sweep", bench_store_helpers.manifest()) as store:
        store.append(run)
        store.append(bench_store_helpers.record("plain", 1, 0))
        store.to_parquet(tmp_path / "rows.parquet")
        assert store.rows()["by_round"].tolist() == [rounds, None]
    ours, plain = pandas.read_parquet(tmp_path / "rows.parquet")["by_round"]
    assert [list(each) for each in ours] == rounds and plain is None
