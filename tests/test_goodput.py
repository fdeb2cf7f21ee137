"""``goodput``: one gamma for the batch by what rounds really take, off where it does not pay."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import make_engine, target_of
from policy_worlds import Linear, World, value

from foredraft.framework import load
from foredraft.framework.errors import ConfigError
from foredraft.framework.policies.builtin_times import GoodputConfig
from foredraft.framework.policies.goodput import Goodput
from foredraft.framework.times.steps import Constant, StepTimes


def goodput(**values: object) -> Goodput:
    return Goodput(GoodputConfig(**values))  # type: ignore[arg-type]


CELLS: dict[str, tuple[float, StepTimes, int]] = {
    "good drafts": (0.7, Constant(0.1), 1),
    "dear drafts": (0.2, Constant(0.3), 1),
    "useless drafts": (0.0, Constant(0.3), 1),
    "perfect drafts": (1.0, Constant(0.05), 1),
    "steps that grow": (0.5, Linear(0.15, 0.02), 1),
    "a full batch": (0.7, Linear(0.15, 0.02), 8),
}


@pytest.mark.parametrize("cell", CELLS)
def test_no_cell_is_below_plain_decoding_or_the_best_gamma(cell: str) -> None:
    alpha, truth, rows = CELLS[cell]
    run = World(lambda i: alpha, truth, noise=0.1, rows=rows).run(goodput(), 300)
    best = value(run, alpha, truth, rows)
    if cell == "perfect drafts":  # 16 is its most
        best /= (17 / 1.8) / (65 / 4.2)
    assert best > 0.97


def test_the_same_acceptance_is_used_alone_and_not_in_a_full_batch() -> None:
    alone = World(lambda i: 0.8, Linear(0.1, 0.02)).run(goodput(), 100)
    full = World(lambda i: 0.8, Linear(0.1, 0.02), rows=16).run(goodput(), 100)
    assert np.mean(alone.gammas) > 3
    assert full.share(0) > 0.9


def test_it_turns_with_a_batch_that_shrinks() -> None:
    world = World(lambda i: 0.8, Linear(0.1, 0.02), rows=16)
    run = world.run(goodput(), 200, keep={99: [3]})
    assert run.share(0, 20, 100) > 0.9
    assert np.mean(run.gammas[130:]) > 2


def test_the_clock_overrules_a_table_that_is_wrong() -> None:
    steep, flat = Linear(0.5, 0.3), Constant(0.02)
    promised = World(lambda i: 0.6, truth=steep, told=flat)
    run = promised.run(goodput(), 500)
    assert value(run, 0.6, steep, begin=300) > 0.95
    assert value(promised.run(goodput(frozen=True), 500), 0.6, steep, begin=300) < 0.5
    feared = World(lambda i: 0.8, truth=flat, told=steep).run(goodput(), 500)
    assert value(feared, 0.8, flat, begin=300) > 0.9


def test_drafting_that_gets_dear_is_turned_off_and_found_again() -> None:
    class Changing(Constant):
        """Drafting is dear for a while."""

        spent = 0

        def target(self, batch: int, widths: object, context: int) -> np.ndarray:  # type: ignore[override]
            self.spent += 1
            self.c = 2.0 if 200 < self.spent <= 500 else 0.05
            return super().target(batch, list(widths), context)  # type: ignore[call-overload]

    run = World(lambda i: 0.7, Changing(0.05), told=Constant(0.05)).run(goodput(), 1500)
    assert np.mean(run.gammas[100:200]) > 3
    assert np.mean(run.gammas[300:500]) < 0.3
    assert np.mean(run.gammas[1200:]) > 2


def test_a_text_that_gets_easy_is_found_by_probes_whose_cost_is_bounded() -> None:
    world = World(lambda i: 0.0 if i < 300 else 0.9, Constant(0.3))
    run = world.run(goodput(probe=0.01), 900)
    off = run.rate(30, 300)
    assert off > 0.98  # plain decoding is 1 token per second
    assert 0 < sum(g > 0 for g in run.gammas[30:300]) < 20
    assert value(run, 0.9, Constant(0.3), begin=600) > 0.95
    assert sum(World(lambda i: 0.0, Constant(0.3)).run(goodput(probe=0.0), 300).gammas[30:]) == 0


@pytest.mark.parametrize("rows", [1, 4])
def test_a_drafter_that_never_drafts_costs_nothing_to_ask(rows: int) -> None:
    world = World(lambda i: 0.6, Linear(0.15, 0.0001), given=0.0, rows=rows)
    run = world.run(goodput(), 200)
    assert run.rate() > 0.98 * rows


def test_a_drafter_that_seldom_drafts_is_asked_for_what_pays() -> None:
    truth = Linear(0.15, 0.001)
    run = World(lambda i: 0.6, truth, given=0.3).run(goodput(), 300)
    assert 1.5 < np.mean(run.gammas[50:]) < 5  # the best is 3, whatever the chance of a draft


def test_with_many_rows_somebody_has_a_draft_and_all_pay_for_it() -> None:
    truth = Linear(0.05, 0.001)
    run = World(lambda i: 0.6, truth, given=0.1, rows=8).run(goodput(), 300)
    assert run.share(0, 50) > 0.85


def test_without_a_clock_the_table_decides() -> None:
    run = World(lambda i: 0.7, Constant(0.1), told=Constant(0.1), clock=False).run(goodput(), 200)
    assert value(run, 0.7, Constant(0.1)) > 0.97


def test_frozen_runs_repeat_whatever_the_clock_says() -> None:
    runs = [
        World(lambda i: 0.6, Constant(0.1), told=Constant(0.1), noise=noise).run(
            goodput(frozen=True), 150
        )
        for noise in (0.0, 1.0)
    ]
    live = World(lambda i: 0.6, Constant(0.1), noise=1.0).run(goodput(), 150)
    assert value(runs[0], 0.6, Constant(0.1)) == pytest.approx(
        value(runs[1], 0.6, Constant(0.1)), abs=0.02
    )
    assert live.gammas != runs[1].gammas


def test_it_runs_in_the_real_loop_with_rows_that_end() -> None:
    engine = make_engine(target_of("llama"), gamma=goodput(frozen=True), max_new_tokens=6)
    plain = make_engine(target_of("llama"), gamma=0, max_new_tokens=6)
    prompts = [[1, 2, 3], [4, 5], [6]]
    ours, theirs = (e.generate_many(prompts) for e in (engine, plain))
    assert [a.token_ids for a in ours] == [a.token_ids for a in theirs]


def test_a_bad_first_round_of_many_rows_is_not_the_end() -> None:
    """Answers begin alike, and badly: the rates of later rounds are open."""
    world = World(lambda i: 0.0 if i < 1 else 0.7, Constant(0.2), rows=8)
    run = world.run(goodput(), 40)
    assert run.share(0, 1, 40) < 0.2


def test_it_has_no_scope() -> None:
    with pytest.raises(ConfigError, match="policy.scope"):
        load("target=table", "drafter=none", "policy=goodput", "policy.scope=request")
