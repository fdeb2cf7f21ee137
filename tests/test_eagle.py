"""EAGLE's layer: that it drafts what it was trained to, that the law stays the target's, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import SAMPLED, make_engine, random_prompts
from test_kit_drafters import own, shown
from test_law_engine import FLOOR, p_values
from torch import Tensor

from foredraft.drafters.builtin_trained import EagleConfig
from foredraft.drafters.eagle import Eagle, EagleSession, embedding_of
from foredraft.drafters.eagle_net import EagleNet
from foredraft.drafters.eagle_training import EagleShape, EagleTrainee
from foredraft.framework.errors import ConfigError, InputError
from foredraft.framework.growth import Growth
from foredraft.framework.requests import Answer
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.testing import check_drafter
from foredraft.framework.testing.tiny import tiny_model
from foredraft.framework.trained import Card, fingerprint
from foredraft.framework.training.trainee import Texts
from foredraft.framework.tree_bases import Frontier

STEPS = 3


def target(vocab: int = 6, kind: str = "llama", **options: Any) -> CausalLM:
    values = {"layers": 2, "seed": 0, "dtype": torch.float32, **options}
    return CausalLM(tiny_model(kind, vocab=vocab, **values))


def trainee(
    of: CausalLM, ids: Tensor | None = None, scale: float = 0.3, **shape: Any
) -> EagleTrainee:
    """With a network that says something of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = EagleTrainee(EagleConfig(), of, EagleShape(**{"steps": STEPS, **shape}), ids)
    noise = torch.Generator().manual_seed(4)
    for parameter in made.module.parameters():
        parameter.data += scale * torch.randn(parameter.shape, generator=noise)
    return made


def eagle(
    of: CausalLM, growth: Growth | None = None, ids: Tensor | None = None, **shape: Any
) -> Eagle:
    made = trainee(of, ids, **shape)
    net = made.module.put(made.head.weight)
    return Eagle(net, embedding_of(of), made.head, made.layers, growth)


def saved(folder: Path, of: Any, ids: Tensor | None = None, **shape: Any) -> str:
    made = trainee(of, ids, **shape)
    made.write(folder, Card("eagle", made.described(), fingerprint(of)))
    return str(folder)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, id="chain"),
        pytest.param({"widths": [2, 2]}, id="tree", marks=pytest.mark.slow),
    ],
)
def test_it_conforms(values: dict[str, Any], tmp_path: Path) -> None:
    path = saved(tmp_path, own())
    shown(check_drafter("eagle", {"path": path, **values}, target=own()), "causal_stopping")


@pytest.mark.parametrize("draws", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_draws_of_the_engine_follow_the_joint_law(draws: int) -> None:
    of = target()
    assert min(p_values(of, eagle(of), 2, draws, batch=2000)) > FLOOR


def test_draws_follow_the_joint_law_with_a_reduced_vocabulary() -> None:
    """Ids 1 and 4 are never drafted, and come at their rate all the same."""
    of = target()
    assert min(p_values(of, eagle(of, ids=torch.tensor([0, 2, 3, 5])), 2, 20_000, 2000)) > FLOOR


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma2"])
@pytest.mark.parametrize(
    "growth", [None, Growth((2, 2, 1)), Growth(nodes=8)], ids=["chain", "widths", "nodes"]
)
def test_greedy_ids_are_plain_decodings_in_a_ragged_batch(kind: str, growth: Growth | None) -> None:
    of = target(64, kind, dtype=torch.float64)
    prompts = random_prompts((1, 4, 9, 2), vocab=of.vocab_size)
    rule = "greedy" if growth else "token"  # it judges every kind
    found = []
    for drafter in (eagle(of, growth), None):
        engine = make_engine(of, drafter, 4, rule)
        rows = [Answer(engine.request(p, i, max_new_tokens=12 + i)) for i, p in enumerate(prompts)]
        for _ in engine.run(rows):
            pass
        found.append([row.token_ids for row in rows])
    assert found[0] == found[1]


# --- what a session guesses is what was trained ---------------------------------------------------


class Noted:
    """What sessions guess: rows' committed ids, the drafted ids on the way, and logits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[list[int], list[int], Tensor]] = []
        real = EagleSession.next_logits_at

        def noted(session: EagleSession, frontier: Frontier) -> Tensor:
            found = real(session, frontier)
            for row, ids in enumerate(session.context.tokens):
                for place in range(frontier.counts[row]):
                    path = frontier.on_path[row, place].nonzero().flatten()
                    drafted = frontier.tokens[row][path].tolist()
                    self.seen.append((list(ids), drafted, found[row, place].clone()))
            return found

        monkeypatch.setattr(EagleSession, "next_logits_at", noted)


def due(of: CausalLM, made: EagleTrainee, ids: list[int], drafted: list[int]) -> Tensor:
    """What the training makes of a text whose next ids are the drafted ones: its guess behind them."""
    text = torch.tensor([[*ids, *drafted]])
    with torch.inference_mode():
        hidden = of.model(input_ids=text, output_hidden_states=True).hidden_states
        texts = Texts(text, text > -1, {layer: hidden[layer] for layer in made.layers})
        guess = made.guesses(texts)[len(drafted)]
        place = len(ids) - 2
        assert place + guess.ahead == len(ids) + len(drafted) and guess.position == len(drafted)
        return made.logits(guess.states[0, place])


@pytest.mark.parametrize("layers", [[], [0, 1, 2]], ids=["last layer", "three layers"])
@pytest.mark.parametrize(
    "growth", [None, Growth((2, 2, 1)), Growth(nodes=8)], ids=["chain", "widths", "nodes"]
)
def test_a_session_guesses_what_was_trained(
    growth: Growth | None, layers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Draft k behind the newest token, in batches of rows with other lengths and other fates."""
    of = target(32, sharp=0.6)
    drafter, made = eagle(of, growth, layers_read=layers), trainee(of, layers_read=layers)
    noted = Noted(monkeypatch)
    engine = make_engine(of, drafter, STEPS, "greedy" if growth else "token")
    prompts = random_prompts((3, 1, 7), vocab=32)
    rows = [Answer(engine.request(p, i, max_new_tokens=7 + i)) for i, p in enumerate(prompts)]
    for _ in engine.run(rows):
        pass
    assert {len(drafted) for _, drafted, _ in noted.seen} == set(range(STEPS))
    for ids, drafted, found in noted.seen:
        torch.testing.assert_close(found, due(of, made, ids, drafted), rtol=1e-3, atol=1e-3)


def test_the_prompt_is_taken_in_by_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foredraft.drafters.eagle.PREFILL_CHUNK", 4)
    test_a_session_guesses_what_was_trained(None, [], monkeypatch)


def test_the_layer_is_called_once_per_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call over the new places, of which there are as many as were emitted, and one per further token."""
    of = target(6)
    drafter, calls = eagle(of), list[int]()
    real = EagleNet.forward

    def counted(net: EagleNet, embedded: Tensor, *rest: Any) -> Tensor:
        calls.append(embedded.shape[1])
        return real(net, embedded, *rest)

    monkeypatch.setattr(EagleNet, "forward", counted)
    engine = make_engine(of, drafter, STEPS)
    answer = Answer(engine.request([1, 2, 3], max_new_tokens=40, sampling=SAMPLED))
    due, new = [1], 1  # the prompt's first place; the second comes in the first round
    for outcome in engine.run([answer]):
        row = outcome.rows[0]
        due += [new] + [1] * (row.gamma - 1) if row.gamma else []
        new = len(row.emitted) + (0 if row.gamma else new)
    assert calls == due and max(calls) > 1


# --- training ------------------------------------------------------------------------------------


def texts_of(of: CausalLM, made: EagleTrainee, rows: int = 2, width: int = 8) -> Texts:
    ids = torch.randint(of.vocab_size, (rows, width), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        hidden = of.model(input_ids=ids, output_hidden_states=True).hidden_states
    layers = {*made.layers, of.depth}
    return Texts(ids, ids > -1, {layer: hidden[layer].clone() for layer in layers})


@pytest.mark.parametrize("layers", [[], [1, 2]])
def test_a_new_layer_guesses_the_next_token(layers: list[int]) -> None:
    of = target(32)
    made = EagleTrainee(EagleConfig(), of, EagleShape(layers_read=layers))
    texts = texts_of(of, made)
    for guess in made.guesses(texts):
        torch.testing.assert_close(guess.states, texts.hidden[of.depth])


def test_only_the_layer_learns() -> None:
    of = target(32)
    made = trainee(of, torch.tensor([1, 5, 7]))
    logits = made.logits(made.guesses(texts_of(of, made))[2].states.flatten(0, 1))
    assert logits.shape == (16, 3)
    logits.square().sum().backward()
    assert all(
        p.grad is not None and float(p.grad.abs().sum()) > 0 for p in made.module.parameters()
    )
    assert all(parameter.grad is None for parameter in of.model.parameters())


def test_the_loss_of_features_is_their_distance() -> None:
    of = target(32)
    made = trainee(of, steps=2, features=0.5)
    texts = texts_of(of, made)
    true, states = texts.hidden[of.depth], made.unrolled(texts)
    loss = torch.nn.functional.smooth_l1_loss
    means = [loss(states[k][:, : -1 - k], true[:, 1 + k :]) for k in range(2)]
    found = made.extra(texts)
    assert found is not None
    torch.testing.assert_close(found, 0.5 * torch.stack(means).mean())
    assert trainee(of, features=0.0).extra(texts) is None


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"steps": 0}, "train.shape.steps=0"),
        ({"heads": 3}, "train.shape.heads=3 is not possible with hidden states of size 32"),
        ({"layers_read": [1]}, "with the target's last, 2, among them"),
        ({"layers_read": [0, 3]}, "with the target's last, 2, among them"),
        ({"features": -1.0}, "train.shape.features=-1.0"),
    ],
)
def test_impossible_shapes_are_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        EagleTrainee(EagleConfig(), target(), EagleShape(**values))


def test_without_weights_it_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"drafter.path=null is not possible with drafter=eagle"):
        Eagle.from_config(EagleConfig(), target())


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("layers_read", [9], "says layers_read"),
        ("layers_read", 3, "says layers_read"),
        ("inner", -1, "says inner=-1"),
    ],
)
def test_a_card_with_impossible_sizes_is_refused(
    key: str, value: Any, says: str, tmp_path: Path
) -> None:
    of = target()
    made = trainee(of)
    made.write(tmp_path, Card("eagle", {**made.described(), key: value}, fingerprint(of)))
    with pytest.raises((ConfigError, InputError), match=says):
        Eagle.from_config(EagleConfig(path=str(tmp_path)), of)
