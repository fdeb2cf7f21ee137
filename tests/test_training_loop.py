"""The loop that fits weights: it learns, it can be killed, and what it goes on from is there whole."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from foredraft.framework.errors import ConfigError, InputError
from foredraft.framework.training import state as states
from foredraft.framework.training.loop import Progress, fit, optimizer_of
from foredraft.framework.training.options import LoopOptions
from foredraft.framework.training.schedule import rate

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
    assert [look["step"] for look in progress.looks] == list(range(6, 121, 6))
    assert progress.looks[-1]["loss"] < progress.looks[0]["loss"] / 3
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


def test_only_the_newest_state_is_kept(tmp_path: Path) -> None:
    fit(Line(), options(), tmp_path)
    assert [place.name for place in tmp_path.iterdir()] == ["step-0000024"]
    names = {place.name for place in (tmp_path / "step-0000024").iterdir()}
    assert names == {"weights.safetensors", "moments.safetensors", "state.json"}


def test_a_full_disk_is_one_sentence_and_leaves_the_state_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second state cannot be written: its weights can, its moments cannot."""
    real, calls = states.save_file, itertools.count()

    def full(tensors: Any, path: Path) -> None:
        if next(calls) == 1:
            Path(path).write_bytes(b"half of")
            raise OSError(28, "No space left on device")
        real(tensors, path)

    monkeypatch.setattr(states, "save_file", full)
    with pytest.raises(
        InputError, match=r"step-0000008 cannot be written: .*No space left on device"
    ):
        fit(Line(), options(), tmp_path)
    assert [place.name for place in tmp_path.iterdir()] == ["step-0000004"]
    monkeypatch.setattr(states, "save_file", real)
    again, whole = Line(), Line()
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


@pytest.mark.parametrize("broken", ["weights.safetensors", "moments.safetensors", "state.json"])
def test_a_broken_state_is_refused(tmp_path: Path, broken: str) -> None:
    fit(Line(), options(), tmp_path)
    place = tmp_path / "step-0000024" / broken
    place.write_bytes(place.read_bytes()[:20])
    with pytest.raises(InputError, match="step-0000024 is no state of this run") as error:
        fit(Line(), options(), tmp_path)
    assert "\n" not in str(error.value)


def test_a_state_of_another_module_is_refused(tmp_path: Path) -> None:
    fit(Line(), options(), tmp_path)
    other = Line()
    other.module = nn.Linear(2, 1)
    with pytest.raises(InputError, match="is no state of this run"):
        fit(other, options(), tmp_path)


def test_it_ends_when_looks_get_no_better(tmp_path: Path) -> None:
    progress = fit(Line([1.0, 3.0, 2.0, 2.5, 9.0]), options(patience=2, steps=60), tmp_path)
    assert progress.step == 24 and progress.best == (3.0, 12)


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
