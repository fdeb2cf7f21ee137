"""Why a cell is as fast as it is, on times that are made up."""

from __future__ import annotations

from typing import Any

import pytest
from sweep_worlds import cell, counters, manifest, record

from foredraft.framework import theory
from foredraft.framework.bench.gap import Gap
from foredraft.framework.bench.readings import PHASES
from foredraft.framework.bench.summary import summarise

ROUNDS = 20
PLAIN = {"draft": 0.0, "verify": 0.10, "sampling": 0.01, "other": 0.01}  # seconds of a round
LEAN = {"draft": 0.03, "verify": 0.10, "sampling": 0.01, "other": 0.01}


def gap(
    times: dict[str, float], tau: float = 2.5, gamma: int = 3, alpha: float = 0.8, batch: int = 1
) -> Gap:
    """Of a cell with these seconds per round and phase, over three units."""
    tokens = int(tau * ROUNDS)
    row = counters(tokens, ROUNDS, gamma) | {"overlap": alpha * 40, "reached_at": [20, 20]}
    if not gamma:
        row |= {"reached_at": [], "accepted_at": []}
    records = []
    for unit in range(3):
        records.append(_run("cell", unit, times, ROUNDS, row, batch))
        plain = counters(tokens, tokens, 0)
        records.append(_run("plain", unit, PLAIN, tokens, plain, batch))
    asked = manifest([cell("plain", "plain"), cell("cell")], 3)
    found = summarise(asked, records)["cell"].gap
    assert found is not None
    return found


def _run(
    name: str, unit: int, times: dict[str, float], rounds: int, row: dict[str, Any], batch: int
) -> dict[str, Any]:
    # ``other`` is what is left of the run, so it is not told.
    told = {key: value * rounds for key, value in times.items() if key != "other"}
    made = record(name, unit, decode=sum(times.values()) * rounds, time=told)
    rows = [{"prompt": unit, "ids": [0] * row["emitted"], **row}] * batch
    return made | {"rows": rows}


def test_the_parts_make_up_the_measured_speedup() -> None:
    found = gap({"draft": 0.06, "verify": 0.13, "sampling": 0.02, "other": 0.03})
    assert found.measured == pytest.approx(2.5 * 0.12 / 0.24)
    assert found.measured == pytest.approx(found.tau / (1 + sum(found.extra.values())))
    assert found.extra == pytest.approx(
        {"draft": 0.5, "verify": 0.25, "sampling": 1 / 12, "other": 1 / 6}
    )
    assert found.share == pytest.approx(
        {"draft": 0.5, "verify": 0.25, "sampling": 1 / 12, "other": 1 / 6}
    )


def test_what_theory_says_of_the_measured_rates() -> None:
    found = gap({"draft": 0.06, "verify": 0.13, "sampling": 0.02, "other": 0.03})
    assert (found.alpha, found.gamma, found.tau) == pytest.approx((0.8, 3, 2.5))
    assert found.c == pytest.approx(0.2) and found.width == pytest.approx(1.3)
    assert found.theory == pytest.approx(float(theory.speedup(0.8, 3, 0.2)))
    assert found.by_times == pytest.approx(2.5 * 0.10 / 0.19)
    assert found.of_theory == pytest.approx(found.measured / (found.theory or 0))
    assert found.of_times == pytest.approx(found.measured / found.by_times)


def test_where_theorys_assumptions_hold_it_is_exact() -> None:
    # Independent positions, a verification as quick as a plain step, nothing but the two models.
    tau = float(theory.expected_tokens(0.5, 1))
    found = gap({**PLAIN, "draft": 0.012}, tau=tau, gamma=1, alpha=0.5)
    assert found.tau == 1.5 and found.by_times == pytest.approx(found.theory)
    assert found.theory == pytest.approx(1.5 / 1.12)


@pytest.mark.parametrize("name", PHASES)
def test_without_a_loss_the_speedup_is_that_of_the_cell_without_it(name: str) -> None:
    times = {"draft": 0.06, "verify": 0.13, "sampling": 0.02, "other": 0.03}
    ideal = gap({**times, name: PLAIN[name]}).measured
    assert gap(times).if_ideal[name] == pytest.approx(ideal)


def test_with_every_draft_accepted_it_would_emit_one_more_than_it_drafts() -> None:
    times = {"draft": 0.06, "verify": 0.13, "sampling": 0.02, "other": 0.03}
    assert gap(times).if_ideal["acceptance"] == pytest.approx(gap(times, tau=4).measured)


def test_a_phase_that_takes_less_than_in_plain_decoding_loses_nothing() -> None:
    found = gap({**LEAN, "verify": 0.08})
    assert found.extra["verify"] == pytest.approx(-1 / 6) and found.share["verify"] == 0
    assert found.if_ideal["verify"] == pytest.approx(found.measured)
    assert sum(found.share.values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("largest", "times", "says"),
    [
        ("draft", {**LEAN, "draft": 0.2}, "Drafting costs most (c 0.67)"),
        ("verify", {**LEAN, "verify": 0.3}, "The wider target step costs most (3.00 of a plain"),
        ("sampling", {**LEAN, "sampling": 0.3}, "Sampling costs most (2.42 plain rounds more)"),
        ("other", {**LEAN, "other": 0.3}, "Work outside of the models costs most (2.42 plain"),
        ("acceptance", LEAN, "Rejected drafts cost most (alpha 0.80)"),
    ],
)
def test_the_advice_names_the_largest_loss(
    largest: str, times: dict[str, float], says: str
) -> None:
    found = gap(times, tau=3.5 if largest != "acceptance" else 2.5)
    assert found.largest == largest == max(found.if_ideal, key=lambda k: found.if_ideal[k])
    assert found.advice.startswith(says)
    assert f"{found.if_ideal[largest]:.2f} times plain decoding" in found.advice


def test_where_theory_sees_no_gain_the_advice_is_not_to_speculate() -> None:
    found = gap({**LEAN, "draft": 0.3}, tau=1.2, alpha=0.2)
    assert found.measured < 1 and "do not speculate" in found.advice


def test_where_nothing_is_lost_the_advice_is_another_gamma() -> None:
    found = gap(PLAIN, tau=4, alpha=1.0)
    assert found.largest == "" and found.advice.startswith("Little is lost")
    assert "gamma is 32" in found.advice


def test_a_cell_that_drafts_nothing() -> None:
    found = gap(PLAIN, tau=1, gamma=0, alpha=0)
    assert found.alpha is found.theory is found.c is found.of_theory is None
    assert found.measured == pytest.approx(1) and "Nothing was drafted" in found.advice


def test_a_batch_counts_its_rounds_once() -> None:
    one, four = gap(LEAN), gap(LEAN, batch=4)
    assert (one.batch, four.batch) == (1, 4)
    assert four.measured == pytest.approx(one.measured) and four.tau == one.tau
    assert four.c == pytest.approx(one.c)


def test_without_phases_there_is_nothing_to_say() -> None:
    records = [
        record(name, unit, decode=1.0, rounds=32) for name in ("plain", "cell") for unit in range(3)
    ]
    asked = manifest([cell("plain", "plain"), cell("cell")], 3)
    assert summarise(asked, records)["cell"].gap is None
