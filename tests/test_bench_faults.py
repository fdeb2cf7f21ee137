"""What ends a sweep from outside, at any moment: a full disk, a folder that may not be written to or is
taken away, Ctrl-C. One sentence says what to do, nothing that was recorded is lost, and the sweep goes on
to the results that it would have had."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_inline import WORDS, Inline, Message, at, kept, write_prompts
from bench_store_helpers import as_nobody
from cli_helpers import Cli, Done, make_cli

from foredraft.framework.bench import hand, sweeping
from foredraft.framework.bench.grid import Sweep, read
from foredraft.framework.bench.store import Store
from foredraft.framework.cli.main import main

POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX users and limits")
CELLS, UNITS = 4, 3
pytestmark = pytest.mark.usefixtures("only_builtins")


@pytest.fixture(scope="module")
def asked() -> Sweep:
    """What the words ask for; to compose it is most of the work of so small a sweep."""
    return read(WORDS)


@pytest.fixture(scope="module")
def whole(asked: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that nothing happened to."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        prepare(patch, folder, asked)
        assert main(["bench", *WORDS, "bench.dir=r"]) == 0
    assert len(kept(folder / "r")) == CELLS * UNITS
    return folder / "r"


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: Sweep,
    whole: Path,
) -> Cli:
    prepare(monkeypatch, tmp_path, asked)
    return make_cli(capsys)


def prepare(patch: pytest.MonkeyPatch, folder: Path, asked: Sweep) -> None:
    """A folder to be in, with prompts, and a sweep that is composed already."""

    def composed(words: Sequence[str], config_dir: str | None) -> Sweep:
        place = next(word for word in words if word.startswith("bench.dir="))
        options = replace(asked.options, dir=place.removeprefix("bench.dir="))
        return replace(asked, options=options)

    patch.chdir(folder)
    patch.setattr(hand, "Worker", Inline)
    patch.setattr(Inline, "heard", [])
    patch.setattr(sweeping, "read", composed)
    write_prompts()


def last_line(done: Done, code: int, *words: str) -> None:
    """The command ended with one sentence that has the words, and without a trace."""
    assert done.code == code, done
    assert "Traceback" not in done.err and "unexpected" not in done.err, done.err
    line = done.err.splitlines()[-1]
    for word in words:
        assert word in line, line


def goes_on(cli: Cli, whole: Path, folder: str = "r") -> None:
    """What was begun comes to the results of an undisturbed sweep."""
    before = kept(folder)
    Inline.before = staticmethod(lambda message: None)
    Inline.heard = []
    done = cli("bench", f"bench.resume={folder}")
    assert done.code == 0, done.err
    assert sum(message["do"] == "run" for message in Inline.heard) == CELLS * UNITS - len(before)
    after = kept(folder)
    assert after == kept(whole) and before.items() <= after.items()
    assert Store.open(folder).verdicts() == Store.open(whole).verdicts()
    assert Store.open(folder).traces() == Store.open(whole).traces()
    assert Path(folder, "report.html").is_file()


@contextmanager
def refusing(part: str, number: int, code: int) -> Iterator[None]:
    """Files whose path has this part take half of what is written the so-manyth time, and no more."""
    opened, wrote = os.open, os.write
    write_bytes = Path.write_bytes
    paths: dict[int, str] = {}
    left = number

    def refused() -> OSError:
        return OSError(code, os.strerror(code))

    def open_(path: Any, *args: Any, **kwargs: Any) -> int:
        file = opened(path, *args, **kwargs)
        paths[file] = str(path)
        return file

    def write(file: int, data: Any) -> int:
        nonlocal left
        if part in paths.get(file, ""):
            left -= 1
            if left <= 0:
                wrote(file, bytes(data[: len(data) // 2])) if left == 0 else None
                raise refused()
        return wrote(file, data)

    def whole_file(path: Path, data: bytes) -> int:
        if part in str(path):
            raise refused()
        return write_bytes(path, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", open_)
        patch.setattr(os, "write", write)
        patch.setattr(Path, "write_bytes", whole_file)
        yield


@pytest.mark.parametrize(
    ("part", "number", "runs", "code", "help_"),
    [
        ("records", 1, 0, errno.ENOSPC, "make room"),
        ("records", 6, 5, errno.EROFS, "make it writable"),
        ("verdicts", 2, 12, errno.ENOSPC, "make room"),
        ("traces", 1, 12, errno.EROFS, "make it writable"),
    ],
)
def test_a_disk_that_takes_no_more_ends_a_sweep_that_goes_on_later(
    cli: Cli, whole: Path, part: str, number: int, runs: int, code: int, help_: str
) -> None:
    with refusing(part, number, code):
        done = cli("bench", *WORDS, "bench.dir=r")
    resume = f"{help_}, and go on with bench.resume={Path('r').resolve()}."
    last_line(done, 2, str(Path("r", part).resolve()), os.strerror(code), resume)
    assert len(kept("r")) == runs
    goes_on(cli, whole)


def test_a_disk_that_is_full_at_once_leaves_no_folder(cli: Cli) -> None:
    with refusing("run.json", 1, errno.ENOSPC):
        done = cli("bench", *WORDS, "bench.dir=r")
    last_line(done, 2, str(Path("r").resolve()), "No space left", "make room")
    assert ".foredraft" not in done.err
    assert sorted(path.name for path in Path().iterdir()) == ["p.jsonl"]


def test_a_report_that_cannot_be_written_names_the_way_to_another_folder(
    cli: Cli, whole: Path
) -> None:
    with refusing("report.html", 1, errno.ENOSPC):
        done = cli("bench", *WORDS, "bench.dir=r")
    words = f"foredraft report {Path('r').resolve()} out=DIR"
    last_line(done, 2, "report.html cannot be written: No space left", words)
    assert len(kept("r")) == CELLS * UNITS and "prompt_lookup" in done.out
    Path("other").mkdir()
    assert cli("report", "r", "out=other").code == 0 and Path("other/report.html").is_file()
    goes_on(cli, whole)


@POSIX
def test_a_limit_on_the_size_of_files_is_like_a_full_disk(cli: Cli, whole: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = (whole / "run.json").stat().st_size + 2000  # the page is larger, all else is smaller
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        done = cli("bench", *WORDS, "bench.dir=r")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    last_line(done, 2, "report.html cannot be written: File too large", "out=DIR")
    goes_on(cli, whole)


@pytest.fixture
def guarded(cli: Cli, whole: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to be in, with a sweep in it, and one for reports, of which this process, even one of
    root's, may write to the latter only."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        shutil.copytree(whole, folder / "sweeps" / "run")
        (folder / "reports").mkdir()
        (folder / "reports").chmod(0o777)
        folder.chmod(0o755)
        for path in (folder / "sweeps", *(folder / "sweeps").rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        monkeypatch.chdir(folder)
        write_prompts()
        with as_nobody(folder):
            yield folder
        monkeypatch.undo()  # nobody is to be in a folder that is gone


@POSIX
def test_a_folder_that_may_only_be_read_is_reported_elsewhere(cli: Cli, guarded: Path) -> None:
    run, reports = guarded / "sweeps" / "run", guarded / "reports"
    new = cli("bench", *WORDS, f"bench.dir={guarded}/sweeps/new")
    last_line(
        new, 2, f"{guarded}/sweeps/new cannot be written: Permission denied; make it writable"
    )
    last_line(cli("bench", f"bench.resume={run}"), 2, str(run), "Permission denied", "writable")
    said = f"foredraft report {run} out=DIR writes the report to another folder."
    last_line(cli("report", str(run)), 2, "report.html cannot be written: Permission denied", said)
    assert cli("report", str(run), f"out={reports}").code == 0
    assert {path.name for path in reports.iterdir()} == {"report.html", "summary.md", "summary.csv"}
    assert cli("compare", str(run), str(run)).code == 0


@pytest.mark.parametrize("out", ["p.jsonl", "none", "none/at/all"])
def test_a_report_needs_a_folder(cli: Cli, whole: Path, out: str) -> None:
    last_line(cli("report", str(whole), f"out={out}"), 2, f"{out}/report.html cannot be written")


INTERRUPTS = {
    "first load": ("load", 1, 0),
    "later run": ("run", 8, 7),
    "later verdict": ("verdict", 3, 12),
    "answers": ("trace", 2, 12),
}


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("when", INTERRUPTS)
def test_ctrl_c_keeps_what_was_done(
    cli: Cli, whole: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, number, runs = INTERRUPTS[when]
    monkeypatch.setattr(Inline, "before", staticmethod(at(kind, number, interrupt)))
    done = cli("bench", *WORDS, "bench.dir=r")
    last_line(done, 130, f"foredraft bench bench.resume={Path('r').resolve()}")
    assert len(kept("r")) == runs
    goes_on(cli, whole)


@pytest.mark.parametrize("kind", ["about", "open"])
def test_ctrl_c_before_the_first_run_leaves_nothing_half_made(
    cli: Cli, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inline, "before", staticmethod(at(kind, 1, interrupt)))
    done = cli("bench", *WORDS, "bench.dir=r")
    last_line(done, 130, "stopped before the first run")
    assert not list(Path().glob(".foredraft*"))
    if Path("r").exists():
        assert kept("r") == {}


def test_ctrl_c_while_the_report_is_written_says_how_to_have_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("foredraft.framework.bench.report.writing.render", lambda pages: interrupt())
        done = cli("bench", *WORDS, "bench.dir=r")
    last_line(done, 130, f"foredraft bench bench.resume={Path('r').resolve()}")
    assert len(kept("r")) == CELLS * UNITS and cli("bench", "bench.resume=r").code == 0
    assert Path("r/report.html").is_file()


@pytest.mark.parametrize(("kind", "number", "runs"), [("run", 5, 4), ("verdict", 1, 12)])
def test_a_folder_that_is_taken_away_is_named_and_goes_on_when_it_is_back(
    cli: Cli, whole: Path, kind: str, number: int, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        Path("r").rename("elsewhere")

    monkeypatch.setattr(Inline, "before", staticmethod(at(kind, number, away)))
    done = cli("bench", *WORDS, "bench.dir=r")
    resume = f"put back what was taken away, and go on with bench.resume={Path('r').resolve()}."
    last_line(done, 2, "No such file or directory", resume)
    Path("elsewhere").rename("r")
    assert len(kept("r")) == runs
    goes_on(cli, whole)


def test_answers_that_cannot_be_right_cost_the_sweep_nothing(
    cli: Cli, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin may report anything; here its probabilities are none."""

    def spoiled(self: Inline, message: Message) -> Message:
        answer = ask(self, message)
        for one in answer.get("answers", []):
            one["rounds"][0]["own"][0]["draft_prob"] = float("nan")
        return answer

    ask = Inline.ask
    monkeypatch.setattr(Inline, "ask", spoiled)
    assert cli("bench", *WORDS, "bench.dir=r").code == 0
    assert kept("r") == kept(whole) and Store.open("r").traces() == {}
