"""What a sweep's records come down to, on sweeps whose speed-ups are known."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest
from scipy.stats import binom
from sweep_worlds import cell, counters, manifest, record, sweep

from foredraft.framework.bench.interval import Interval
from foredraft.framework.bench.summary import Summary, summarise


def of_units(*runs: list[dict[str, Any]], kinds: dict[str, str] | None = None) -> Summary:
    """A summary of records of the cells they name, 4 units, one repeat."""
    records = [one for run in runs for one in run]
    named = dict.fromkeys(["plain", *(r["cell"] for r in records)])
    kinds = {"plain": "plain", "again": "plain", "generate": "generate", **(kinds or {})}
    return summarise(
        manifest([cell(name, kinds.get(name, "engine")) for name in named], 4), records
    )


def runs(name: str, seconds: float, tokens: int = 10, **other: Any) -> list[dict[str, Any]]:
    values = {"prefill": 10.0, "rounds": tokens, **other}
    return [record(name, unit, decode=seconds, tokens=tokens, **values) for unit in range(4)]


def test_prefill_is_not_decoding() -> None:
    # 10 seconds of prefill, then 10 tokens in 1 second.
    found = of_units(runs("plain", 1.0), runs("fast", 0.5, prefill=30.0))
    assert found["plain"].rate.value == pytest.approx(10)
    assert found["fast"].rate.value == pytest.approx(20)
    assert found["fast"].speedup.value == pytest.approx(2)
    assert found["fast"].seconds_by_unit == pytest.approx([0.05] * 4)


def test_the_first_token_of_generate_belongs_to_its_prefill() -> None:
    found = of_units(
        runs("plain", 1.0),
        runs("generate", 0.9, rounds=None),
        runs("lookup", 0.9, rounds=None),
        kinds={"lookup": "generate_lookup"},
    )
    # 9 tokens in .9 seconds: as fast as 10 in 1.
    assert found["generate"].rate.value == pytest.approx(10)
    assert found["generate"].against_loop.value == pytest.approx(1)
    assert found["lookup"].speedup.value == pytest.approx(1)
    assert found["generate"].tau.value is None and found["generate"].gap is None


def test_answers_of_other_lengths_are_compared_by_token_and_counted() -> None:
    found = of_units(runs("plain", 1.0), runs("short", 0.5, tokens=5))
    assert found["short"].speedup.value == pytest.approx(1)
    assert found["short"].totals.value == pytest.approx(1)
    assert (found["short"].unequal, found["plain"].unequal) == (4, 0)


def test_of_repeats_the_median_stands() -> None:
    slow = [record("plain", u, r, decode=s) for u in range(4) for r, s in enumerate([1, 9, 2])]
    found = of_units([dict(r) for r in slow], runs("cell", 1.0, tokens=64))
    assert found["plain"].seconds_by_unit == pytest.approx([2 / 64] * 4)
    assert found["cell"].speedup.value == pytest.approx(2) and found["plain"].runs == 12


def test_the_mean_is_geometric_and_the_totals_are_not() -> None:
    times = [1.0, 1.0, 4.0, 4.0]
    plain = [record("plain", u, decode=s) for u, s in enumerate(times)]
    found = of_units(plain, runs("cell", 1.0, tokens=64))["cell"]
    assert found.speedup.value == pytest.approx(2) and found.totals.value == pytest.approx(2.5)
    assert found.by_unit == pytest.approx(times)
    assert [g.value for g in found.groups.values()] == pytest.approx([2, 2])


def test_the_base_is_the_fastest_plain_decoding() -> None:
    found = of_units(runs("plain", 1.0), runs("generate", 0.45, rounds=None), runs("cell", 0.25))
    assert found["cell"].base == ("generate",)
    assert found["cell"].speedup.value == pytest.approx(2)
    assert found["cell"].against_loop.value == pytest.approx(4)
    assert found["plain"].speedup.value == pytest.approx(0.5)
    # Plain decoding once more, prompt lookup and the like are no bases, however fast.
    quick = of_units(runs("plain", 1.0), runs("again", 0.1), runs("cell", 0.5))
    assert quick["cell"].base == ("plain",)


def test_a_base_is_chosen_on_other_units_than_it_serves() -> None:
    """Of two baselines that are equally fast the better one on the same runs would be a base that is
    faster than either, and cells would look slow."""
    lost: list[tuple[float, float]] = []
    for seed in range(60):
        world = sweep({"cell": 1.0}, 8, repeats=1, noise=0.2, unit_noise=0, generate=1.0, seed=seed)
        found = summarise(*world)
        best = min(known(found["cell"].against_loop), _against(found, "generate"))
        lost.append((known(found["cell"].speedup), best))
    assert sum(c for c, _ in lost) / 60 == pytest.approx(1, abs=0.04)
    assert sum(b for _, b in lost) / 60 < 0.96


def known(interval: Interval) -> float:
    assert interval.value is not None
    return interval.value


def _against(found: Summary, base: str) -> float:
    pairs = zip(found[base].seconds_by_unit, found["cell"].seconds_by_unit, strict=True)
    product = 1.0
    for one, other in pairs:
        product *= one / other  # type: ignore[operator]
    return float(product ** (1 / len(found.groups)))


def test_a_failed_cell_keeps_its_counts_and_gives_no_speed() -> None:
    records = [*runs("plain", 1.0), *runs("cell", 0.5, gamma=3, rounds=5)]
    asked = manifest([cell("plain", "plain"), cell("cell")], 4)
    found = summarise(asked, records, {"cell": {"cause": "it raised.", "kind": "raised"}})["cell"]
    assert (found.status, found.cause) == ("failed", "it raised.")
    assert found.speedup.value is found.rate.value is found.totals.value is None
    assert found.gap is None
    assert found.by_unit == found.seconds_by_unit == () and not found.phases
    assert found.tau.value == 2 and found.counts["drafted"] == 60


def test_without_its_plain_loop_a_cell_has_no_speedup() -> None:
    records = [*runs("plain", 1.0), *runs("cell", 0.5)]
    asked = manifest([cell("plain", "plain"), cell("cell")], 4)
    found = summarise(asked, records, {"plain": {"cause": "it hung.", "kind": "hung"}})["cell"]
    assert found.status == "ok" and found.speedup.value is None and found.rate.value == 20
    assert found.base == () and found.gap is None


def test_runs_that_shared_the_machine_give_counts_and_no_times() -> None:
    shared = [r | {"contended": True} for r in runs("cell", 0.1, gamma=3, rounds=5)]
    found = of_units(runs("plain", 1.0), shared)["cell"]
    assert (found.status, found.contended, found.runs) == ("contended", 4, 4)
    assert found.speedup.value is None and found.rate.value is None and found.tau.value == 2
    some = of_units(runs("plain", 1.0), [shared[0], *runs("cell", 0.5)[1:]])["cell"]
    assert (some.status, some.contended, some.units) == ("ok", 1, 3)
    assert some.speedup.value == pytest.approx(2)


def test_a_cell_without_runs_is_missing() -> None:
    found = of_units(runs("plain", 1.0), runs("cell", 1.0)[:0], kinds={"cell": "engine"})
    assert [c.id for c in found.cells] == ["plain"]
    asked = manifest([cell("plain", "plain"), cell("cell")], 4)
    late = summarise(asked, runs("plain", 1.0))["cell"]
    assert late.status == "missing" and late.speedup.value is None and late.tau.value is None
    assert late.clear == "no clear difference"


@pytest.mark.parametrize("units", [1, 2])
def test_too_few_units_give_values_without_intervals(units: int) -> None:
    found = summarise(*sweep({"cell": 2.0}, units, noise=0, unit_noise=0))["cell"]
    for interval in (found.speedup, found.family, found.totals, found.tau, found.alpha):
        assert interval.value is not None and interval.bounds is None
        assert "needs 3" in interval.how
    assert found.clear == "no clear difference"


def test_counts_and_acceptance_by_position() -> None:
    row = counters(10, 4, 3) | {"reached_at": [4, 2, 1], "accepted_at": [3, 2], "overlap": 3.5}
    records = runs("cell", 1.0, rounds=4, gamma=3)
    found = of_units(runs("plain", 1.0), [r | {"rows": [r["rows"][0] | row]} for r in records])[
        "cell"
    ]
    assert found.tau.value == 2.5 and found.alpha.value == 0.5
    assert found.accept_rate.value == pytest.approx(6 / 7)
    assert found.reached_at == [16, 8, 4] and found.accept_at == [0.75, 1.0, 0.0]
    assert found.tau_by_unit == [2.5] * 4


def test_tau_and_alpha_hold_their_means_and_stay_possible() -> None:
    records = runs("cell", 1.0, tokens=40, rounds=20, gamma=3)
    for index, one in enumerate(records):
        one["rows"][0] |= {"overlap": 20.0 - (index == 3), "rounds": 20 + index}
    found = of_units(runs("plain", 1.0), records)["cell"]
    assert found.tau.low < 160 / 86 < found.tau.high  # type: ignore[operator]
    assert found.alpha.value == pytest.approx(79 / 80) and found.alpha.high == 1


def test_a_baseline_against_itself_covers_one() -> None:
    hits = 0
    for seed in range(100):
        found = summarise(*sweep({}, 12, repeats=1, noise=0.1, seed=seed))["again"]
        hits += found.against_loop.differs() == 0
    assert binom.cdf(hits, 100, 0.95) > 1e-3


def test_a_planted_slowdown_is_found_and_nothing_else() -> None:
    cells = {f"cell{i}": 1.0 for i in range(24)} | {"slow": 0.9}
    found = summarise(*sweep(cells, 48, unit_noise=0.04))
    clear = {c.id: c.clear for c in found.cells if c.clear != "no clear difference"}
    assert clear == {"slow": "slower"}
    assert found["slow"].family.low < found["slow"].speedup.low  # type: ignore[operator]
    assert found["plain"].family.value is None


def test_the_noise_floor_is_plain_against_plain() -> None:
    records = [*runs("plain", 1.0), *runs("again", 1.1), *runs("cell", 1.0)]
    for index, one in enumerate(records):
        one["seconds"] += index % 4 * 0.01
    asked = manifest([cell("plain", "plain"), cell("again", "plain"), cell("cell")], 4)
    found = summarise(asked, records).noise["plain"]
    assert found.source == "again" and found.factor.value == pytest.approx(1 / 1.1, abs=0.01)
    assert found.floor == pytest.approx(1 / found.factor.low) and found.floor > 1.09  # type: ignore


def test_without_a_second_plain_cell_repeats_tell_the_noise() -> None:
    asked, records = sweep({"cell": 1.0}, 8, noise=0.1)
    kept = [r for r in records if r["cell"] != "again"]
    asked["cells"] = [c for c in asked["cells"] if c["id"] != "again"]
    found = summarise(asked, kept).noise["plain"]
    assert found.source == "repeats" and 1 < found.floor < 1.3  # type: ignore[operator]
    once = summarise(asked, [r for r in kept if r["repeat"] == 0]).noise["plain"]
    assert once.floor is None and once.factor.value is None


def test_the_winner_is_measured_where_it_was_not_chosen() -> None:
    chosen, measured = [], []
    for seed in range(40):
        world = sweep({f"c{i}": 1.0 for i in range(12)}, 12, repeats=1, seed=seed)
        found = summarise(*world).winners["plain"]
        chosen.append(known(found.chosen))
        measured.append(known(found.measured))
    assert sum(chosen) / 40 > 1.05  # the best of 12 that are all alike
    assert sum(measured) / 40 == pytest.approx(1, abs=0.02)


def test_a_winner_is_lossless_and_may_be_advised_against() -> None:
    asked, records = sweep({"lossy": 3.0, "good": 2.0, "bad": 0.5}, 24)
    asked["cells"][2]["lossless"] = False
    won = summarise(asked, records).winners["plain"]
    assert (won.cell, won.again, won.advice) == ("good", True, "speculate")
    assert won.measured.low < 2 < won.measured.high  # type: ignore[operator]
    slow = summarise(*sweep({"bad": 0.5}, 24)).winners["plain"]
    assert (slow.cell, slow.advice) == ("bad", "do not speculate")
    assert summarise(*sweep({"bad": 0.5}, 1)).winners == {}


def test_cells_of_other_batch_sizes_have_units_of_their_own() -> None:
    asked = manifest([cell("plain", "plain"), cell("one"), cell("plain4", "plain", "")], 4)
    asked["cells"].append(cell("four", baseline="plain4"))
    whole = {"index": 4, "group": "math", "prompts": [0, 1, 2, 3], "batch_size": 4}
    asked["units"].append(whole)
    rows = [{"prompt": p, "ids": [0] * 10, **counters(10, 10, 0)} for p in range(4)]
    batches = [
        record(name, 4, decode=s, rounds=1) | {"rows": rows}
        for name, s in (("plain4", 1.0), ("four", 0.5))
    ]
    found = summarise(asked, [*runs("plain", 1.0), *runs("one", 0.5), *batches])
    assert [found[name].speedup.value for name in ("one", "four")] == pytest.approx([2, 2])
    assert (found["one"].units, found["four"].units) == (4, 1)
    assert found["plain4"].rate.value == pytest.approx(40)


def test_the_order_of_records_makes_no_difference() -> None:
    asked, records = sweep({"cell": 1.3}, 8, generate=0.9)
    other = copy.deepcopy(records)
    random.Random(1).shuffle(other)
    assert summarise(asked, records).as_dict() == summarise(asked, iter(other)).as_dict()


def test_it_all_goes_into_json() -> None:
    asked, records = sweep({"cell": 1.3, "other": 1.0}, 8, generate=0.9)
    asked["cells"][-1]["choices"] = {"drafter": "x", "policy.gamma": 3}
    found = summarise(asked, records, {"other": {"cause": "no"}}, {"cell": {"verdict": "same"}})
    plain = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert [c["id"] for c in plain["cells"]] == ["plain", "again", "generate", "cell", "other"]


def test_a_cell_that_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="nobody"):
        of_units(runs("plain", 1.0))["nobody"]


def test_a_run_that_decoded_nothing_has_no_speed() -> None:
    found = of_units(runs("plain", 1.0), runs("generate", 0.0, tokens=1, rounds=None))
    assert found["generate"].status == "missing" and found["generate"].rate.value is None
    assert found["plain"].base == ("plain",)
