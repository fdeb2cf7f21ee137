"""Which arms leave a race that has no time for all of them."""

from __future__ import annotations

from typing import Any

from foredraft.framework.bench.tuning_halving import Pace, stages


def run(
    cell: str, seconds: float, unit: int = 0, repeat: int = 0, tokens: int = 4
) -> dict[str, Any]:
    rows = [{"prompt": 0, "ids": list(range(tokens))}]
    return {"cell": cell, "unit": unit, "repeat": repeat, "seconds": seconds, "rows": rows}


def test_only_runs_of_these_units_and_of_the_first_repeat_count() -> None:
    pace = Pace([run("a", 1), run("a", 3, 1), run("a", 50, 2), run("a", 70, 0, 1)], [0, 1])
    assert pace.spent == 4
    assert pace.reaches(["a"], 2, 8 / 0.9 + 0.01)  # 4 s spent, twice 2 s to come, a tenth to spare
    assert not pace.reaches(["a"], 2, 8 / 0.9 - 0.01)


def test_arms_are_ranked_by_seconds_per_token() -> None:
    runs = [run("a", 1), run("b", 1, tokens=8), run("c", 2), run("d", 2, tokens=3), run("e", 9)]
    pace = Pace(runs, [0])
    assert pace.slower_half(["a", "b", "c", "d", "e"]) == ["d", "e"]
    assert pace.slower_half(["a", "b"]) == ["a"]
    assert pace.slower_half(["a"]) == []


def test_an_arm_without_runs_or_tokens_is_the_slowest() -> None:
    pace = Pace([run("a", 1), run("b", 0.1, tokens=0)], [0])
    assert set(pace.slower_half(["none", "b", "a", "a"])) == {"none", "b"}


def test_stages_come_before_the_first_look() -> None:
    assert stages(6) == [1, 2, 4] and stages(4) == [1, 2] and stages(1) == []
