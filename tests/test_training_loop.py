"""The loop that fits weights: it learns, it can be killed, and what it goes on from is there whole."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from foredraft.framework.errors import ConfigError, InputError
from foredraft.framework.training import state as states
from foredraft.framework.training.loop import Progress, fit, optimizer_of
from foredraft.framework.training.options import LoopOptions
from foredraft.framework.training.schedule import rate

ONE_STATE = {"weights.safetensors", "moments.safetensors", "state.json"}
QUICK = {"steps": 24, "lr": 0.05, "warmup": 4, "evaluate_every": 6, "keep_every": 4}


class Line:
    """A line through noisy points; batches follow from their number."""

    def __init__(self, scores: list[float] | None = None) -> None:
        torch.manual_seed(3)
        self.module: nn.Module = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
        self.scores = iter(scores) if scores is not None else None

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        points = torch.randn(16, 2, generator=torch.Generator().manual_seed(number))
        return points, points @ torch.tensor([[0.5], [-1.0]])

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        points, values = batch
        return ((self.module(points) - values) ** 2).mean()

    def held_out(self) -> dict[str, float]:
        if self.scores is not None:
            return {"score": next(self.scores)}
        with torch.no_grad():
            return {"score": -float(self.loss(self.batch(10**6)))}


class Peaked(Line):
    """Judged by how near its error is to some value: best on the way, and worse at the end."""

    def held_out(self) -> dict[str, float]:
        return {"score": -abs(super().held_out()["score"] + 1 / 3)}


class Killed(Exception):
    pass


def options(**values: Any) -> LoopOptions:
    return LoopOptions(**{**QUICK, **values})


def killed_at(step: int) -> Any:
    def told(progress: Progress) -> None:
        if progress.step == step:
            raise Killed

    return told


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_it_learns_and_says_how_it_goes(tmp_path: Path) -> None:
    line = Line()
    before = line.held_out()["score"]
    progress = fit(line, options(steps=120), tmp_path)
    assert progress.step == 120 and not line.module.training
    assert [look["step"] for look in progress.looks] == list(range(0, 121, 6))
    assert progress.looks[0] == {"step": 0, "score": before}
    assert progress.looks[-1]["loss"] < progress.looks[1]["loss"] / 3
    assert progress.best is not None and progress.best[0] > before / 5
    assert progress.best[0] == max(look["score"] for look in progress.looks)


@pytest.mark.parametrize("schedule", ["cosine", "trapezoid"])
@pytest.mark.parametrize("kill", [1, 4, 11, 23])
def test_a_killed_run_ends_with_the_same_weights(tmp_path: Path, kill: int, schedule: str) -> None:
    """With states every 4 steps, it makes the steps since the last one again."""
    chosen = options(schedule=schedule, accumulate=2)
    whole, cut, again = Line(), Line(), Line()
    expected = fit(whole, chosen, tmp_path / "whole")
    with pytest.raises(Killed):
        fit(cut, chosen, tmp_path / "cut", killed_at(kill))
    with torch.no_grad():  # weights come from the state, if there is one
        for parameter in again.module.parameters():
            parameter.add_(1.0 if kill >= 4 else 0.0)
    steps: list[int] = []
    progress = fit(again, chosen, tmp_path / "cut", lambda now: steps.append(now.step))
    assert steps[0] == kill - kill % 4 + 1
    assert same(whole.module, again.module)
    assert [look["score"] for look in progress.looks] == [look["score"] for look in expected.looks]
    assert progress.best == expected.best


def seen_at(looks: dict[int, nn.Module], problem: Line) -> Any:
    """Keeps a copy of the module as it was at each look."""

    def looked(progress: Progress) -> None:
        looks[progress.step] = copy.deepcopy(problem.module)

    return looked


def test_the_weights_are_those_of_the_best_look(tmp_path: Path) -> None:
    peaked, looks = Peaked(), dict[int, nn.Module]()
    progress = fit(peaked, options(), tmp_path, looked=seen_at(looks, peaked))
    assert progress.best is not None and 0 < progress.best[1] < 24
    assert same(peaked.module, looks[progress.best[1]]) and not same(peaked.module, looks[24])
    assert peaked.held_out()["score"] == progress.best[0]
    again = Peaked()
    assert fit(again, options(), tmp_path).best == progress.best
    assert same(again.module, peaked.module)


@pytest.mark.parametrize("kill", [7, 11, 13, 20, 23])
def test_killed_behind_the_best_look_it_ends_with_those_weights(tmp_path: Path, kill: int) -> None:
    """The best look is at step 6, between two states: the first kill is before it is on the disk."""
    chosen = options(keep_every=5)
    whole, cut, again = Peaked(), Peaked(), Peaked()
    expected = fit(whole, chosen, tmp_path / "whole")
    assert expected.best is not None and expected.best[1] == 6
    with pytest.raises(Killed):
        fit(cut, chosen, tmp_path / "cut", killed_at(kill))
    progress = fit(again, chosen, tmp_path / "cut")
    assert same(whole.module, again.module)
    assert progress.best == expected.best and progress.looks == expected.looks
    states_of = [tmp_path / name / "step-0000024" for name in ("whole", "cut")]
    for name in [*ONE_STATE, "best.safetensors"]:
        assert (states_of[0] / name).read_bytes() == (states_of[1] / name).read_bytes()


def test_of_a_training_that_only_worsens_the_start_is_left(tmp_path: Path) -> None:
    line, start = Line([float(-n) for n in range(9)]), Line()
    assert fit(line, options(), tmp_path).best == (0.0, 0)
    assert same(line.module, start.module)


def test_weights_that_run_away_are_one_sentence(tmp_path: Path) -> None:
    line = Line()
    line.loss = lambda batch: Line.loss(line, batch) * float("nan")  # type: ignore[method-assign]
    with pytest.raises(InputError, match=r"steps up to 6 is nan: .* smaller train.lr"):
        fit(line, options(), tmp_path)


def test_only_the_newest_state_is_kept(tmp_path: Path) -> None:
    fit(Line([0.0, 1.0, 2.0, 3.0, 4.0]), options(), tmp_path)
    assert [place.name for place in tmp_path.iterdir()] == ["step-0000024"]
    assert {place.name for place in (tmp_path / "step-0000024").iterdir()} == ONE_STATE


def test_best_weights_are_kept_beside_others(tmp_path: Path) -> None:
    fit(Peaked(), options(), tmp_path)
    names = {place.name for place in (tmp_path / "step-0000024").iterdir()}
    assert names == {*ONE_STATE, "best.safetensors"}


@pytest.mark.parametrize("call", [2, 3], ids=["moments", "best weights"])
def test_a_full_disk_is_one_sentence_and_leaves_the_state_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """The second state cannot be written: its weights can, its moments or its best weights cannot."""
    real, calls = states.save_file, itertools.count()

    def full(tensors: Any, path: Path) -> None:
        if next(calls) == call:
            Path(path).write_bytes(b"half of")
            raise OSError(28, "No space left on device")
        real(tensors, path)

    monkeypatch.setattr(states, "save_file", full)
    with pytest.raises(
        InputError, match=r"step-0000008 cannot be written: .*No space left on device"
    ):
        fit(Peaked(), options(), tmp_path)
    assert [place.name for place in tmp_path.iterdir()] == ["step-0000004"]
    monkeypatch.setattr(states, "save_file", real)
    again, whole = Peaked(), Peaked()
    fit(again, options(), tmp_path)
    fit(whole, options(), tmp_path / "whole")
    assert same(again.module, whole.module)


def test_what_a_kill_left_half_written_is_not_taken_up(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        fit(Line(), options(), tmp_path, killed_at(4))
    (tmp_path / "step-0000008.partial").mkdir()
    steps: list[int] = []
    fit(Line(), options(), tmp_path, lambda now: steps.append(now.step))
    assert steps[0] == 5


@pytest.mark.parametrize("broken", [*sorted(ONE_STATE), "best.safetensors"])
@pytest.mark.parametrize("size", [20, None], ids=["cut", "gone"])
def test_a_broken_state_is_refused(tmp_path: Path, broken: str, size: int | None) -> None:
    fit(Peaked(), options(), tmp_path)
    place = tmp_path / "step-0000024" / broken
    whole = place.read_bytes()
    place.unlink()
    if size is not None:
        place.write_bytes(whole[:size])
    with pytest.raises(InputError, match="step-0000024 is no state of this run") as error:
        fit(Peaked(), options(), tmp_path)
    assert "\n" not in str(error.value)


def test_best_weights_of_another_module_are_refused(tmp_path: Path) -> None:
    fit(Peaked(), options(), tmp_path)
    save_file({"0.weight": torch.zeros(8, 2)}, tmp_path / "step-0000024/best.safetensors")
    with pytest.raises(InputError, match=r"no state of this run: best.safetensors has other"):
        fit(Peaked(), options(), tmp_path)


def test_a_state_of_another_module_is_refused(tmp_path: Path) -> None:
    fit(Line(), options(), tmp_path)
    other = Line()
    other.module = nn.Linear(2, 1)
    with pytest.raises(InputError, match="is no state of this run"):
        fit(other, options(), tmp_path)


def test_it_ends_when_looks_get_no_better(tmp_path: Path) -> None:
    scores = [0.5, 1.0, 3.0, 2.0, 2.5, 9.0]
    progress = fit(Line(scores), options(patience=2, steps=60), tmp_path)
    assert progress.step == 24 and progress.best == (3.0, 12)


def test_patience_counts_from_the_look_before_training(tmp_path: Path) -> None:
    line, start = Line([5.0, 1.0, 2.0, 9.0]), Line()
    progress = fit(line, options(patience=2, steps=60), tmp_path)
    assert progress.step == 12 and progress.best == (5.0, 0) and same(line.module, start.module)


def test_accumulated_batches_make_one_step(tmp_path: Path) -> None:
    """The gradient is the mean over them: four equal batches make the step of one."""
    one, four = Line(), Line()
    four.batch = lambda number: Line.batch(four, number // 4)  # type: ignore[method-assign]
    fit(one, options(steps=6), tmp_path / "one")
    fit(four, options(steps=6, accumulate=4), tmp_path / "four")
    pairs = zip(one.module.parameters(), four.module.parameters(), strict=True)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in pairs)


def test_vectors_are_not_decayed() -> None:
    groups = optimizer_of(Line().module, options(weight_decay=0.3)).param_groups
    assert [(g["weight_decay"], {p.dim() for p in g["params"]}) for g in groups] == [
        (0.3, {2}),
        (0.0, {1}),
    ]


class Tied(Line):
    """Two layers with one matrix."""

    def __init__(self) -> None:
        super().__init__()
        first, last = nn.Linear(2, 2), nn.Linear(2, 2)
        last.weight = first.weight
        self.module = nn.Sequential(first, nn.Tanh(), last, nn.Linear(2, 1))


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    whole, cut, again = Tied(), Tied(), Tied()
    fit(whole, options(), tmp_path / "whole")
    with pytest.raises(Killed):
        fit(cut, options(), tmp_path / "cut", killed_at(8))
    fit(again, options(), tmp_path / "cut")
    first, last = again.module.get_submodule("0"), again.module.get_submodule("2")
    assert first.weight is last.weight and same(whole.module, again.module)


def test_best_tied_weights_are_kept_once_and_stay_tied(tmp_path: Path) -> None:
    tied, start = Tied(), Tied()
    tied.scores = iter([9.0, 1.0, 2.0, 3.0, 4.0])
    fit(tied, options(), tmp_path)
    first, last = tied.module.get_submodule("0"), tied.module.get_submodule("2")
    assert first.weight is last.weight and same(tied.module, start.module)
    kept = load_file(tmp_path / "step-0000024/best.safetensors")
    assert kept.keys() == {"0.weight", "0.bias", "2.bias", "3.weight", "3.bias"}


def test_the_cosine_rises_and_falls_to_a_tenth() -> None:
    chosen = LoopOptions(steps=100, warmup=10, lr=1.0)
    rates = [rate(step, chosen) for step in range(101)]
    assert rates[:3] == pytest.approx([0.1, 0.2, 0.3]) and max(rates) == rates[10] == 1.0
    assert rates[55] == pytest.approx(0.55) and rates[100] == pytest.approx(0.1)
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_the_trapezoid_stays_and_falls_to_nothing() -> None:
    chosen = LoopOptions(steps=100, warmup=10, lr=2.0, schedule="trapezoid", decay=0.2)
    rates = [rate(step, chosen) for step in range(101)]
    assert set(rates[10:81]) == {2.0} and rates[90] == pytest.approx(1.0) and rates[100] == 0.0
    longer = LoopOptions(steps=200, warmup=10, lr=2.0, schedule="trapezoid", decay=0.2)
    assert [rate(step, longer) for step in range(80)] == rates[:80]


@pytest.mark.parametrize(
    ("key", "value"),
    [("steps", 0), ("steps", 1.5), ("lr", 0), ("lr", float("nan")), ("accumulate", "2"), ("warmup", -1),
     ("schedule", "cosin"), ("precision", "float16"), ("decay", 1.1), ("clip", 0), ("patience", 0),
     ("seed", True), ("keep_every", 0), ("evaluate_every", -3), ("weight_decay", -0.1)],
)  # fmt: skip
def test_impossible_values_are_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"train.{key}="):
        LoopOptions(**{key: value})
