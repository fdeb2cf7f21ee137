"""``policy=specdecpp``: what its head learns, where it stops, and which files it takes."""

from __future__ import annotations

import json
import math
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_helpers import Cli, make_cli, refused
from helpers import make_engine
from safetensors.torch import load_file, save_file
from torch import Tensor

from foredraft.drafters.builtin import NgramConfig
from foredraft.drafters.ngram import Ngram
from foredraft.framework.errors import ConfigError, InputError
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.policies.specdecpp import SpecDecPlus, SpecDecPlusSession
from foredraft.framework.policies.specdecpp_config import SpecDecPlusConfig
from foredraft.framework.policies.specdecpp_fit import (
    constant_loss,
    examples_of,
    train,
    weighted_loss,
)
from foredraft.framework.policies.specdecpp_head import FEATURES, FORMAT, Head, features
from foredraft.framework.records import DraftStep
from foredraft.framework.replaying.engine import replay
from foredraft.framework.targets.builtin import TableConfig
from foredraft.framework.targets.table import TableTarget
from foredraft.framework.traces import DenseTrace, write_traces

GAMMA = 6


def synthetic(count: int = 4000, seed: int = 0) -> tuple[DenseTrace, np.ndarray]:
    """A trace whose tokens stand with a chance that depends on confidence, entropy and position
    (in a way that no single one of them tells), and those chances."""
    noise = np.random.default_rng(seed)
    confidences = noise.uniform(0.05, 1, (count, GAMMA))
    entropies = noise.uniform(0, 3, (count, GAMMA))
    odds = 1 + 1.5 * np.log(confidences) - 0.8 * entropies + 2 * confidences
    chances = 1 / (1 + np.exp(-(odds - 0.5 * np.log1p(np.arange(GAMMA)))))
    accepts = noise.random((count, GAMMA)) < chances
    return _trace(accepts, confidences, entropies), chances


def _trace(
    accepts: Any, confidences: Any, entropies: Any, lengths: list[int] | None = None
) -> DenseTrace:
    """With a text behind it that is never drafted, so that every draft has something to meet."""
    accepts = np.pad(np.asarray(accepts, bool), ((0, GAMMA), (0, 0)))
    count, most = accepts.shape
    real = np.pad(np.stack([confidences, entropies]), ((0, 0), (0, GAMMA), (0, 0)))
    drafted = lengths or [most] * (count - GAMMA)
    return DenseTrace(
        accepts=accepts,
        overlaps=accepts,
        confidences=real[0],
        entropies=real[1],
        lengths=np.array([*drafted, *([0] * GAMMA)]),
        about={"target": "table", "drafter": "ngram"},
    )


def simple_head(**weights: float) -> Head:
    """A logistic regression with the given weights; the rest are 0."""
    zeros, ones = torch.zeros(5).double(), torch.ones(5).double()
    outer = torch.tensor([weights.get(name, 0.0) for name in FEATURES]).double()
    bias = torch.tensor([weights.get("bias", 0.0)]).double()
    return Head(zeros, ones, torch.zeros(0, 5).double(), torch.zeros(0).double(), outer, bias)


# --- training ----------------------------------------------------------------------------------


def test_only_reached_tokens_are_examples() -> None:
    accepts = [[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]]
    trace = _trace(accepts, np.full((4, 3), 0.5), np.ones((4, 3)), [3, 3, 3, 1])
    found = examples_of([trace])
    assert found.stood.tolist() == [1, 1, 0, 0, 1, 0, 1]
    positions = found.rows[:, FEATURES.index("log_position")].expm1()
    assert positions.tolist() == pytest.approx([0, 1, 2, 0, 0, 1, 0])
    before = found.rows[:, FEATURES.index("log_confidence_before")]
    half = math.log(0.5)
    assert before.tolist() == pytest.approx([0, half, half, 0, 0, half, 0])


def test_what_lies_past_the_end_of_a_text_is_no_example() -> None:
    half, ones = np.full((2, 2), 0.5, np.float32), np.ones((2, 2), np.float32)
    trace = DenseTrace(np.array([[1, 1], [1, 0]], bool), half, half, ones, np.array([2, 2]))
    assert examples_of([trace]).stood.tolist() == [1, 1, 1]


@pytest.mark.parametrize("hidden", [0, 8])
def test_training_recovers_the_chances(hidden: int) -> None:
    trace, chances = synthetic()
    head = train(examples_of([trace]), hidden, reject_weight=1)
    about = head.about
    assert about["held_out"] and about["log_loss"] < 0.9 * about["constant_log_loss"]
    fresh, chances = synthetic(2000, seed=1)
    found = head.log_accept(examples_of([fresh]).rows).exp().numpy()
    accepts = fresh.accepts[:2000]
    reached = np.cumprod(np.concatenate([np.ones((2000, 1)), accepts[:, :-1]], 1), 1).astype(bool)
    true = chances[reached]
    assert np.abs(found - true).mean() < 0.04
    stood = torch.from_numpy(accepts[reached]).double()
    best = float(weighted_loss(torch.from_numpy(true).logit(), stood, 1.0))
    own = float(weighted_loss(torch.from_numpy(found).logit(), stood, 1.0))
    assert own < best + 0.01 < constant_loss(stood, stood, 1.0) - 0.05


def test_a_hidden_layer_learns_what_a_line_cannot() -> None:
    noise = np.random.default_rng(0)
    entropies = noise.uniform(0, 3, (3000, 1))
    chances = np.where(np.abs(entropies - 1.5) < 0.75, 0.9, 0.1)
    trace = _trace(noise.random((3000, 1)) < chances, np.full((3000, 1), 0.5), entropies)
    line, curve = (train(examples_of([trace]), hidden, 1.0).about for hidden in (0, 8))
    assert line["log_loss"] > 0.97 * line["constant_log_loss"]
    assert curve["log_loss"] < 0.65 * curve["constant_log_loss"]


def test_rejections_that_count_more_make_it_err_towards_stopping() -> None:
    trace, _ = synthetic()
    examples = examples_of([trace])
    one, six = train(examples, 0, 1.0), train(examples, 0, 6.0)
    shift = (six.logits(examples.rows) - one.logits(examples.rows)).mean()
    assert float(shift) == pytest.approx(-math.log(6), abs=0.15)


def test_training_is_repeatable() -> None:
    examples = examples_of([synthetic(500)[0]])
    first, again, other = train(examples, 4), train(examples, 4), train(examples, 4, seed=1)
    assert all((first.tensors()[n] == again.tensors()[n]).all() for n in first.tensors())
    assert not (first.inner == other.inner).all()


@pytest.mark.parametrize(("value", "word"), [(True, "accepted"), (False, "rejected")])
def test_nothing_to_tell_apart_is_refused(value: bool, word: str) -> None:
    trace = _trace(np.full((9, 2), value), np.full((9, 2), 0.5), np.ones((9, 2)))
    with pytest.raises(InputError, match=f"every drafted token of the traces was {word}"):
        train(examples_of([trace]))
    trace = _trace(np.full((1, 2), value), [[0.5, 0.5]], [[1, 1]], [0])
    with pytest.raises(InputError, match="no trace has a drafted token"):
        examples_of([trace])


# --- stopping ----------------------------------------------------------------------------------


class Rows:
    """As much of a context as the policy looks at."""

    def __init__(self, rows: int) -> None:
        self.rows, self.device = rows, torch.device("cpu")


def _law(asked: list[int], law: Tensor) -> Tensor:
    asked.append(1)
    return law


def lengths(
    config: SpecDecPlusConfig, head: Head | None, probs: Any, laws: Any = None
) -> list[int]:
    """How many of these tokens each row drafts: ``probs [batch, width]``."""
    session = SpecDecPlusSession(Rows(len(probs)), config, head)  # type: ignore[arg-type]
    drawn = torch.tensor(probs, dtype=torch.float32)
    live, counts = torch.ones(len(probs), dtype=torch.bool), torch.zeros(len(probs))
    for position in range(min(drawn.shape[1], max(session.gammas()))):
        law = torch.ones(len(probs), 4) / 4 if laws is None else laws[position]
        asked: list[int] = []
        step = DraftStep(position, [], list(drawn.T[:position]), partial(_law, asked, law))
        answers = session.go_on(step)
        assert answers.dtype == torch.bool and answers.shape == live.shape
        assert asked == []  # the drafter's step would be lost if the answer is no
        live &= answers
        counts += live
        if not live.any():
            break
        assert step.law is law
    return [int(count) for count in counts]


def test_without_a_head_the_confidence_is_the_prediction() -> None:
    config = SpecDecPlusConfig(threshold=0.5, min_gamma=0, max_gamma=6)
    rows = [[0.9] * 6, [0.4] * 6, [1.0] * 6, [0.9, 0.5, 0.9, 1, 1, 1]]
    # .9^6 = .53, .9^7 = .48; .4 is below .5 after one; .9 * .5 = .45 after two.
    assert lengths(config, None, rows) == [6, 1, 6, 2]
    assert lengths(SpecDecPlusConfig(threshold=0.4, min_gamma=0, max_gamma=6), None, rows)[0] == 5


def test_it_stops_after_the_token_that_brings_the_chance_above_the_threshold() -> None:
    head = simple_head(bias=math.log(0.8 / 0.2))  # every token stands with .8
    for threshold, expected in ((0.1, 1), (0.3, 2), (0.5, 4), (0.7, 6)):
        config = SpecDecPlusConfig(threshold=threshold, min_gamma=0, max_gamma=20)
        assert lengths(config, head, [[0.5] * 20]) == [expected]
        assert 1 - 0.8**expected > threshold >= 1 - 0.8 ** (expected - 1)


def test_lengths_are_within_their_limits() -> None:
    head = simple_head(bias=-5)
    probs = [[0.5] * 20]
    assert lengths(SpecDecPlusConfig(min_gamma=3, max_gamma=9), head, probs) == [3]
    assert lengths(SpecDecPlusConfig(threshold=1, max_gamma=9), head, probs) == [9]
    assert lengths(SpecDecPlusConfig(threshold=0, min_gamma=0), head, probs) == [1]
    assert lengths(SpecDecPlusConfig(min_gamma=0, max_gamma=0), head, probs) == [0]


def test_each_prediction_is_of_its_own_token_and_law() -> None:
    """Sharp laws first, then an open one: only entropy tells where to stop."""
    head = simple_head(bias=4, entropy=-10)
    sharp, flat = torch.tensor([[1.0, 0, 0, 0]]), torch.full((1, 4), 0.25)
    config = SpecDecPlusConfig(threshold=0.5, min_gamma=0, max_gamma=6)
    for at in range(5):
        laws = [flat if position == at else sharp for position in range(6)]
        assert lengths(config, head, [[0.5] * 6], laws) == [at + 1]


def test_the_session_sees_what_training_saw() -> None:
    """The chance it sums up is the head's of the very rows that ``examples_of`` makes."""
    noise = np.random.default_rng(3)
    law = torch.from_numpy(noise.dirichlet(np.ones(4), (5, 1))).float()
    probs = noise.uniform(0.1, 1, (1, 6)).astype(np.float32)
    entropies = [float(torch.special.entr(one).sum()) for one in law]
    trace = _trace(np.ones((1, 5)), probs[:, :5], [entropies])
    head = simple_head(bias=1, entropy=-0.3, log_confidence=0.5, log_confidence_before=0.7,
                       log_position=-0.2)  # fmt: skip
    session = SpecDecPlusSession(Rows(1), SpecDecPlusConfig(), head)  # type: ignore[arg-type]
    for position in range(6):
        drawn = [torch.tensor([p]) for p in probs[0, :position]]
        one = law[min(position, 4)]
        session.go_on(DraftStep(position, [], drawn, lambda one=one: one))  # type: ignore[misc]
    expected = head.log_accept(examples_of([trace]).rows).sum()
    assert float(session.stands) == pytest.approx(float(expected), abs=1e-5)


def test_a_round_begins_anew() -> None:
    head = simple_head(bias=0)
    config = SpecDecPlusConfig(threshold=0.6, min_gamma=0, max_gamma=9)
    session = SpecDecPlusSession(Rows(2), config, head)  # type: ignore[arg-type]
    for _ in range(2):
        answers = []
        for position in range(3):
            drawn = [torch.tensor([0.5, 0.5])] * position
            step = DraftStep(position, [], drawn, lambda: torch.full((2, 4), 0.25))
            answers.append(session.go_on(step).tolist())
        assert answers == [[True, True], [True, True], [False, False]]


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"threshold": 1.5}, "policy.threshold"),
        ({"max_gamma": 65}, "policy.max_gamma"),
        ({"min_gamma": 5, "max_gamma": 4}, "policy.min_gamma"),
        ({"path": ""}, "policy.path"),
    ],
)
def test_impossible_values_are_refused(values: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        SpecDecPlusConfig(**values)


# --- files -------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "head.safetensors"
    train(examples_of([synthetic(300)[0]]), 4).save(path)
    return path


def test_a_file_is_read_as_it_was_written(file: Path) -> None:
    head = train(examples_of([synthetic(300)[0]]), 4)
    policy = SpecDecPlus(SpecDecPlusConfig(path=str(file)))
    assert policy.head is not None and policy.head.about == head.about
    rows = torch.randn(7, 5).double()
    assert torch.equal(policy.head.logits(rows), head.logits(rows))
    assert not policy.head.outer.requires_grad


def resaved(file: Path, meta: Any = None, **changed: Tensor | None) -> str:
    """The file with other tensors (None drops one) or other metadata."""
    tensors = {**load_file(file), **changed}
    kept = {name: value for name, value in tensors.items() if value is not None}
    good = {"format": FORMAT, "features": list(FEATURES), "about": {}}
    save_file(kept, file, {"foredraft": json.dumps(good if meta is None else meta)})
    return str(file)


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"outer": None}, "damaged"),
        ({"extra": torch.zeros(1)}, "damaged"),
        ({"outer": torch.zeros(5).double()}, "damaged"),
        ({"outer": torch.zeros(4)}, "damaged"),
        ({"inner": torch.zeros(4, 6).double()}, "damaged"),
        ({"inner": torch.zeros(4).double()}, "damaged"),
        ({"scale": torch.zeros(5).double()}, "damaged"),
        ({"mean": torch.full((5,), math.nan).double()}, "damaged"),
        ({"meta": {}}, "fit policy=specdecpp"),
        ({"meta": []}, "fit policy=specdecpp"),
        ({"meta": {"format": FORMAT, "features": ["entropy"]}}, "fit policy=specdecpp"),
        ({"meta": {"format": "foredraft-ngram-1"}}, "fit policy=specdecpp"),
    ],
)
def test_other_files_are_refused(file: Path, changed: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word) as caught:
        Head.load(resaved(file, **changed))
    assert "\n" not in str(caught.value)


def test_what_is_no_safetensors_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x80\x04pickle")
    for name in ("x", "missing", "."):
        with pytest.raises(InputError, match="not a readable safetensors file") as caught:
            Head.load(str(tmp_path / name))
        assert "\n" not in str(caught.value)


def test_features_of_impossible_numbers_are_finite() -> None:
    rows = features(torch.tensor([0.0, 1.0000001]), torch.zeros(2), 0, torch.zeros(2).double())
    assert rows.shape == (2, len(FEATURES)) and bool(rows.isfinite().all())


# --- the command -------------------------------------------------------------------------------


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return make_cli(capsys)


def test_fit_trains_from_files_and_says_how_to_use_it(cli: Cli) -> None:
    write_traces("a.npz", [synthetic(300)[0], synthetic(300, 1)[0]])
    write_traces("b.npz", [synthetic(300, 2)[0]])
    where = ("traces=a.npz", "traces=b.npz", "out=my head")
    done = cli("fit", "policy=specdecpp", *where, "hidden=3", "reject_weight=2")
    assert done.code == 0, done.err
    assert "of 3 traces" in done.out and "not trained on; of the best constant" in done.out
    use = shlex.split(done.out.splitlines()[-1].removeprefix("use it: "))
    assert use[:4] == ["foredraft", "generate", "drafter=ngram", "policy=specdecpp"]
    head = Head.load("my head")
    assert head.hidden == 3 and head.about["reject_weight"] == 2
    assert head.about["traces"] == [{"target": "table", "drafter": "ngram"}]
    assert head.about["log_loss"] < head.about["constant_log_loss"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("out=h",), ("traces=FILE",)),
        (("traces=a.npz",), ("out=FILE",)),
        (("traces=missing.npz", "out=h"), ("missing.npz", "cannot be read")),
        (("traces=text.npz", "out=h"), ("text.npz", "no whole file of dense traces")),
        (("traces=a.npz", "out=."), ("folder",)),
        (("traces=a.npz", "out=no/such/h"), ("no such folder",)),
        (("traces=a.npz", "out=h", "hidden=-1"), ("hidden=-1", "0 to 256")),
        (("traces=a.npz", "out=h", "hidden=257"), ("hidden=257",)),
        (("traces=a.npz", "out=h", "reject_weight=0"), ("reject_weight=0",)),
        (("traces=a.npz", "out=h", "reject_weight=nan"), ("reject_weight=nan",)),
        (("traces=a.npz", "out=h", "reject_weight=x"), ("'x'", "number")),
        (("traces=a.npz", "out=h", "seed=0", "seed=1"), ("once",)),
        (("traces=a.npz", "out=h", "hiden=1"), ("did you mean 'hidden'",)),
        (("traces=a.npz", "out=h", "target=table"), ("target=table",)),
    ],
)
def test_fit_refuses_in_one_sentence(
    cli: Cli, argv: tuple[str, ...], words: tuple[str, ...]
) -> None:
    write_traces("a.npz", [synthetic(40)[0]])
    Path("text.npz").write_text("no archive")
    refused(cli("fit", "policy=specdecpp", *argv), *words)
    assert not Path("h").exists()


def test_other_policies_have_nothing_to_fit(cli: Cli) -> None:
    refused(cli("fit", "policy=fixed", "traces=a", "out=h"), "policy=fixed", "specdecpp")


# --- in a run ----------------------------------------------------------------------------------


def test_texts_are_those_of_plain_decoding(file: Path) -> None:
    target = TableTarget.from_config(TableConfig(vocab_size=8))
    prompts = [[0, 1, 2], [3], [4, 5]]
    policy = SpecDecPlus(SpecDecPlusConfig(path=str(file), min_gamma=0))
    drafter = Ngram(NgramConfig(), target)
    plain = make_engine(target, max_new_tokens=24).generate_many(prompts)
    found = make_engine(target, drafter, policy, max_new_tokens=24).generate_many(prompts)
    assert [one.token_ids for one in found] == [one.token_ids for one in plain]
    assert sum(one.metrics.accepted for one in found) > 0


def test_a_replay_drafts_as_the_head_says() -> None:
    """A head of other traces beats every fixed gamma, and more clearly than the confidence alone."""
    trace, _ = synthetic(3000)
    head = train(examples_of([synthetic(1500, 1)[0]]))
    config = SpecDecPlusConfig(threshold=0.7, min_gamma=0, max_gamma=GAMMA)
    policy = SpecDecPlus(config)
    untrained = replay(policy, [trace])
    policy.head = head
    trained = replay(policy, [trace])
    fixed = [replay(Fixed(FixedConfig(gamma)), [trace]) for gamma in range(GAMMA + 1)]
    rates = [float(one.tokens.sum() / one.seconds.sum()) for one in (trained, untrained, *fixed)]
    assert rates[0] > rates[1] and rates[0] > 1.015 * max(rates[2:])
