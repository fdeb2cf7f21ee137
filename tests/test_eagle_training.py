"""EAGLE's layer learns: more is accepted of what it drafts, at every position, than of a new one's drafts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
import torch
from cli_helpers import Cli, make_cli
from helpers import SAMPLED, make_engine
from test_train_command import place, words_for
from torch import Tensor

from foredraft.drafters.builtin_trained import EagleConfig
from foredraft.drafters.eagle import Eagle, embedding_of
from foredraft.drafters.eagle_training import EagleShape, EagleTrainee
from foredraft.framework.heads import LMHead
from foredraft.framework.requests import Answer
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.testing.tiny import tiny_model
from foredraft.framework.training.distilling import Distillation
from foredraft.framework.training.trainee import Texts

__all__ = ["place"]  # a fixture
VOCAB, WIDTH, STEPS = 12, 32, 3


@cache
def target() -> CausalLM:
    """Sharp: its tokens are far from equally likely, and depend on more than the one before."""
    return CausalLM(tiny_model("llama", vocab=VOCAB, layers=1, sharp=0.5, dtype=torch.float32))


@torch.no_grad()
def texts(rows: int, seed: int) -> Texts:
    """Sampled by the target itself, behind two ids of any kind."""
    noise, model = torch.Generator().manual_seed(seed), target().model
    ids = torch.randint(VOCAB, (rows, 2), generator=noise)
    while ids.shape[1] < WIDTH:
        law = model(input_ids=ids).logits[:, -1].softmax(-1)
        ids = torch.cat([ids, torch.multinomial(law, 1, generator=noise)], 1)
    hidden = model(input_ids=ids, output_hidden_states=True).hidden_states
    return Texts(ids, torch.arange(WIDTH).expand(rows, -1) > 1, dict(enumerate(hidden)))


class OneBatch:
    """Texts that are there already, as ``Features`` gives them."""

    def __init__(self, found: Texts) -> None:
        self.found, self.layers = found, tuple(found.hidden)

    def text(self, index: int) -> tuple[Tensor, int, dict[int, Tensor]]:
        return self.found.ids[index], 2, {k: v[index] for k, v in self.found.hidden.items()}


def problem(made: EagleTrainee, found: Texts, rows: Sequence[int]) -> Distillation:
    head = LMHead.of(target(), "eagle")
    return Distillation(
        made, head, OneBatch(found), rows, rows, {}, {"kl": 1.0, "tv": 1.0}, size=32  # type: ignore[arg-type]
    )  # fmt: skip


@cache
def trained(steps: int) -> tuple[EagleTrainee, list[float]]:
    """A layer after so many steps, and alpha by position on texts that it has not seen."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = EagleTrainee(EagleConfig(), target(), EagleShape(steps=STEPS))
    seen, unseen = texts(128, seed=0), texts(48, seed=1)
    fitted = problem(made, seen, range(128))
    optimizer = torch.optim.AdamW(made.module.parameters(), lr=5e-3)
    for step in range(steps):
        optimizer.zero_grad()
        fitted.loss(fitted.batch(step)).backward()
        optimizer.step()
    with torch.inference_mode():
        sums = problem(made, unseen, range(48)).alphas(range(48))
    return made, [hits / count for hits, count in sums.values()]


@torch.no_grad()
def by_the_last_token() -> float:
    """Alpha of the best law that knows the newest token alone, on the texts it is taken from."""
    found = texts(48, seed=1)
    law = target().model.lm_head(found.hidden[target().depth]).softmax(-1).flatten(0, 1)
    one_hot = torch.nn.functional.one_hot(found.ids, VOCAB).float().flatten(0, 1)
    means = (one_hot.T @ law) / one_hot.sum(0).unsqueeze(1)
    return float(torch.minimum(law, one_hot @ means).sum(-1).mean())


def test_alpha_rises_at_every_position() -> None:
    before, after = trained(0)[1], trained(70)[1]
    assert len(before) == len(after) == STEPS
    assert all(b + 0.1 < a for b, a in zip(before, after, strict=True)), (before, after)
    assert after[0] > by_the_last_token() + 0.02


def test_more_is_accepted() -> None:
    accepted = []
    for steps in (0, 70):
        made = trained(steps)[0]
        drafter = Eagle(made.module, embedding_of(target()), made.head, made.layers, None)
        engine = make_engine(target(), drafter, STEPS, batch_size=32)
        rows = [
            Answer(engine.request([1, n % VOCAB], n, max_new_tokens=24, sampling=SAMPLED))
            for n in range(32)
        ]
        rounds = [row for outcome in engine.run(rows) for row in outcome.rows]
        accepted.append(sum(row.accepted for row in rounds) / len(rounds))
    assert accepted[1] > 1.3 * accepted[0], accepted


# --- the whole command ---------------------------------------------------------------------------


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return make_cli(capsys)


@pytest.mark.parametrize(
    "more",
    [
        ("train.vocabulary=40", "train.shape.layers_read=[1,2]", "train.shape.inner=16"),
        ("train.width=4",),
    ],
    ids=["shaped", "short texts"],
)
def test_the_command_trains_what_drafts(cli: Cli, place: Path, more: tuple[str, ...]) -> None:
    words = [word for word in words_for(place, "out=o", *more) if "heads=2" not in word]
    done = cli(*["drafter=eagle" if word == "drafter=medusa" else word for word in words])
    assert done.code == 0 and "drafter=eagle drafter.path=o" in done.err, done.err
    card = json.loads(Path("o/card.json").read_text())
    assert card["shape"]["layers_read"] == ([1, 2] if "train.vocabulary=40" in more else [2])
    assert len(card["held_out"]["all"]) == card["shape"]["steps"] == 4
    base = ["generate", "target=causal_lm", f"target.model={place / 'model'}", "prompt=add 3",
            "max_new_tokens=24", "output=json"]  # fmt: skip
    plain = cli(*base, "drafter=none").objects[0]
    for tree in ((), ("drafter.nodes=6", "verifier=recursive")):
        drafted = cli(*base, "drafter=eagle", "drafter.path=o", *tree).objects[0]
        assert drafted["token_ids"] == plain["token_ids"]
        assert drafted["metrics"]["drafted"] > 0
