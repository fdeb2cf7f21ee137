"""``optimal``: near the best gamma wherever it lies, after it when it moves, and each row for itself."""

from __future__ import annotations

import time

import numpy as np
import pytest
from helpers import make_engine, target_of
from policy_worlds import BareContext, Linear, World, value

from foredraft.framework import load
from foredraft.framework.errors import ConfigError
from foredraft.framework.plugins import registry
from foredraft.framework.policies.acceptance import Acceptance
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.builtin_times import BATCH, OptimalConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.policies.optimal import Optimal
from foredraft.framework.policies.prices import Corrections
from foredraft.framework.policies.rows import Outcomes
from foredraft.framework.records import Round, RowOutcome
from foredraft.framework.replaying.engine import replay
from foredraft.framework.replaying.stack import Stack
from foredraft.framework.specs import PolicySpec
from foredraft.framework.times.steps import Constant
from foredraft.framework.traces.synthetic import Iid, Process, TwoState, synthetic_traces


def optimal(**values: object) -> Optimal:
    return Optimal(OptimalConfig(**{"frozen": True, "batch": 1, **values}))  # type: ignore[arg-type]


# --- the estimates -----------------------------------------------------------------------------


def seen(reached: list[int], overlaps: list[float], bonus: float = 1.0) -> Outcomes:
    """A round of many rows: as much is accepted as the overlaps say, times ``bonus``."""
    judged, shares = np.array([reached]), np.array([overlaps])
    drafted = judged.sum(1)
    return Outcomes(np.array([0]), drafted, drafted, judged, bonus * shares, shares)  # type: ignore[arg-type]


def test_before_evidence_every_position_is_as_presumed() -> None:
    found = Acceptance(2, 4, 64, 3, 0.6).stands(np.array([0, 1]))
    assert found == pytest.approx(np.tile(0.6 ** np.arange(1, 5), (2, 1)))


def test_positions_are_told_apart_and_unseen_ones_are_like_all() -> None:
    acceptance = Acceptance(1, 4, 200, 3, 0.6)
    for _ in range(200):
        acceptance.learn(seen([1, 1, 0, 0], [0.9, 0.3, 0, 0]))
    first, second, third, _ = acceptance.stands(np.array([0]))[0]
    assert first == pytest.approx(0.9, rel=0.03)
    assert second / first == pytest.approx(0.3, rel=0.05)
    assert third / second == pytest.approx(0.6, rel=0.05)


def test_a_rule_that_accepts_more_than_the_overlap_is_noticed() -> None:
    acceptance = Acceptance(1, 2, 200, 3, 0.6)
    for _ in range(200):
        acceptance.learn(seen([1, 1], [0.5, 0.5], bonus=1.6))
    assert acceptance.stands(np.array([0]))[0] == pytest.approx([0.8, 0.64], rel=0.12)


def test_recent_tokens_win_when_the_text_changes() -> None:
    acceptance = Acceptance(1, 2, 128, 3, 0.6)
    for _ in range(100):
        acceptance.learn(seen([1, 1], [0.9, 0.9]))
    before = acceptance.stands(np.array([0]))[0, 0]
    for _ in range(16):
        acceptance.learn(seen([1, 0], [0.1, 0]))
    assert before == pytest.approx(0.9, abs=0.03)
    assert acceptance.stands(np.array([0]))[0, 0] < 0.45  # the slow view alone says .8


def test_corrections_follow_what_is_played_and_doubt_exceptions() -> None:
    corrections = Corrections(5)
    assert corrections.factors == [1] * 5
    for _ in range(30):
        corrections.learn(2, 3.0, 1.0)
    assert corrections.factors == pytest.approx(np.full(5, 3), rel=0.1)
    usual = corrections.factors[2]
    corrections.learn(2, 500.0, 1.0)
    assert corrections.factors[2] < 1.15 * usual


@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize("clock", [False, True])
def test_a_text_alone_is_reckoned_as_one_of_many(alpha: float, clock: bool) -> None:
    """Plain numbers for one line, arrays for more: two rows of like fates are one row twice."""
    draws, policy = np.random.default_rng(5), optimal(alpha=alpha, frozen=not clock)
    contexts = [BareContext(rows, Constant(0.08)) for rows in (1, 2)]
    one, two = (policy.start(context) for context in contexts)
    assert one.single and not two.single  # type: ignore[attr-defined]
    chosen = set()
    for index in range(400):
        gamma = one.gammas()[0]
        assert two.gammas() == [gamma, gamma]
        chosen.add(gamma)
        length = gamma if draws.random() < 0.8 else gamma // 2
        overlaps = draws.random(length) ** (0.2 if index // 100 % 2 else 2)
        accepted = int((draws.random(length) < overlaps).cumprod().sum())
        judged, seconds = overlaps[: accepted + 1].tolist(), float(1 + draws.random())
        row = RowOutcome(0, [0] * length, accepted, [0] * (accepted + 1), judged, gamma=gamma)
        for context, session in zip(contexts, (one, two), strict=True):
            for tokens in context.tokens:
                tokens.extend(row.emitted)
            rows = [row] * len(context.tokens)
            session.observe(Round(index, rows, {"verify": seconds, "draft": 0.1 * gamma}))
        line = np.array([0])
        acceptance = two.acceptance  # type: ignore[attr-defined]
        assert one.single.stands() == pytest.approx(acceptance.stands(line)[0], rel=1e-9)  # type: ignore[attr-defined]
    assert len(chosen) > 4


# --- what it chooses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpha", "c", "least"),
    [(0.7, 0.1, 0.975), (0.3, 0.1, 0.97), (0.9, 0.05, 0.97), (0.0, 0.3, 0.96), (1.0, 0.05, 0.97)],
)
def test_it_is_near_the_best_gamma(alpha: float, c: float, least: float) -> None:
    run = World(lambda i: alpha, Constant(c)).run(optimal(max_gamma=64), 400)
    assert value(run, alpha, Constant(c)) > least


TIMES = (0.1, 0.3)


def rates(process: Process, c: float, policy: Optimal) -> tuple[float, float]:
    """Of the policy and of the best fixed gamma, over synthetic texts."""
    stack = Stack(synthetic_traces(process, texts=60, places=1200, gamma_max=12, seed=3))
    fixed = [
        replay(Fixed(FixedConfig(g)), stack, Constant(c), together=True).rate for g in range(0, 13)
    ]
    return replay(policy, stack, Constant(c), together=True).rate, max(fixed)


@pytest.mark.parametrize("c", TIMES)
@pytest.mark.parametrize("alpha", [0.3, 0.7])
def test_on_stationary_texts_it_is_within_4_percent_of_the_best_fixed_gamma(
    alpha: float, c: float
) -> None:
    ours, best = rates(Iid(alpha), c, optimal(max_gamma=12))
    assert ours > 0.96 * best


@pytest.mark.parametrize("c", TIMES)
@pytest.mark.parametrize("lengths", [(500, 130), (400, 400)])
def test_on_two_state_texts_it_is_4_percent_above_the_best_fixed_gamma(
    lengths: tuple[int, int], c: float
) -> None:
    ours, best = rates(TwoState((0.9, 0.3), lengths), c, optimal(max_gamma=12))
    assert ours > 1.04 * best


def test_a_step_that_gets_dear_with_width_shortens_drafts() -> None:
    flat = World(lambda i: 0.8, Linear(0, 0.02)).run(optimal(), 300)
    steep = World(lambda i: 0.8, Linear(0.3, 0.02)).run(optimal(), 300)
    assert np.mean(flat.gammas) > 8 > 4 > np.mean(steep.gammas)


def test_of_drafts_that_are_often_missing_only_the_real_ones_count() -> None:
    world = World(lambda i: 0.8, Linear(0.1, 0.0), given=0.1)
    run = world.run(optimal(), 300)
    assert np.mean(run.gammas[50:]) > 3  # rare, but good when they come


def test_probing_is_bounded_and_finds_a_text_that_has_become_easy() -> None:
    never = World(lambda i: 0.0, Constant(0.3)).run(optimal(probe=0.02), 600)
    late = never.gammas[50:]
    assert (
        0.02 < sum(g > 0 for g in late) / len(late) < 0.09
    )  # loses .3 of a step each: 2 % of time
    none = World(lambda i: 0.0, Constant(0.3)).run(optimal(probe=0.0), 600)
    assert sum(none.gammas[50:]) == 0
    turn = World(lambda i: 0.0 if i < 200 else 0.9, Constant(0.3)).run(optimal(probe=0.02), 600)
    assert value(turn, 0.9, Constant(0.3), begin=400) > 0.95


# --- rows --------------------------------------------------------------------------------------


def outcome(row: int, gamma: int, rate: float) -> RowOutcome:
    accepted = gamma if rate > 0.5 else 0
    return RowOutcome(
        row,
        [0] * gamma,
        accepted,
        [0] * (accepted + 1),
        [rate] * min(accepted + 1, gamma),
        gamma=gamma,
    )


def test_rows_learn_apart_or_together() -> None:
    for scope, apart in (("request", True), (BATCH, False)):
        context = BareContext(2, Constant(0.1))
        session = optimal(scope=scope).start(context)
        for index in range(30):
            gammas = session.gammas()
            rows = [outcome(0, gammas[0], 0.95), outcome(1, gammas[1], 0.05)]
            session.observe(Round(index, rows))
        assert (gammas[0] > 5 and gammas[1] <= 1) == apart
        assert (gammas[0] == gammas[1]) == (not apart)
        context.select([1])
        session.select([1])
        assert abs(session.gammas()[0] - gammas[1]) <= 1


def test_a_row_is_as_it_is_alone() -> None:
    """Frozen and with a batch size of its own; the kit says the same in the real loop."""

    def trace(rows: int) -> list[int]:
        session = optimal(batch=4).start(BareContext(rows, Linear(0.1, 0.1)))
        chosen = []
        for index in range(40):
            gammas = session.gammas()
            chosen.append(gammas[0])
            marks = [0.9 if row == 0 and index % 3 else 0.1 for row in range(rows)]
            session.observe(Round(index, [outcome(r, g, marks[r]) for r, g in enumerate(gammas)]))
        return chosen

    assert trace(1) == trace(5)


@pytest.mark.parametrize(
    ("values", "local", "repeatable"),
    [
        ({}, False, False),
        ({"frozen": True}, False, True),
        ({"frozen": True, "batch": 1}, True, True),
        ({"frozen": True, "batch": 1, "scope": BATCH}, False, True),
        ({"batch": 1}, False, False),
    ],
)
def test_what_it_promises_depends_on_its_config(
    values: dict[str, object], local: bool, repeatable: bool
) -> None:
    spec, config = registry().get("policy", "optimal"), OptimalConfig(**values)  # type: ignore[arg-type]
    assert isinstance(spec, PolicySpec)
    assert spec.ability("row_local", config) is local
    assert spec.ability("repeatable", config) is repeatable


def test_it_runs_in_the_real_loop_and_keeps_the_text() -> None:
    target = target_of("llama")
    texts = [
        make_engine(target, gamma=gamma, max_new_tokens=12).generate([5, 6, 7], seed=3).token_ids
        for gamma in (0, Optimal(OptimalConfig(frozen=True)))
    ]
    assert texts[0] == texts[1]


# --- cost --------------------------------------------------------------------------------------


def test_a_thousand_rows_cost_microseconds_each() -> None:
    rows = 1000
    session = optimal().start(BareContext(rows, Constant(0.1)))
    spent = []
    for index in range(12):
        begin = time.perf_counter()
        gammas = session.gammas()
        middle = time.perf_counter()
        told = Round(index, [outcome(r, g, 0.9 if r % 2 else 0.2) for r, g in enumerate(gammas)])
        after = time.perf_counter()
        session.observe(told)
        spent.append(middle - begin + time.perf_counter() - after)
    assert min(spent) / rows < 60e-6  # about 10 on an idle core


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"max_gamma": 0},
            "policy.max_gamma=0 is not possible; it must be a whole number from 1 to 64.",
        ),
        ({"memory": 1.0}, "policy.memory=1.0 is not possible"),
        ({"prior": 0.0}, "policy.prior=0.0 is not possible"),
        ({"alpha": 1.1}, "policy.alpha=1.1 is not possible"),
        ({"probe": 0.9}, "policy.probe=0.9 is not possible"),
        ({"scope": "rows"}, "policy.scope='rows' is not possible"),
        ({"batch": 0}, "policy.batch=0 is not possible"),
    ],
)
def test_impossible_values_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OptimalConfig(**values)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)


def test_its_keys_are_checked_in_a_config() -> None:
    with pytest.raises(ConfigError, match="policy.memory=1.0 is not possible"):
        load("target=table", "drafter=none", "policy=optimal", "policy.memory=1.0")
