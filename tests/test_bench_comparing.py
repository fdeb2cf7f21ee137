"""Two sweeps against each other."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from sweep_worlds import cell, sweep

from foredraft.framework.bench.comparing import Comparison, compare
from foredraft.framework.bench.summary import summarise
from foredraft.framework.errors import ConfigError

CELLS = {f"c{i}": 1.0 + i / 5 for i in range(6)}


def both(
    after: dict[str, float], units: int = 24, threshold: float = 0.05, **later: Any
) -> Comparison:
    """A sweep, and one on another day with other speed-ups; ``later`` goes into its manifest."""
    asked, records = sweep(after, units, unit_noise=0.03, seed=1)
    before = summarise(*sweep(CELLS, units, unit_noise=0.03))
    return compare(before, summarise(asked | later, records), threshold)


def test_a_run_against_itself_changed_nothing() -> None:
    run = summarise(*sweep(CELLS, 8, generate=1.1))
    found = compare(run, run)
    assert found.regressions == found.changes == found.only_a == found.only_b == []
    assert [c.id for c in found.cells] == [c.id for c in run.cells]
    assert all(c.rate.bounds == (1, 1) and c.paired for c in found.cells)


def test_runs_that_shared_the_machine_are_compared_by_counts_alone() -> None:
    asked, records = sweep(CELLS, 8)
    run = summarise(asked, [{**record, "contended": True} for record in records])
    found = compare(run, run)
    assert found.regressions == []
    assert all(c.speedup.value is None and c.rate.value is None for c in found.cells)
    assert [c.tau.bounds for c in found.cells if c.id in CELLS] == [(1, 1)] * len(CELLS)


def test_another_day_is_no_regression() -> None:
    assert both(CELLS).regressions == []


def test_a_cell_that_got_slower_is_one() -> None:
    found = both({**CELLS, "c3": CELLS["c3"] * 0.85})
    assert len(found.regressions) == 1 and found.regressions[0].startswith("c3: speed-up 1.")
    change = next(c for c in found.cells if c.id == "c3")
    assert change.speedup.value == pytest.approx(0.85, abs=0.03)
    assert change.family.low < change.speedup.low < change.speedup.high < 1  # type: ignore[operator]


def test_what_the_threshold_allows_is_none() -> None:
    slower = {**CELLS, "c3": CELLS["c3"] * 0.85}
    assert both(slower, threshold=0.3).regressions == []
    assert both({**CELLS, "c3": CELLS["c3"] * 1.2}).regressions == []


@pytest.mark.parametrize("threshold", [-0.1, 1, float("nan")])
def test_an_impossible_threshold_is_refused(threshold: float) -> None:
    with pytest.raises(ConfigError, match="threshold=.* from 0 to 1"):
        both(CELLS, units=3, threshold=threshold)


def test_a_slower_machine_is_no_regression_but_a_lower_rate() -> None:
    asked, records = sweep(CELLS, 24)
    slow = copy.deepcopy(records)
    for one in slow:
        one["seconds"] = one["prefill"] + 2 * (one["seconds"] - one["prefill"])
    found = compare(summarise(asked, records), summarise(asked, slow))
    assert found.regressions == []
    assert [c.rate.value for c in found.cells] == pytest.approx([0.5] * 8)
    assert [c.speedup.value for c in found.cells[2:]] == pytest.approx([1] * 6)
    assert found.cells[0].speedup.value is None  # plain decoding has none


def test_fewer_tokens_per_round_are_a_regression() -> None:
    asked, records = sweep(CELLS, 8)
    fewer = copy.deepcopy(records)
    for one in fewer:
        if one["cell"] == "c2":
            one["rows"][0]["rounds"] = 40
    found = compare(summarise(asked, records), summarise(asked, fewer))
    assert found.regressions == ["c2: tau 2.00 is now 1.60, a factor of 0.80 [0.80, 0.80]"]


def test_a_cell_that_fails_or_lost_its_verdict_is_a_regression() -> None:
    asked, records = sweep(CELLS, 4)
    good = {name: {"verdict": "same"} for name in CELLS}
    before = summarise(asked, records, {"c0": {"cause": "it hung."}}, good)
    failures = {"c0": {"cause": "it hung."}, "c1": {"cause": "it raised."}}
    found = compare(
        before, summarise(asked, records, failures, good | {"c2": {"verdict": "faulty"}})
    )
    assert found.regressions == [
        "c1 fails now: it raised.",
        "c2 is no longer lossless: its verdict is faulty",
    ]
    assert compare(summarise(asked, records, failures), before).regressions == []


def test_what_was_asked_for_is_named() -> None:
    found = both(CELLS, commit="2", versions={"torch": "3"})
    assert found.changes == ["commit was 1, is 2", "versions.torch was not there, is 3"]


def test_another_base_is_named() -> None:
    with_it, without = sweep(CELLS, 6, generate=2.0), sweep(CELLS, 6)
    with_it[0]["cells"] = [c for c in with_it[0]["cells"] if c["id"] != "c5"]
    found = compare(summarise(*with_it), summarise(*without))
    sentence = "the fastest plain decoding was generate, is plain, for 5 cells (c0, ...)"
    assert sentence in found.changes


def test_cells_are_matched_by_choices_then_by_config() -> None:
    asked, records = sweep({"old": 1.0, "same": 1.5, "gone": 1.0}, 4)
    later, after = sweep({"new": 1.0, "same": 1.5, "fresh": 1.0}, 4)
    asked["cells"][2] |= {"choices": {"drafter": "old", "policy.gamma": 3}, "config": {"k": 1}}
    later["cells"][2] |= {"choices": {"policy.gamma": 3}, "config": {"k": 1}}
    found = compare(summarise(asked, records), summarise(later, after))
    assert [c.id for c in found.cells] == ["plain", "again", "new", "same"]
    assert (found.only_a, found.only_b) == (["gone"], ["fresh"])


def test_a_second_plain_cell_is_not_the_plain_loop() -> None:
    asked, records = sweep({"cell": 1.0}, 4)
    turned = asked | {"cells": [asked["cells"][k] for k in (1, 0, 2)]}
    found = compare(summarise(asked, records), summarise(turned, records))
    assert [c.rate.value for c in found.cells] == pytest.approx([1, 1, 1])


def test_other_prompts_are_compared_without_pairs() -> None:
    found = both({**CELLS, "c3": 0.3}, prompts={"count": 24, "sha256": "b"})
    assert not any(c.paired for c in found.cells)
    change = next(c for c in found.cells if c.id == "c3")
    assert change.speedup.how == "Welch's t"
    assert change.speedup.value == pytest.approx(0.3 / 1.6, abs=0.02)
    assert [r[:12] for r in found.regressions] == ["c3: speed-up"]
    assert change.family.low < change.speedup.low  # type: ignore[operator]
    assert any("prompts" in sentence for sentence in found.changes)


def test_units_are_paired_by_their_prompts() -> None:
    asked, records = sweep(CELLS, 8)
    turned = copy.deepcopy(asked)
    turned["units"] = [{**u, "index": 7 - u["index"]} for u in reversed(turned["units"])]
    moved = [r | {"unit": 7 - r["unit"]} for r in records]
    found = compare(summarise(asked, records), summarise(turned, moved))
    assert all(c.rate.bounds == pytest.approx((1, 1)) for c in found.cells)
    fewer = asked | {"units": asked["units"][:5]}
    less = compare(summarise(asked, records), summarise(fewer, records))
    assert {c.rate.units for c in less.cells} == {5}


def test_nothing_in_common() -> None:
    asked, records = sweep({}, 3)
    none = {**asked, "cells": [cell("other", "generate_lookup")]}
    found = compare(summarise(asked, records), summarise(none, []))
    assert found.cells == [] and found.only_b == ["other"] and found.regressions == []


def test_few_in_a_hundred_days_raise_an_alarm() -> None:
    days = [summarise(*sweep(CELLS, 6, repeats=1, seed=seed)) for seed in range(60)]
    pairs = zip(days[::2], days[1::2], strict=True)
    alarms = sum(bool(compare(a, b, threshold=0).regressions) for a, b in pairs)
    assert alarms <= 5  # of 30, each with a chance of 2.5 in 100: 6 or more are 1 in 10,000


def test_it_goes_into_json() -> None:
    found = both({**CELLS, "c3": 0.5})
    plain = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert plain["regressions"] == found.regressions and plain["threshold"] == 0.05
    assert np.isfinite(plain["cells"][3]["rate"]["value"])
