"""Medusa's heads: what they guess, that they are called once a round, and that the law stays the target's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import make_engine, random_prompts
from test_kit_drafters import own, shown
from test_law_engine import FLOOR, p_values
from torch import Tensor

from foredraft.drafters.builtin_trained import MedusaConfig
from foredraft.drafters.medusa import Medusa, MedusaSession
from foredraft.drafters.medusa_net import MedusaHeads
from foredraft.drafters.medusa_training import MedusaShape, MedusaTrainee
from foredraft.framework.errors import ConfigError
from foredraft.framework.growth import Growth
from foredraft.framework.heads import LMHead
from foredraft.framework.requests import Answer
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.testing import check_drafter
from foredraft.framework.testing.tiny import tiny_model
from foredraft.framework.trained import Card, fingerprint, write_trained
from foredraft.framework.training.trainee import Texts

HEADS = 3


def target(vocab: int = 6, kind: str = "llama") -> CausalLM:
    return CausalLM(tiny_model(kind, vocab=vocab, layers=2, seed=0, dtype=torch.float32))


def heads(of: CausalLM, scale: float = 0.5, seed: int = 4) -> MedusaHeads:
    """Heads that say something of their own."""
    net = MedusaHeads(HEADS, LMHead.of(of, "medusa").weight.shape[1])
    noise = torch.Generator().manual_seed(seed)
    for parameter in net.parameters():
        parameter.data = scale * torch.randn(parameter.shape, generator=noise)
    return net.to(of.model.dtype)


def medusa(of: CausalLM, growth: Growth | None = None, ids: Tensor | None = None) -> Medusa:
    return Medusa(heads(of), LMHead.of(of, "medusa").reduced(ids), of.depth, growth)


def saved(folder: Path, of: CausalLM, ids: Tensor | None = None) -> str:
    shape = {"heads": HEADS, "vocabulary": None if ids is None else len(ids)}
    tensors = {name: value.detach() for name, value in heads(of).state_dict().items()}
    card = Card("medusa", shape, fingerprint(of))
    write_trained(folder, tensors if ids is None else {**tensors, "ids": ids}, card)
    return str(folder)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, id="chain"),
        pytest.param({"widths": [2, 2]}, id="tree", marks=pytest.mark.slow),
    ],
)
def test_it_conforms(values: dict[str, Any], tmp_path: Path) -> None:
    path = saved(tmp_path, own())  # type: ignore[arg-type]
    shown(check_drafter("medusa", {"path": path, **values}, target=own()), "causal_stopping")


@pytest.mark.parametrize("draws", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_draws_of_the_engine_follow_the_joint_law(draws: int) -> None:
    of = target()
    assert min(p_values(of, medusa(of), 2, draws, batch=2000)) > FLOOR


def test_draws_follow_the_joint_law_with_a_reduced_vocabulary() -> None:
    """Ids 1 and 4 are never drafted, and come at their rate all the same."""
    of = target()
    assert min(p_values(of, medusa(of, ids=torch.tensor([0, 2, 3, 5])), 2, 20_000, 2000)) > FLOOR


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2"])
@pytest.mark.parametrize(
    "growth", [None, Growth((2, 2, 1)), Growth(nodes=8)], ids=["chain", "widths", "nodes"]
)
def test_greedy_ids_are_plain_decodings_in_a_ragged_batch(kind: str, growth: Growth | None) -> None:
    of = CausalLM(tiny_model(kind, layers=2, seed=0, dtype=torch.float64))
    prompts = random_prompts((1, 4, 9, 2), vocab=of.vocab_size)
    rule = "greedy" if growth else "token"  # it judges every kind
    found = []
    for drafter in (medusa(of, growth), None):
        engine = make_engine(of, drafter, HEADS, rule)
        rows = [Answer(engine.request(p, i, max_new_tokens=12 + i)) for i, p in enumerate(prompts)]
        for _ in engine.run(rows):
            pass
        found.append([row.token_ids for row in rows])
    assert found[0] == found[1]


def test_the_heads_are_called_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    of = target(32)
    drafter, calls = medusa(of), list[tuple[int, ...]]()
    real = MedusaHeads.forward

    def counted(net: MedusaHeads, hidden: Tensor, count: int) -> Tensor:
        calls.append((*hidden.shape[:-1], count))
        return real(net, hidden, count)

    monkeypatch.setattr(MedusaHeads, "forward", counted)
    engine = make_engine(of, drafter, HEADS)
    answer = Answer(engine.request([1, 2, 3], max_new_tokens=20))
    asked = [outcome.rows[0].gamma for outcome in engine.run([answer])]
    assert calls == [(1, gamma) for gamma in asked if gamma]


def test_no_more_is_drafted_than_there_are_heads() -> None:
    of = target(32)
    engine = make_engine(of, medusa(of), 8)
    answer = Answer(engine.request([1, 2], max_new_tokens=16))
    assert max(len(outcome.rows[0].drafted) for outcome in engine.run([answer])) == HEADS


def test_a_session_guesses_what_was_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Head k behind the newest token but one, for drafts and in training alike."""
    of = target(32)
    drafter, seen = medusa(of), list[tuple[list[int], Tensor]]()
    real = MedusaSession._guessed

    def noted(session: MedusaSession, count: int) -> Tensor:
        guess = real(session, count)
        seen.extend(
            (list(ids), guess[row].clone()) for row, ids in enumerate(session.context.tokens)
        )
        return guess

    monkeypatch.setattr(MedusaSession, "_guessed", noted)
    engine = make_engine(of, drafter, HEADS)
    rows = [
        Answer(engine.request(p, i, max_new_tokens=9)) for i, p in enumerate([[1, 2, 3], [4, 5]])
    ]
    for _ in engine.run(rows):
        pass
    trainee = MedusaTrainee(MedusaConfig(), of, MedusaShape(HEADS))
    trainee.module.load_state_dict(drafter.net.state_dict())
    for row in rows:
        ids = torch.tensor([[*row.request.prompt, *row.token_ids]])
        with torch.inference_mode():
            hidden = of.model(input_ids=ids, output_hidden_states=True).hidden_states[of.depth]
            texts = Texts(ids, torch.ones_like(ids, dtype=torch.bool), {of.depth: hidden})
            guesses = trainee.guesses(texts)
        for known, guess in seen:
            if known == ids[0, : len(known)].tolist():
                place = len(known) - 2
                for k in range(len(guess)):
                    assert place + guesses[k].ahead == len(known) + k  # the id that draft k is of
                    with torch.inference_mode():
                        due = trainee.logits(guesses[k].states[0, place])
                    torch.testing.assert_close(guess[k], due, rtol=1e-4, atol=1e-4)


def test_new_heads_guess_the_next_token() -> None:
    of = target(32)
    trainee = MedusaTrainee(MedusaConfig(), of, MedusaShape(2))
    hidden = torch.randn(1, 5, LMHead.of(of, "medusa").weight.shape[1])
    ids = torch.zeros(1, 5, dtype=torch.int64)
    for guess in trainee.guesses(Texts(ids, ids > 0, {of.depth: hidden})):
        torch.testing.assert_close(guess.states, hidden)


def test_only_the_heads_learn() -> None:
    of = target(32)
    trainee = MedusaTrainee(MedusaConfig(), of, MedusaShape(), torch.tensor([1, 5, 7]))
    hidden = torch.randn(2, 4, LMHead.of(of, "medusa").weight.shape[1])
    ids = torch.zeros(2, 4, dtype=torch.int64)
    guesses = trainee.guesses(Texts(ids, ids > 0, {of.depth: hidden}))
    logits = trainee.logits(guesses[1].states.flatten(0, 1))
    assert logits.shape == (8, 3)
    logits.square().sum().backward()
    weight = trainee.module.get_parameter("weight").grad
    assert weight is not None and float(weight[1].abs().sum()) > 0
    assert all(parameter.grad is None for parameter in of.model.parameters())


def test_without_weights_it_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"drafter.path=null is not possible with drafter=medusa"):
        Medusa.from_config(MedusaConfig(), target())
