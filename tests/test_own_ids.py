"""A drafting model with a reduced vocabulary: it reads and drafts in ids of its own, and its law is over the
target's."""

from __future__ import annotations

import pytest
import torch
from helpers import make_engine, random_prompts
from test_law_engine import FLOOR, p_values

from foredraft.drafters.causal_lm import CausalLMDrafter
from foredraft.framework.growth import Growth
from foredraft.framework.requests import Answer
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.testing.tiny import tiny_model
from foredraft.framework.vocabulary import OwnIds, widen

IDS = torch.tensor([0, 2, 3, 5])


def pair(
    vocab: int = 6, ids: torch.Tensor = IDS, growth: Growth | None = None
) -> tuple[CausalLM, CausalLMDrafter]:
    target = CausalLM(tiny_model("llama", vocab=vocab, layers=2, seed=0, dtype=torch.float32))
    model = tiny_model("llama", vocab=len(ids) + 1, layers=1, seed=1, dtype=torch.float32)
    return target, CausalLMDrafter(model, target, None, growth, ids)


def test_ids_are_read_and_written_in_the_targets() -> None:
    own = OwnIds(5, IDS, 6)
    assert own.known([0, 1, 2, 3, 4, 5]) == [0, 4, 1, 2, 4, 3]
    wild = torch.tensor([[0, 1, 5], [-3, 99, 2]])
    assert own.fed(wild).tolist() == [[0, 4, 3], [0, 3, 1]]
    logits = own.logits(torch.tensor([[10.0, 20.0, 30.0, 40.0, 99.0]]))  # the last one is nobody's
    assert logits.tolist() == [[10.0, float("-inf"), 20.0, 30.0, float("-inf"), 40.0]]


def test_without_a_map_ids_are_the_targets() -> None:
    own = OwnIds(4, None, 6)
    assert own.known([0, 3, 5]) == [0, 3, 3]
    assert own.fed(torch.tensor([-1, 2, 9])).tolist() == [0, 2, 3]
    assert own.logits(torch.ones(1, 4)).tolist() == [[1.0] * 4 + [float("-inf")] * 2]
    assert widen(torch.ones(2, 3), None, 3).tolist() == [[1.0] * 3] * 2


def test_draws_follow_the_joint_law() -> None:
    """Ids 1 and 4 are never drafted, and come at their rate all the same."""
    assert min(p_values(*pair(), 2, 20_000, batch=2000)) > FLOOR


@pytest.mark.parametrize("growth", [None, Growth((2, 2))], ids=["chain", "tree"])
def test_greedy_ids_are_plain_decodings(growth: Growth | None) -> None:
    target, drafter = pair(32, torch.arange(0, 32, 3), growth)
    prompts = random_prompts((3, 7, 1), vocab=32)
    found = []
    for one in (drafter, None):
        engine = make_engine(target, one, 3, "greedy")
        rows = [Answer(engine.request(p, i, max_new_tokens=14)) for i, p in enumerate(prompts)]
        for _ in engine.run(rows):
            pass
        found.append([row.token_ids for row in rows])
    assert found[0] == found[1]


def test_only_its_ids_are_drafted() -> None:
    ids = torch.arange(1, 32, 3)
    target, drafter = pair(32, ids)
    engine = make_engine(target, drafter, 3)
    answer = Answer(engine.request([1, 2, 3], max_new_tokens=20))
    drafted = {token for outcome in engine.run([answer]) for token in outcome.rows[0].drafted}
    assert drafted and drafted <= set(ids.tolist())
