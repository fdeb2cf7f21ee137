"""The learning curve of a training: events read back by TensorBoard, and a figure."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Cli, make_cli, refused
from train_helpers import (
    STEPS,
    card_of,
    files_of_at_most,
    interrupted,
    make_place,
    one_sentence,
    same_weights,
    stopped,
    words_for,
)

from foredraft.framework.cli.main import main
from foredraft.framework.errors import InputError
from foredraft.framework.training import curve, loop
from foredraft.framework.training.curve import Events, draw_curve
from foredraft.framework.training.loop import Progress
from foredraft.framework.training.options import LoopOptions
from foredraft.framework.training.schedule import rate

pytestmark = pytest.mark.usefixtures("only_builtins")
TAGS = {"train/loss", "train/lr", "held_out/score", "held_out/alpha_1", "held_out/alpha_2"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("curve"))


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    assert main(words_for(place, f"out={place / 'whole'}")) == 0
    return place / "whole"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return make_cli(capsys)


def events_of(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every point of every tag, as TensorBoard shows them."""
    pytest.importorskip("tensorboard")
    reader = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    found = reader.EventAccumulator(str(folder))
    found.Reload()
    tags = found.Tags()["scalars"]
    return {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in tags}


def steps_of(folder: Path) -> list[int]:
    return [step for step, _ in events_of(folder)["held_out/score"]]


def check_events(folder: Path) -> None:
    """They are the looks of the card."""
    events, looks = events_of(folder / "work/tensorboard"), card_of(folder)["training"]["looks"]
    assert events.keys() == TAGS
    for name in ("score", "alpha 1", "alpha 2", "loss"):
        tag = f"{'train' if name == 'loss' else 'held_out'}/{name.replace(' ', '_')}"
        due = [(look["step"], look[name]) for look in looks if name in look]
        assert events[tag] == [(step, pytest.approx(value)) for step, value in due]


# --- TensorBoard ---------------------------------------------------------------------------------


def test_every_look_is_a_point_of_each_figure(cli: Cli, place: Path, whole: Path) -> None:
    done = cli(*words_for(place, "out=o", "train.tensorboard=true"))
    assert done.code == 0, done.err
    check_events(Path("o"))
    options = LoopOptions(steps=STEPS, warmup=2, lr=0.02)
    rates = [(step, pytest.approx(rate(max(step - 1, 0), options))) for step in (0, 6, 12)]
    assert events_of(Path("o/work/tensorboard"))["train/lr"] == rates
    assert same_weights(Path("o"), whole)
    assert card_of(Path("o"))["training"]["options"] == card_of(whole)["training"]["options"]


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("step", [3, 7, 8, 12])
def test_after_a_kill_no_step_is_there_twice(cli: Cli, place: Path, step: int) -> None:
    """States are of steps 4, 8 and 12: killed in the seventh step, the look at step 6 is made again."""
    words = words_for(place, "out=o", "train.tensorboard=true")
    with interrupted(loop, "_step", step, KeyboardInterrupt):
        stopped(cli, words)
    assert steps_of(Path("o/work/tensorboard")) == ([0, 6] if step > 6 else [0])
    assert cli(*words).code == 0
    check_events(Path("o"))
    files = list(Path("o/work/tensorboard").iterdir())
    assert len(files) == 2
    assert cli(*words).code == 0  # after the end there is nothing to add
    check_events(Path("o"))
    assert list(Path("o/work/tensorboard").iterdir()) == files


def test_what_only_an_older_run_saw_is_hidden(tmp_path: Path) -> None:
    """Killed behind the look at step 20, it goes on from step 10; the new 20 stands, and no old one."""
    pytest.importorskip("tensorboard")
    looks = [{"step": n, "score": n / 100} for n in (0, 10, 20)]
    first, second = (Events(tmp_path, LoopOptions()) for _ in range(2))
    for count in (1, 2, 3):
        first.look(Progress(looks=looks[:count]))
    second.look(Progress(looks=[*looks[:2], {"step": 20, "score": 0.5}]))
    assert events_of(tmp_path)["held_out/score"] == [(0, 0), (10, pytest.approx(0.1)), (20, 0.5)]


def test_switched_on_later_it_has_what_was_before(cli: Cli, place: Path) -> None:
    words = words_for(place, "out=o")
    with interrupted(loop, "_step", 9, KeyboardInterrupt):
        stopped(cli, words)
    assert not Path("o/work/tensorboard").exists()
    assert cli(*words, "train.tensorboard=true").code == 0
    check_events(Path("o"))


def test_a_full_disk_leaves_whole_points(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    looks = [{"step": n, "score": 0.5} for n in range(3)]
    events = Events(tmp_path, LoopOptions())
    events.look(Progress(looks=looks[:1]))
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()
    with files_of_at_most(len(before) + 10), pytest.raises(InputError, match="limit on a file"):
        events.look(Progress(looks=looks[:2]))
    assert path.read_bytes() == before
    with files_of_at_most(10), pytest.raises(InputError, match="cannot be written"):
        Events(tmp_path, LoopOptions()).look(Progress(looks=looks[:2]))
    assert list(tmp_path.iterdir()) == [path]
    events.look(Progress(looks=looks[:2]))
    assert steps_of(tmp_path) == [0, 1]


def test_without_the_library_it_names_the_extra(
    cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.summary.writer.record_writer", None)
    words = words_for(place, "out=o", "train.tensorboard=true")
    refused(cli(*words), "train.tensorboard=true", "pip install 'foredraft[tensorboard]'")
    assert not Path("o").exists()


# --- the figure ----------------------------------------------------------------------------------


def test_a_training_leaves_a_figure(whole: Path) -> None:
    pytest.importorskip("matplotlib")
    assert (whole / "training.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_it_shows_alphas_the_loss_and_the_weights_that_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    from foredraft.framework import figures

    kept: list[Any] = []
    saved = figures._saved
    monkeypatch.setattr(figures, "_saved", lambda *a: kept.append(a[0]) or saved(*a))
    looks = [
        {"step": 0, "score": 0.2, "alpha 1": 0.3, "alpha 2": 0.1},
        {"step": 5, "loss": 2.0, "score": 0.5, "alpha 1": 0.6, "alpha 2": 0.4},
        {"step": 9, "loss": 1.0, "score": 0.4, "alpha 1": 0.5, "alpha 2": 0.3},
    ]
    draw_curve(tmp_path / "x.png", looks, 5)
    above, below = kept[0].axes
    drawn = [[list(line.get_xdata()), list(line.get_ydata())] for line in above.lines[:2]]
    assert drawn == [[[0, 5, 9], [0.3, 0.6, 0.5]], [[0, 5, 9], [0.1, 0.4, 0.3]]]
    assert list(below.lines[0].get_xdata()) == [5, 9]
    assert all(list(axes.lines[-1].get_xdata()) == [5, 5] for axes in (above, below))


def test_without_matplotlib_there_is_none_and_nothing_is_said(
    cli: Cli, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curve, "find_spec", lambda name: None)
    done = cli(*words_for(place, "out=o", "train.steps=1"))
    assert done.code == 0 and len(done.err.splitlines()) == 1, done.err
    assert not Path("o/training.png").exists()


def test_a_disk_that_is_full_at_the_figure_has_weights_and_card(cli: Cli, place: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    words = words_for(place, "out=o", "train.steps=1")
    with interrupted(figure.Figure, "savefig", 1, OSError(28, "No space left on device")):
        one_sentence(cli, words, "training.png cannot be written: No space left on device")
    names = {path.name for path in Path("o").iterdir()}
    assert names == {"weights.safetensors", "card.json", "work"}
    assert cli(*words).code == 0 and Path("o/training.png").exists()
