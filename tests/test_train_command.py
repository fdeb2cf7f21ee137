"""``foredraft train``: from prompts to a drafter that drafts, whatever kills it on the way."""

from __future__ import annotations

import collections
import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_helpers import Cli, make_cli, refused
from filelock import FileLock
from safetensors.torch import load_file
from train_helpers import (
    PROMPTS,
    STEPS,
    TOKENS,
    card_of,
    interrupted,
    make_place,
    same_weights,
    stopped,
    words_for,
)

from foredraft.framework.cli.main import main
from foredraft.framework.engine import Engine
from foredraft.framework.testing.tiny_tokenizer import VOCAB, save_tiny
from foredraft.framework.training import answers, features, loop
from foredraft.framework.training.answers import Answered
from foredraft.framework.training.asked import asked
from foredraft.framework.training.distilling import Distillation
from foredraft.framework.training.features import PER_SHARD, Features
from foredraft.framework.training.session import Training, held_out

pytestmark = pytest.mark.usefixtures("only_builtins", "no_figures")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    """What a training that nobody disturbed left."""
    assert main(words_for(place, f"out={place / 'whole'}")) == 0
    return place / "whole"


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Cli:
    monkeypatch.chdir(tmp_path)
    return make_cli(capsys)


@pytest.fixture
def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The prompts that the target answered, in order."""
    found: list[int] = []
    run = Engine.run

    def noted(self: Engine, parts: Any, *args: Any, **kwargs: Any) -> Any:
        parts = list(parts)
        found.extend(one.request.index for one in parts)
        return run(self, parts, *args, **kwargs)

    monkeypatch.setattr(Engine, "run", noted)
    return found


# --- what comes out ------------------------------------------------------------------------------


def test_it_leaves_weights_and_a_card(whole: Path) -> None:
    names = {path.name for path in whole.iterdir()} - {"training.png"}
    assert names == {"weights.safetensors", "card.json", "work"}
    tensors, card = load_file(whole / "weights.safetensors"), card_of(whole)
    assert {name: tuple(value.shape) for name, value in tensors.items()} == {
        "weight": (2, 32, 32), "bias": (2, 32)
    }  # fmt: skip
    assert all(value.abs().max() > 0 for value in tensors.values())
    assert card.keys() == {"drafter", "shape", "target", "training", "held_out", "guesses"}
    assert card["drafter"] == "medusa" and card["shape"] == {"heads": 2, "vocabulary": None}
    assert card["target"]["name"].endswith("model")
    assert card["target"]["config"] and card["target"]["tokenizer"]


def test_the_card_says_what_was_done(whole: Path) -> None:
    training = card_of(whole)["training"]
    assert training["command"].startswith("foredraft train drafter=medusa train.shape.heads=2 ")
    assert training["steps"] == STEPS and training["seed"] == 0 and training["texts"] == PROMPTS
    assert (
        training["tokens"] == len(answered_ids(whole))
        and 0 < training["tokens"] <= PROMPTS * TOKENS
    )
    assert training["task"]["source"] == "file"
    assert training["options"]["objective"] == {"kl": 1.0, "tv": 1.0}
    assert [look["step"] for look in training["looks"]] == [0, 6, STEPS]
    scores = {look["step"]: look["score"] for look in training["looks"]}
    assert scores[training["best_step"]] == max(scores.values()) > scores[0]


def answered_ids(folder: Path) -> list[int]:
    lines = (folder / "work/answers.jsonl").read_text("utf-8").splitlines()
    return [token for line in lines for token in json.loads(line)["answer"]]


def trained_ids(folder: Path) -> list[int]:
    """All answered ids but those of each group's prompts that are held out."""
    lines = (folder / "work/answers.jsonl").read_text("utf-8").splitlines()
    answers = sorted((json.loads(line) for line in lines), key=lambda one: int(one["index"]))
    every, seen = card_of(folder)["training"]["options"]["held_out"], collections.Counter[str]()
    found: list[int] = []
    for one in answers:
        found += one["answer"] if seen[one["group"]] % every else []
        seen[one["group"]] += 1
    return found


def test_the_card_has_alphas_of_all_that_was_held_out_and_of_each_group(whole: Path) -> None:
    card = card_of(whole)
    held = card["held_out"]
    assert held.keys() == {"all", "sums", "tales"}
    for alphas in held.values():
        assert len(alphas) == 2 and all(0 < alpha < 1 for alpha in alphas)
    for position in range(2):
        among = sorted((held["sums"][position], held["tales"][position]))
        assert among[0] - 1e-4 <= held["all"][position] <= among[1] + 1e-4
        (best,) = [
            look
            for look in card["training"]["looks"]
            if look["step"] == card["training"]["best_step"]
        ]
        assert held["all"][position] == pytest.approx(best[f"alpha {position + 1}"], abs=1e-4)


def test_the_command_shows_the_alphas_and_how_to_use_it(
    cli: Cli, place: Path, whole: Path, tmp_path: Path
) -> None:
    shutil.copytree(whole, tmp_path / "again")
    done = cli(*words_for(place, f"out={tmp_path / 'again'}"))
    assert done.code == 0
    assert all(f"{alpha:.3f}" in done.out for alpha in card_of(whole)["held_out"]["sums"])
    assert f"drafter=medusa drafter.path={tmp_path / 'again'}" in done.err
    assert same_weights(whole, tmp_path / "again")


@pytest.mark.parametrize("more", [(), ("drafter.widths=[2,2]", "verifier=recursive")])
def test_the_drafter_generates_what_plain_decoding_does(
    cli: Cli, place: Path, whole: Path, more: tuple[str, ...]
) -> None:
    base = [
        "generate", "target=causal_lm", f"target.model={place / 'model'}", "prompt=add 3",
        "max_new_tokens=24", "output=json",
    ]  # fmt: skip
    plain = cli(*base, "drafter=none").objects[0]
    drafted = cli(*base, "drafter=medusa", f"drafter.path={whole}", *more).objects[0]
    assert drafted["token_ids"] == plain["token_ids"] and len(plain["token_ids"]) > 2
    assert drafted["metrics"]["drafted"] > 0


def test_it_learns(cli: Cli, place: Path) -> None:
    """More steps, a higher alpha on what it was trained for; here by much, with a head of its own."""
    for steps in (1, 60):
        words = words_for(place, f"out=s{steps}", "train.lr=0.02", "train.shape.heads=1")
        assert cli(*words, f"train.steps={steps}", "train.evaluate_every=100").code == 0
    few, many = (card_of(Path(f"s{steps}"))["training"]["looks"][-1] for steps in (1, 60))
    assert many["loss"] < few["loss"] * 0.9


def test_a_training_that_only_worsens_writes_where_it_began(cli: Cli, place: Path) -> None:
    """With a rate that throws the weights about, the card and the weights are those before any step."""
    for out, rate in (("bad", "train.lr=9"), ("start", "train.lr=1e-9")):
        assert cli(*words_for(place, f"out={out}", rate, "train.warmup=0")).code == 0
    bad, start = card_of(Path("bad")), card_of(Path("start"))
    scores = [look["score"] for look in bad["training"]["looks"]]
    assert scores[0] > max(scores[1:]) + 0.03 and bad["training"]["best_step"] == 0
    assert bad["held_out"] == start["held_out"]
    assert bad["held_out"]["all"][0] == pytest.approx(
        bad["training"]["looks"][0]["alpha 1"], abs=1e-4
    )
    found = [load_file(Path(out, "weights.safetensors"))["weight"] for out in ("bad", "start")]
    assert torch.allclose(*found, atol=1e-6)


@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
def test_the_alphas_of_the_card_are_those_of_the_weights_in_the_file(
    cli: Cli, place: Path, stored: str
) -> None:
    words = words_for(place, "out=o", f"train.stored={stored}", "train.steps=40")
    assert cli(*words).code == 0
    problem, _ = Training(asked(words[1:]), "").prepared()
    before = held_out(problem)[1]
    problem.module.load_state_dict(load_file(Path("o/weights.safetensors")))
    assert held_out(problem)[1] == card_of(Path("o"))["held_out"] != before


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_targets_of_other_precision_are_trained_for(
    cli: Cli, place: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    save_tiny(tmp_path / "m", context=256, dtype=dtype)
    done = cli(*words_for(place, f"target.model={tmp_path / 'm'}", "out=o", "train.steps=2"))
    assert done.code == 0, done.err


@pytest.mark.parametrize("drafter", ["medusa", "eagle", "early_exit", "causal_lm"])
def test_every_drafter_can_be_fitted_in_bfloat16_on_a_cpu(
    cli: Cli, place: Path, drafter: str
) -> None:
    """Hidden states are float16 on the disk, which operations under autocast refuse."""
    shape = {"early_exit": ["train.shape.exits=[1]"], "causal_lm": ["train.shape.hidden_size=16"]}
    words = words_for(
        place, "out=o", "train.precision=bfloat16", "train.steps=2", *shape.get(drafter, [])
    )
    words = [one for one in words if drafter == "medusa" or "shape.heads" not in one]
    done = cli(*[f"drafter={drafter}" if one.startswith("drafter=") else one for one in words])
    assert done.code == 0, done.err
    assert card_of(Path("o"))["training"]["looks"][-1]["loss"] > 0


def test_texts_shorter_than_the_furthest_guess_do_not_end_it(cli: Cli, place: Path) -> None:
    done = cli(*words_for(place, "out=o", "train.shape.heads=8", "train.width=4", "train.steps=2"))
    assert done.code == 0, done.err
    assert card_of(Path("o"))["held_out"]["all"][-1] == 0.0


@pytest.mark.parametrize("objective", ["{ce:1}", "{reverse_kl:0.5,tv:2}"])
def test_every_objective_can_be_asked_for(cli: Cli, place: Path, objective: str) -> None:
    assert cli(*words_for(place, "out=o", f"train.objective={objective}")).code == 0
    looks = card_of(Path("o"))["training"]["looks"]
    assert len(looks) == 3 and all(0 < look["loss"] < 20 for look in looks[1:])


def test_a_folder_in_use_is_refused(cli: Cli, place: Path) -> None:
    words = words_for(place, "out=o", "train.steps=1")
    assert cli(*words).code == 0
    with FileLock("o/work/lock"):
        refused(cli(*words), "out=o is in use by another training")
    assert cli(*words).code == 0


# --- a reduced vocabulary ------------------------------------------------------------------------


def test_a_reduced_vocabulary_is_the_most_frequent_ids_and_no_other_is_drafted(
    cli: Cli, place: Path, whole: Path
) -> None:
    assert cli(*words_for(place, "out=o", "train.vocabulary=16")).code == 0
    ids = load_file(Path("o/weights.safetensors"))["ids"]
    assert card_of(Path("o"))["shape"] == {"heads": 2, "vocabulary": 16}
    assert ids.dtype == torch.int64 and len(ids) == 16 and bool((ids[1:] > ids[:-1]).all())
    counts = torch.bincount(torch.tensor(trained_ids(Path("o"))), minlength=VOCAB)
    left = torch.ones(VOCAB, dtype=torch.bool).index_fill(0, ids, False)
    assert counts[ids].min() >= counts[left].max()
    assert set(drafted(place, Path("o"))) <= set(ids.tolist())
    assert not set(drafted(place, whole)) <= set(ids.tolist())


def drafted(place: Path, folder: Path) -> list[int]:
    """Ids that a trained drafter can draw, after a prompt: where its law is not zero."""
    from foredraft.framework import load

    found: list[int] = []
    engine = load(
        "target=causal_lm", f"target.model={place / 'model'}", "drafter=medusa",
        f"drafter.path={folder}", "sampling.temperature=1",
    )  # fmt: skip
    drafter = engine.parts.drafter
    hidden = torch.randn(1, 32, generator=torch.Generator().manual_seed(0))
    logits = drafter.head(drafter.net(hidden, 2))  # type: ignore[attr-defined]
    for guess in logits[0]:
        found += guess.softmax(-1).nonzero().flatten().tolist()
    assert len(found) >= 2 * 16
    return found


# --- killed --------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [2, 7])
def test_killed_in_the_steps_it_ends_with_the_same_weights(
    cli: Cli, place: Path, whole: Path, asked_for: list[int], step: int
) -> None:
    words = words_for(place, "out=o")
    with interrupted(loop, "_step", step, KeyboardInterrupt):
        stopped(cli, words)
    assert cli(*words).code == 0
    assert same_weights(Path("o"), whole)
    assert card_of(Path("o"))["held_out"] == card_of(whole)["held_out"]
    assert card_of(Path("o"))["training"]["looks"] == card_of(whole)["training"]["looks"]
    assert sorted(asked_for) == list(range(PROMPTS))


@pytest.mark.parametrize("step", [7, 8, 10, 12])
def test_killed_behind_the_best_look_it_ends_with_the_best_weights(
    cli: Cli, place: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """The look at step 6 is made the best; states are of steps 4, 8 and 12."""
    due = card_of(whole)["training"]["looks"][1]["alpha 1"]
    real = Distillation.held_out

    def nearest(self: Distillation) -> dict[str, float]:
        found = real(self)
        return {**found, "score": -abs(found["alpha 1"] - due)}

    monkeypatch.setattr(Distillation, "held_out", nearest)
    words = words_for(place, "out=o")
    with interrupted(loop, "_step", step, KeyboardInterrupt):
        stopped(cli, words)
    assert cli(*words).code == 0
    card = card_of(Path("o"))
    assert card["training"]["best_step"] == 6 and card["training"]["steps"] == STEPS
    assert card["held_out"]["all"][0] == pytest.approx(due, abs=1e-4)
    assert not same_weights(Path("o"), whole)
    assert (
        card["training"]["looks"][2]["alpha 1"] == card_of(whole)["training"]["looks"][2]["alpha 1"]
    )


def test_killed_in_the_answers_it_asks_for_none_twice(
    cli: Cli, place: Path, whole: Path, asked_for: list[int]
) -> None:
    words = words_for(place, "out=o")
    with interrupted(answers, "answers_to", 3, KeyboardInterrupt):
        stopped(cli, words)
    assert len(asked_for) == 6
    assert cli(*words).code == 0
    assert sorted(asked_for) == list(range(PROMPTS))
    assert same_weights(Path("o"), whole)


def test_killed_in_the_middle_of_a_line_only_that_answer_is_asked_for_again(
    cli: Cli, place: Path, whole: Path, asked_for: list[int]
) -> None:
    words = words_for(place, "out=o")
    with interrupted(Features, "_shard", 1, KeyboardInterrupt):
        stopped(cli, words)
    path = Path("o/work/answers.jsonl")
    path.write_bytes(path.read_bytes()[:-7])
    before = len(asked_for)
    assert cli(*words).code == 0
    assert len(asked_for) == before + 1
    assert same_weights(Path("o"), whole)


def test_killed_in_the_hidden_states_it_makes_what_is_missing(
    cli: Cli, place: Path, whole: Path, asked_for: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "PER_SHARD", 5)
    words = words_for(place, "out=o")
    with interrupted(Features, "_shard", 3, KeyboardInterrupt):
        stopped(cli, words)
    assert shards() == ["00000", "00001"]
    made = []
    states = features._states
    monkeypatch.setattr(features, "_states", lambda *a: made.append(a[1]) or states(*a))
    assert cli(*words).code == 0
    assert len(made) == 2 and shards() == ["00000", "00001", "00002"]
    assert sorted(asked_for) == list(range(PROMPTS)) and same_weights(Path("o"), whole)


def shards() -> list[str]:
    return sorted(path.stem for path in Path("o/work/features").iterdir())


def test_ended_by_patience_it_comes_to_the_same_end_again(
    cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state behind the last look need not have been kept; the same steps lead there."""
    monkeypatch.setattr(Distillation, "held_out", lambda self: {"score": 0.5})
    words = words_for(place, "out=o", "train.patience=2", "train.evaluate_every=1")
    assert cli(*words).code == 0
    before, card = Path("o/weights.safetensors").read_bytes(), card_of(Path("o"))
    assert card["training"]["steps"] == 2 and card["training"]["best_step"] == 0
    assert cli(*words).code == 0
    assert Path("o/weights.safetensors").read_bytes() == before and card_of(Path("o")) == card


# --- a bound on the disk -------------------------------------------------------------------------


class Counter:
    """A target of two layers whose hidden state behind an id is that id."""

    depth, asked = 2, 0

    def start(self, rows: int, capacity: int) -> Counter:
        self.asked += 1
        return self

    def watch(self, layers: Any) -> None:
        assert list(layers) == [2]

    def prefill(self, tokens: list[list[int]]) -> None:
        self.tokens = tokens[0]

    def hidden(self, layer: int) -> torch.Tensor:
        return torch.tensor(self.tokens).float().view(1, -1, 1).expand(1, -1, 8)


def texts(count: int) -> list[Answered]:
    return [Answered(n, "all", [n % 7, 1, 2], [3, 4, n % 5]) for n in range(count)]


def test_texts_beyond_the_bound_are_left_out_whole_shards_at_a_time(tmp_path: Path) -> None:
    each = 6 * 8 * 2 + 7 * 8  # float16 states, and ids with one number before them
    some: Any = Counter()
    whole = PER_SHARD * each
    three = texts(3 * PER_SHARD - 5)
    assert Features(tmp_path / "all", [2], 16).make(some, three, 1 << 30) == len(three)
    header = (tmp_path / "all/00000.safetensors").stat().st_size - whole
    told: list[int] = []
    bound = 2 * (whole + header) + whole // 2
    kept = Features(tmp_path / "some", [2], 16)
    assert kept.make(some, three, bound, told.append) == 2 * PER_SHARD == sum(told)
    sizes = [path.stat().st_size for path in (tmp_path / "some").iterdir()]
    assert len(sizes) == 2 and sum(sizes) <= bound
    # Again, with what is there: as many, and the target is asked for the same few at most.
    again = Features(tmp_path / "some", [2], 16)
    before = some.asked
    assert again.make(some, three, bound) == 2 * PER_SHARD
    assert some.asked - before <= PER_SHARD


@pytest.mark.parametrize("count", [0, 8])
def test_answers_without_room_are_said(
    cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    make = Features.make
    monkeypatch.setattr(Features, "make", lambda *a: min(make(*a), count))
    words = words_for(place, "out=o", "train.steps=1")
    if not count:
        refused(cli(*words), "train.shards_mb=4096", "room for the hidden states of 0 answers")
        return
    done = cli(*words)
    assert done.code == 0 and done.err.startswith("4 of 12 answers "), done.err
    assert card_of(Path("o"))["training"]["texts"] == 8


def test_what_is_read_is_what_was_written_and_long_texts_lose_their_begin(tmp_path: Path) -> None:
    some: Any = Counter()
    kept = Features(tmp_path, [2], 4)
    kept.make(some, texts(3), 1 << 20)
    ids, prompt, hidden = kept.text(2)
    assert ids.tolist() == [2, 3, 4, 2] and prompt == 1
    assert hidden[2].shape == (4, 8) and hidden[2][:, 0].tolist() == [2, 3, 4, 2]


def test_shards_of_other_texts_or_layers_are_made_anew(tmp_path: Path) -> None:
    some: Any = Counter()
    Features(tmp_path, [2], 16).make(some, texts(3), 1 << 20)
    Features(tmp_path, [2], 16).make(some, texts(3), 1 << 20)
    assert some.asked == 3
    Features(tmp_path, [2], 4).make(some, texts(3), 1 << 20)
    assert some.asked == 6
    (tmp_path / "00000.safetensors").write_bytes(b"\x08")
    Features(tmp_path, [2], 4).make(some, texts(3), 1 << 20)
    assert some.asked == 9


# --- what is refused -----------------------------------------------------------------------------


def test_other_values_in_the_same_folder_are_refused_with_the_difference(
    cli: Cli, place: Path, whole: Path, tmp_path: Path
) -> None:
    shutil.copytree(whole, tmp_path / "o")
    for change, said in {
        "train.lr=0.5": "train.lr was 0.02, is 0.5",
        "train.shape.heads=3": "train.shape.heads was 2, is 3",
        "seed=1": "seed was 0, is 1",
        "sampling.logit_bias={5: -inf}": "sampling.logit_bias",
    }.items():
        refused(cli(*words_for(place, "out=o", change)), "out=o", "new folder", said)
    lines = (place / "p.jsonl").read_text("utf-8").replace("once", "never")
    Path("other.jsonl").write_text(lines, "utf-8")
    other = words_for(place, "out=o", "task.file=other.jsonl")
    refused(cli(*other), "out=o", "task.file was ")
    assert same_weights(whole, tmp_path / "o")


def test_prompts_that_were_changed_in_their_file_are_refused(cli: Cli, place: Path) -> None:
    Path("p.jsonl").write_bytes((place / "p.jsonl").read_bytes())
    words = words_for(place, "out=o", "task.file=p.jsonl")
    with interrupted(Features, "_shard", 1, KeyboardInterrupt):
        stopped(cli, words)
    Path("p.jsonl").write_text(Path("p.jsonl").read_text("utf-8").replace("once", "never"))
    refused(cli(*words), "prompts.sha256 was ")


@pytest.mark.parametrize("make", [lambda o: o.mkdir(), lambda o: None], ids=["empty", "none"])
def test_an_empty_folder_and_none_are_alike(
    cli: Cli, place: Path, make: Callable[[Path], None]
) -> None:
    make(Path("o"))
    assert cli(*words_for(place, "out=o", "train.steps=1", "train.warmup=0")).code == 0


def test_a_folder_with_other_things_is_refused_and_left_alone(cli: Cli, place: Path) -> None:
    Path("o").mkdir()
    Path("o/mine.txt").write_text("mine")
    refused(cli(*words_for(place, "out=o")), "out=o", "other things")
    assert [path.name for path in Path("o").iterdir()] == ["mine.txt"]
    refused(cli(*words_for(place, "out=o/mine.txt")), "out=o/mine.txt", "cannot be used")


REFUSED = {
    "drafter.path=x": ("drafter.path=x", "no effect", "out=FOLDER"),
    "drafter.heads=2": ("drafter.heads is not a key",),
    "train.shape.heads=0": ("train.shape.heads=0",),
    "train.shape.haeds=2": ("train.shape.haeds", "did you mean", "heads"),
    "train.shape={heads: two}": ("train.shape.heads", "whole number"),
    "train.shape=3": ("train.shape=3",),
    "train.vocabulary=1": ("train.vocabulary=1",),
    "train.stesp=3": ("train.stesp", "did you mean", "steps"),
    "train.steps=0": ("train.steps=0",),
    "train.steps=2.5": ("train.steps=2.5", "whole number"),
    "train.steps='3'": ("train.steps", "whole number"),
    "train.steps=1,2": ("train.steps=1,2", "several"),
    "train.lr=fast": ("train.lr", "number"),
    "train.lr=nan": ("train.lr",),
    "train.schedule=linear": ("train.schedule", "cosine", "trapezoid"),
    "train.temperature=0": ("train.temperature=0", "0.05"),
    "train.held_out=1": ("train.held_out=1",),
    "train.objective={kld:1}": ("train.objective", "kl", "tv"),
    "train.objective={kl:-1}": ("train.objective.kl",),
    "train.objective={kl:much}": ("train.objective", "much"),
    "train.objective=kl": ("train.objective",),
    "train.objective={kl:0,tv:0}": ("train.objective", "ce, kl, reverse_kl, tv"),
    "train.objective={}": ("train.objective", "ce, kl, reverse_kl, tv"),
    "train=3": ("train",),
    "+train.steps=3": ("+train.steps=3",),
    "policy.gamma=3": ("policy.gamma=3", "no effect"),
    "verifier=block": ("verifier=block", "no effect"),
    "prompt=x": ("prompt=x", "task=file"),
    "samples=3": ("samples=3", "no effect"),
    "bench.repeats=3": ("bench.repeats=3", "no effect"),
    "grid.seed=[1,2]": ("grid.seed", "no effect"),
    "task.groups=[sum]": ("task.groups", "sums, tales"),
    "task.file=none.jsonl": ("none.jsonl",),
    "--fast": ("--fast",),
}


@pytest.mark.parametrize("word", REFUSED)
def test_it_is_refused_in_a_sentence_before_a_folder_is_made(
    cli: Cli, place: Path, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foredraft.framework.training import session

    monkeypatch.setattr(session, "engine_from", None)  # no model is loaded
    refused(cli(*words_for(place, "out=o", word)), *REFUSED[word])
    assert not Path("o").exists()


@pytest.mark.parametrize("name", ["ngram", "none"])
def test_a_drafter_without_weights_is_refused_with_those_that_have_some(
    cli: Cli, place: Path, name: str
) -> None:
    words = [word for word in words_for(place, "out=o") if not word.startswith("drafter")]
    said = (
        f"drafter={name} has nothing to train",
        "can be trained: causal_lm, eagle, early_exit, medusa",
    )
    refused(cli(*words, f"drafter={name}"), *said)
    assert not Path("o").exists()


def test_an_experiment_chooses_no_drafts_for_the_answers(cli: Cli, place: Path) -> None:
    """It may choose another policy and verifier; answers are plain ones in any case."""
    whole = asked(words_for(place, "experiment=self_draft", "out=o")[1:])
    assert whole.config["drafter"] == {"name": "none"} and whole.config["policy"]["gamma"] == 0
    assert whole.record["drafter"]["name"] == "medusa"


def test_out_has_to_be_given(cli: Cli, place: Path) -> None:
    for more in ((), ("out=",)):
        refused(cli(*words_for(place, *more)), "out=FOLDER")


def test_too_few_prompts_to_hold_some_out(cli: Cli, place: Path) -> None:
    """The first of each group is held out; there has to be another one."""
    refused(cli(*words_for(place, "out=o", "task.per_group=1")), "2 answers", "too few")
    words = words_for(place, "out=p", "task.groups=[sums]", "task.per_group=2", "train.steps=1")
    assert cli(*words).code == 0


def test_without_accelerate_it_names_the_extra(
    cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *a: None if name == "accelerate" else find(name, *a),
    )
    refused(cli(*words_for(place, "out=o")), "foredraft[train]")
    assert not Path("o").exists()


def test_a_target_without_an_lm_head_is_refused(cli: Cli, place: Path) -> None:
    Path("n.jsonl").write_text("".join(f'{{"prompt": "{n % 8} 1"}}\n' for n in range(8)))
    words = ["train", "drafter=medusa", "target=table", "task=file", "task.file=n.jsonl", "out=o"]
    refused(cli(*words, "max_new_tokens=4"), "drafter=medusa", "LM head")


def test_answers_that_somebody_changed_are_refused(cli: Cli, place: Path, whole: Path) -> None:
    shutil.copytree(whole, "o")
    path = Path("o/work/answers.jsonl")
    lines = path.read_text("utf-8").splitlines()
    for bad, said in {
        '{"index": 1}': "line 1",
        lines[0].replace('"index": ', '"index": 99'): "does not have",
        lines[0].replace('"group": "', '"group": 3, "x": "'): "line 1",
    }.items():
        path.write_text("\n".join([bad, *lines[1:]]) + "\n", "utf-8")
        refused(cli(*words_for(place, "out=o")), "answers.jsonl", said)


def test_help_and_no_words_print_the_help(cli: Cli) -> None:
    for words in ((), ("--help",), ("drafter=medusa", "-h")):
        done = cli("train", *words)
        assert done.code == 0 and done.out.startswith("usage: foredraft train")


# --- a folder of weights that somebody changed ---------------------------------------------------


@pytest.mark.parametrize("heads", [10**9, 0, -1, 3, "2", True, None])
def test_a_card_that_says_another_shape_is_refused(
    cli: Cli, place: Path, whole: Path, heads: object
) -> None:
    """And nothing of the size that it claims is allocated."""
    shutil.copytree(whole, "o", ignore=shutil.ignore_patterns("work"))
    card = card_of(Path("o"))
    card["shape"] = {"vocabulary": None} if heads is None else {**card["shape"], "heads": heads}
    Path("o/card.json").write_text(json.dumps(card), "utf-8")
    words = ["generate", "target=causal_lm", f"target.model={place / 'model'}", "prompt=add 3"]
    refused(cli(*words, "drafter=medusa", "drafter.path=o"), "drafter.path=o")
