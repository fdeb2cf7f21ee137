"""``foredraft train`` on a disk that takes no more: one sentence, and a folder that the command goes on from."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from cli_helpers import Cli, make_cli
from train_helpers import (
    PROMPTS,
    card_of,
    files_of_at_most,
    interrupted,
    make_place,
    one_sentence,
    same_weights,
    words_for,
)
from transformers import PreTrainedModel

from foredraft.framework.bench import lines
from foredraft.framework.cli.main import main
from foredraft.framework.training import curve
from foredraft.framework.training import state as states

pytestmark = pytest.mark.usefixtures("only_builtins", "no_figures")
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
QUOTA = OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("disk"))


@pytest.fixture(scope="module")
def whole(place: Path) -> Path:
    assert main(words_for(place, f"out={place / 'whole'}")) == 0
    return place / "whole"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return make_cli(capsys)


# --- what the system says ------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "where"), [(18_000, "features"), (1_700, "answers.jsonl")])
def test_a_full_disk_is_one_sentence_and_the_command_goes_on_later(
    cli: Cli, place: Path, whole: Path, size: int, where: str
) -> None:
    words = words_for(place, "out=o")
    with files_of_at_most(size):
        one_sentence(cli, words, where)
    assert not Path("o/card.json").exists()
    kept = answered(Path("o"))
    assert cli(*words).code == 0
    assert answered(Path("o"))[: len(kept)] == kept and len(answered(Path("o"))) == PROMPTS
    assert same_weights(Path("o"), whole)


def answered(folder: Path) -> list[str]:
    return (folder / "work/answers.jsonl").read_text("utf-8").splitlines()


def test_a_disk_that_is_full_at_the_end_loses_no_step(cli: Cli, place: Path, whole: Path) -> None:
    shutil.copytree(whole, "o")
    for name in ("weights.safetensors", "card.json"):
        Path("o", name).unlink()
    words = words_for(place, "out=o")
    with files_of_at_most(5_000):
        one_sentence(cli, words, "weights.safetensors")
    assert cli(*words).code == 0 and same_weights(Path("o"), whole)


def test_a_disk_that_is_full_at_the_begin_leaves_a_folder_that_can_be_used(
    cli: Cli, place: Path
) -> None:
    words = words_for(place, "out=o", "train.steps=1")
    with files_of_at_most(10):
        one_sentence(cli, words, "train.json")
    assert cli(*words).code == 0


SMALL_DISK = """
import contextlib, io, json, os, subprocess, sys
from pathlib import Path
from foredraft.framework.cli.main import main
disk, report, words = sys.argv[1], sys.argv[2], sys.argv[3:]
tries = []
for size in range(8, 600, 24):
    subprocess.run(["mount", "-o", f"remount,size={size}k", disk], check=True)
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main(words)
    left = sum(place.name.endswith(".partial") for place in Path(disk).rglob("*"))
    tries.append([code, said.getvalue().splitlines(), left])
    if code != 2:
        break
Path(report).write_text(json.dumps(tries))
subprocess.run(["cp", "-r", disk + "/o", os.path.dirname(report)], check=True)
"""


@pytest.mark.slow
def test_on_a_real_disk_that_grows_bit_by_bit_it_comes_to_the_same_end(
    place: Path, whole: Path, tmp_path: Path
) -> None:
    """24 kilobytes more each time, so that it is full at one place after the other."""
    disk, report = tmp_path / "disk", tmp_path / "report"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=8k none {disk}"
    if (
        not shutil.which("unshare")
        or subprocess.run(
            ["unshare", "-rm", "sh", "-c", mount], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("no disk of one's own can be mounted here")
    words = words_for(
        place, f"out={disk / 'o'}", "train.tensorboard=true", "train.evaluate_every=3"
    )
    script = [sys.executable, "-c", SMALL_DISK, str(disk), str(report), *words]
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh", *script],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *full, (code, said, left) = json.loads(report.read_text())
    assert code == 0 and not left, said
    for code, said, left in full:
        assert code == 2 and len(said) == 1 and said[0].startswith("foredraft: ") and not left, said
        assert "No space left on device" in said[0]
    where = {name for name in ("answers", "features", "state/step", "weights") for _, (line,), _ in full
             if name in line}  # fmt: skip
    assert where >= {"features", "state/step"}, full
    assert same_weights(tmp_path / "o", whole)


# --- every place that writes ---------------------------------------------------------------------


@contextmanager
def full_at(part: str, error: OSError, call: int = 1) -> Iterator[None]:
    """A disk that is full when a file of such a name, or a folder, is written for the so-manyth time; some
    of it is written before."""
    left = [call]

    def through(real: Any) -> Any:
        def write(*args: Any, **kwargs: Any) -> Any:
            name = next((n for n in map(named, args) if part in n), "")
            left[0] -= bool(name)
            if name and left[0] <= 0:
                if real.__name__ != "mkdir" and os.path.isdir(os.path.dirname(name)):
                    with open(name, "ab") as file:
                        file.write(b"half")
                raise error
            return real(*args, **kwargs)

        return write

    with pytest.MonkeyPatch.context() as patch:
        for owner, writer in WRITERS:
            patch.setattr(owner, writer, through(getattr(owner, writer)))
        yield
    assert left[0] <= 0, "nothing was written there"


WRITERS = [
    (safetensors.torch, "save_file"), (states, "save_file"), (states, "save_model"),
    (lines, "write_all"), (curve, "write_all"), (Path, "write_text"), (Path, "mkdir"),
]  # fmt: skip


def named(argument: Any) -> str:
    """The path that an argument is, or that an open file has."""
    if type(argument) is int:
        place = Path(f"/proc/self/fd/{argument}")
        return os.readlink(place) if place.exists() else ""
    return os.fspath(argument) if isinstance(argument, str | os.PathLike) else ""


PLACES = {
    "train.json": (FULL, 1, "train.json"),
    "answers.jsonl": (QUOTA, 3, "answers.jsonl"),
    "work/features": (QUOTA, 1, "features"),
    "features/00000.safetensors": (FULL, 1, "features/00000.safetensors"),
    "step-0000004.partial": (QUOTA, 1, "step-0000004"),
    "step-0000008.partial/weights": (FULL, 1, "step-0000008"),
    "step-0000008.partial/moments": (QUOTA, 1, "step-0000008"),
    "step-0000008.partial/best": (FULL, 1, "step-0000008"),
    "step-0000012.partial/state.json": (QUOTA, 1, "step-0000012"),
    "work/tensorboard": (FULL, 1, "tensorboard"),
    "tfevents": (QUOTA, 2, "events.out.tfevents"),
    "o/weights.safetensors": (QUOTA, 1, "weights.safetensors"),
    "o/card.json": (FULL, 1, "card.json"),
}


@pytest.mark.parametrize("part", PLACES)
def test_wherever_it_is_full_it_is_one_sentence_and_the_same_end_later(
    cli: Cli, place: Path, whole: Path, part: str
) -> None:
    words = words_for(place, "out=o", "train.tensorboard=true")
    error, call, said = PLACES[part]
    with full_at(part, error, call):
        one_sentence(cli, words, said, str(error.strerror))
    assert not Path("o/card.json").exists()
    assert cli(*words).code == 0
    assert same_weights(Path("o"), whole) and not list(Path("o").rglob("*.partial"))
    for key in ("held_out", "target", "shape"):
        assert card_of(Path("o"))[key] == card_of(whole)[key]
    assert card_of(Path("o"))["training"]["looks"] == card_of(whole)["training"]["looks"]


@pytest.mark.parametrize("part", ["save_pretrained", "ids.safetensors"])
def test_a_disk_that_is_full_at_a_whole_model(cli: Cli, place: Path, part: str) -> None:
    """And at its map of ids, without which the folder would be another model's."""
    words = [word for word in words_for(place, "out=o", "train.vocabulary=16", "train.steps=2")
             if "heads" not in word]  # fmt: skip
    words[1:2] = ["drafter=causal_lm", "train.shape.hidden_size=16", "train.shape.layers=1"]
    model = interrupted(PreTrainedModel, "save_pretrained", 1, FULL)
    with model if part == "save_pretrained" else full_at(part, FULL):
        one_sentence(cli, words, "cannot be written", "No space left on device")
    assert not Path("o/card.json").exists()
    assert cli(*words).code == 0 and Path("o/ids.safetensors").exists()
