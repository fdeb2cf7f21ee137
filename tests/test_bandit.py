"""``bandit``: arms are tried, the best one is played, over gammas and over drafters."""

from __future__ import annotations

import numpy as np
import pytest
from policy_worlds import Linear, World, value

from foredraft.framework import load
from foredraft.framework.errors import ConfigError
from foredraft.framework.policies.bandit import Bandit
from foredraft.framework.policies.builtin_times import BanditConfig
from foredraft.framework.times.steps import Constant

ALGORITHMS = ("ucb", "thompson")


def bandit(**values: object) -> Bandit:
    return Bandit(BanditConfig(**values))  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("frozen", [False, True])
def test_every_arm_is_tried_and_the_best_is_played(algorithm: str, frozen: bool) -> None:
    policy = bandit(algorithm=algorithm, frozen=frozen)
    run = World(lambda i: 0.7, Constant(0.1), noise=0.05).run(policy, 600)
    assert run.gammas[:5] == [0, 1, 2, 4, 8]
    assert value(run, 0.7, Constant(0.1), begin=200) > 0.9
    assert run.share(4, 200) > run.share(0, 200)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_stops_drafting_where_that_does_not_pay(algorithm: str) -> None:
    run = World(lambda i: 0.05, Linear(0.1, 0.3), rows=4).run(bandit(algorithm=algorithm), 300)
    assert run.share(0, 100) > 0.85


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_it_follows_a_world_that_changes(algorithm: str) -> None:
    world = World(lambda i: 0.95 if i < 300 else 0.0, Constant(0.2))
    run = world.run(bandit(algorithm=algorithm, memory=64.0), 900)
    assert run.share(8, 150, 300) > 0.5
    assert run.share(0, 700) > 0.5


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_over_drafters_the_better_member_drafts(algorithm: str) -> None:
    policy = bandit(algorithm=algorithm, over="drafters", members=3, gamma=3)
    run = World(lambda i: 0.0, Constant(0.05), alphas=(0.2, 0.9, 0.5)).run(policy, 300)
    assert run.members[:3] == [0, 1, 2]
    assert run.members[100:].count(1) > 0.8 * 200
    assert set(run.gammas) == {3}


def test_gammas_leave_the_choice_of_drafter_alone() -> None:
    assert set(World(lambda i: 0.5).run(bandit(), 20).members) == {None}


def _global_state() -> list[int]:
    state: list[int] = np.random.get_state(legacy=False)["state"]["key"].tolist()
    return state


def test_thompson_draws_from_its_own_seed() -> None:
    def gammas(seed: int) -> list[int]:
        state = _global_state()
        run = World(lambda i: 0.6).run(bandit(algorithm="thompson", frozen=True, seed=seed), 80)
        assert _global_state() == state
        return run.gammas

    assert gammas(1) == gammas(1)
    assert gammas(1) != gammas(2)


def test_a_policy_starts_every_batch_alike() -> None:
    policy = bandit(algorithm="thompson", frozen=True)
    assert (
        World(lambda i: 0.6).run(policy, 60).gammas == World(lambda i: 0.6).run(policy, 60).gammas
    )


def test_without_a_clock_the_table_gives_the_seconds() -> None:
    run = World(lambda i: 0.0, Constant(0.5), clock=False).run(bandit(), 200)
    assert run.share(0, 60) > 0.7


def test_a_batch_may_shrink() -> None:
    run = World(lambda i: 0.7, Constant(0.1), rows=5).run(bandit(), 60, keep={10: [0, 3], 30: [1]})
    assert len(run.gammas) == 60
    assert run.tokens[40] < 12


def test_drafters_are_switched_on_one_loaded_target() -> None:
    engine = load(
        "target=table", "drafter=one_of",
        "drafter.drafters=[{name: ngram}, {name: prompt_lookup}]",
        "policy=bandit", "policy.over=drafters", "policy.members=2", "max_new_tokens=24",
        "sampling.temperature=0",
    )  # fmt: skip
    plain = load("target=table", "drafter=none", "max_new_tokens=24", "sampling.temperature=0")
    assert engine.generate([0, 1, 2]).token_ids == plain.generate([0, 1, 2]).token_ids


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"algorithm": "exp3"}, "policy.algorithm='exp3' is not possible"),
        ({"over": "verifiers"}, "policy.over='verifiers' is not possible"),
        ({"arms": [4]}, "policy.arms=[4] is not possible; it must list two gammas or more"),
        ({"arms": [4, 4]}, "policy.arms=[4, 4] is not possible"),
        ({"arms": [0, 65]}, "policy.arms=65 is not possible"),
        ({"members": 0}, "policy.members=0 is not possible"),
        ({"explore": -1.0}, "policy.explore=-1.0 is not possible"),
        ({"seed": -1}, "policy.seed=-1 is not possible"),
        ({"over": "drafters", "frozen": True}, "policy.frozen=true is not possible with"),
    ],
)
def test_impossible_values_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BanditConfig(**values)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)
    assert str(caught.value).count(".  ") == 0 and "\n" not in str(caught.value)
