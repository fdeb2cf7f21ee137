"""How long the drafts of a row are."""

from __future__ import annotations

import pytest
from foredraft.framework import Answer, ConfigError, RowOutcome, load

from foredraft_steady.policy import gamma_for, smoothed, verdicts

TABLE = ("target=table", "policy=steady")
# An n-gram drafter without counts: its law is uniform over the eight tokens at first.
FLAT = (*TABLE, "drafter=ngram", "drafter.order=1", "sampling.temperature=1")


def lengths(*overrides: str, prompt: tuple[int, ...] = (0,), tokens: int = 24) -> list[int]:
    """How many tokens each round drafts."""
    engine = load(*overrides)
    answer = Answer(engine.request(list(prompt), 0, max_new_tokens=tokens))
    return [len(round.rows[0].drafted) for round in engine.run([answer])]


@pytest.mark.parametrize(
    ("rate", "gamma"), [(0.0, 1), (0.3, 1), (0.5, 1), (0.64, 2), (0.8, 4), (0.95, 12), (1.0, 12)]
)
def test_the_last_token_is_still_worth_it(rate: float, gamma: int) -> None:
    assert gamma_for(rate, worth=0.4, longest=12) == gamma


def test_what_was_not_reached_does_not_count() -> None:
    row = RowOutcome(0, [1, 2, 3, 4, 5], 2, [1, 2, 9], overlaps=[0.9, 0.8, 0.1])
    assert verdicts(row) == [1, 1, 0]
    assert verdicts(RowOutcome(0, [1, 2], 2, [1, 2, 9], overlaps=[0.9, 0.8])) == [1, 1]
    assert verdicts(RowOutcome(0, [], 0, [9], overlaps=[])) == []


def test_the_rate_moves_towards_the_verdicts() -> None:
    assert smoothed(0.5, [1.0, 0.0], 0.5) == 0.375
    assert smoothed(0.5, [1.0] * 5, 0.0) == smoothed(0.5, [], 0.9) == 0.5


def test_drafts_grow_while_all_stands() -> None:
    # A greedy answer of a table soon repeats itself, and copying is right from then on.
    found = lengths(*TABLE, "drafter=prompt_lookup", "policy.longest=8", tokens=200)
    assert max(found[:3]) < 8 and set(found[-10:-3]) == {8}


def test_drafts_shrink_while_little_stands() -> None:
    found = lengths(*FLAT, "policy.sure=0.0", "policy.prior=0.95", "target.sharpness=9", tokens=60)
    assert found[0] == 12 and sum(found[10:20]) < 30


def test_an_unsure_drafter_is_stopped() -> None:
    assert max(lengths(*FLAT, "policy.sure=1.0")) == 0
    assert max(lengths(*FLAT, "policy.sure=0.0")) > 0


def test_a_row_does_not_depend_on_its_batch() -> None:
    engine = load(*TABLE, "drafter=ngram", "sampling.temperature=1")
    prompts = [[0, 1, 2], [3], [4, 4, 4, 4]]
    together = engine.generate_many(prompts, max_new_tokens=30)
    alone = load(*TABLE, "drafter=ngram", "sampling.temperature=1", "runtime.batch_size=1")
    apart = alone.generate_many(prompts, max_new_tokens=30)
    assert [a.token_ids for a in together] == [a.token_ids for a in apart]


@pytest.mark.parametrize(
    "value", ["longest=0", "worth=1.0", "prior=0.0", "smoothing=1.5", "sure=-0.1"]
)
def test_values_out_of_range_are_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=value):
        load(*TABLE, f"policy.{value}")
