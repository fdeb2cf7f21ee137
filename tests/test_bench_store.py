"""A sweep's folder: kills at any byte, full and read-only disks, links, two writers, hand edits."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bench_store_helpers import CELLS, PLAN, PROMPTS, UNITS, as_nobody, cell, manifest, record

from foredraft.framework.bench import lines
from foredraft.framework.bench.disk import Unwritable
from foredraft.framework.bench.store import Store
from foredraft.framework.errors import InputError

POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX kills, limits and links")
NGRAM = CELLS[0]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.create(tmp_path / "run", manifest()) as made:
        yield made


def path_of(store: Store, name: str = NGRAM) -> Path:
    return store.folder / "records" / f"{name}.jsonl"


def refuses(call: Callable[..., object], *words: str, kind: type = InputError) -> None:
    """One sentence that has the words."""
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text and text.endswith("."), text
    for word in words:
        assert word in text, text


def tree(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


# --- what is written is what is read ------------------------------------------------------------


def test_a_sweep_is_read_as_it_was_written(store: Store) -> None:
    for key in PLAN:
        store.append(record(*key))
    store.fail(NGRAM, "it  fell\nover", "raised", unit=1, repeat=0)
    store.put_verdict(NGRAM, {"verdict": "same", "gap": float("inf")})
    store.close()
    found = Store.open(store.folder)
    assert found.cells == [cell(name) for name in CELLS]
    assert (found.units, found.prompts) == (UNITS, PROMPTS)
    assert found.manifest["options"] == manifest()["options"]
    assert list(found.records()) == [record(*k) for name in CELLS for k in PLAN if k[0] == name]
    assert found.done() == set(PLAN)
    failure = found.failures()[NGRAM]
    assert (failure["cause"], failure["kind"], failure["unit"]) == ("it fell over", "raised", 1)
    assert found.verdicts() == {NGRAM: {"verdict": "same", "gap": "inf"}}


def test_the_last_failure_of_a_cell_stands(store: Store) -> None:
    store.fail(NGRAM, "once", "hung")
    store.fail("plain", "too", "memory")
    store.fail(NGRAM, "twice", "killed")
    found = Store.open(store.folder).failures()
    assert {name: one["cause"] for name, one in found.items()} == {NGRAM: "twice", "plain": "too"}


def test_no_run_is_recorded_twice(store: Store) -> None:
    store.append(record(NGRAM, 0, 0))
    refuses(lambda: store.append(record(NGRAM, 0, 0)), "unit 0, repeat 0", NGRAM, "already")
    store.close()
    again = Store.open(store.folder, write=True)
    refuses(lambda: again.append(record(NGRAM, 0, 0)), "already")
    assert len(path_of(store).read_bytes().splitlines()) == 1


def test_all_is_on_the_disk_before_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut leaves no file without its content; of that a test sees the order of calls only."""
    calls: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*args: Any) -> Any:
            calls.append(name)
            return real(*args)

        return call

    for name in ("write", "fsync", "replace", "rename"):
        monkeypatch.setattr(os, name, noted(name))
    store = Store.create(tmp_path / "run", manifest())
    file = ["write", "fsync", "replace", "fsync"]
    assert calls[:10] == [*file, *file, "fsync", "rename"]
    calls.clear()
    store.append(record(NGRAM, 0, 0))
    store.append(record(NGRAM, 1, 0))
    # The folder is told of a new file once.
    assert calls == ["write", "fsync", "fsync", "write", "fsync"]
    store.close()


# --- kills ---------------------------------------------------------------------------------------

WRITER = """
import os, signal, sys
sys.path.insert(0, {path!r})
from bench_store_helpers import PLAN, record
from foredraft.framework.bench import disk
from foredraft.framework.bench.store import Store
assert "torch" not in sys.modules
real = os.write
def dying(left):
    # Writes in pieces, and is killed behind so many of them.
    def write(file, data):
        nonlocal left
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return real(file, bytes(data[:512]))
    return write
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        disk.os.write = dying(int(line))
        store = Store.open({folder!r}, write=True)
        for key in PLAN:
            if key not in store.done():
                store.append(record(*key, ids=3000))
                print("done", *key, flush=True)
        print("end", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print("dead", flush=True)
"""


@contextmanager
def python(script: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def heard(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def tell(process: subprocess.Popen[str], pieces: int) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{pieces}\n")
    process.stdin.flush()


def key(one: dict[str, Any]) -> tuple[str, int, int]:
    return one["cell"], one["unit"], one["repeat"]


def is_torn(folder: Path) -> bool:
    files = [path.read_bytes() for path in (folder / "records").glob("*.jsonl")]
    return any(data and not data.endswith(b"\n") for data in files)


@POSIX
def test_twenty_kills_lose_no_run_and_repeat_none(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    Store.create(folder, manifest()).close()
    moments, kept, torn = random.Random(0), set(), 0
    with python(WRITER.format(path=str(Path(__file__).parent), folder=str(folder))) as process:
        for _ in range(20):
            tell(process, moments.randrange(1, 80))
            while (words := heard(process)) != ["dead"]:
                if words[0] == "done":
                    kept.add((words[1], int(words[2]), int(words[3])))
            torn += is_torn(folder)
            found = list(Store.open(folder).records())
            assert all(one == record(*key(one), ids=3000) for one in found)
            # A run may be on the disk whose writer died before it could say so; none is lost.
            assert kept <= {key(one) for one in found}
        tell(process, -1)
        while (words := heard(process)) != ["dead"]:
            last = words
    assert last == ["end"] and torn > 10
    assert Store.open(folder).done() == set(PLAN) and not is_torn(folder)


def test_a_line_cut_at_any_byte_counts_for_nothing(store: Store) -> None:
    first, second = record(NGRAM, 0, 0), record(NGRAM, 1, 0)
    store.append(first)
    begin = len(path_of(store).read_bytes())
    store.append(second)
    store.close()
    whole, reader = path_of(store).read_bytes(), Store.open(store.folder)
    for end in range(begin, len(whole)):
        path_of(store).write_bytes(whole[:end])
        assert list(reader.records()) == [first], end
    for end in (begin + 1, begin + 200, len(whole) - 1):
        path_of(store).write_bytes(whole[:end])
        with Store.open(store.folder, write=True) as again:
            again.append(second)
        assert path_of(store).read_bytes() == whole


def test_a_tail_longer_than_a_block_is_cut_off(store: Store) -> None:
    store.append(record(NGRAM, 0, 0))
    whole = path_of(store).read_bytes()
    for torn in (b"{" * (3 * lines._BLOCK + 5), b"\0" * 4096):  # zeros are what a power cut leaves
        path_of(store).write_bytes(whole + torn)
        assert len(list(store.records())) == 1
    store.append(record(NGRAM, 1, 0))
    assert [one["unit"] for one in store.records()] == [0, 1]


BUILDER = """
import os, signal, sys
sys.path.insert(0, {path!r})
from bench_store_helpers import manifest
from foredraft.framework.bench.store import Store
for name in ("mkdir", "fsync", "replace", "rename"):
    child = os.fork()
    if child == 0:
        setattr(os, name, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        Store.create({folder!r}, manifest())
    killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    print(name, killed and not os.path.exists({folder!r}), flush=True)
"""


@POSIX
def test_a_folder_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    """A process dies at four places of building it."""
    folder = tmp_path / "run"
    with python(BUILDER.format(path=str(Path(__file__).parent), folder=str(folder))) as process:
        for name in ("mkdir", "fsync", "replace", "rename"):
            assert heard(process) == [name, "True"]
    left = next(tmp_path.glob(".foredraft-bench-*"))
    os.utime(left, (0, 0))
    Store.create(folder, manifest()).close()
    assert Store.open(folder).prompts == PROMPTS
    assert not left.exists()


# --- a disk that takes no more ------------------------------------------------------------------


@contextmanager
def full_after(count: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The disk takes so many bytes more."""
    left, real = count, os.write

    def write(file: int, data: Any) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = real(file, bytes(data[:left]))
        left -= done
        return done

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        yield


WRITES: dict[str, Callable[[Store], object]] = {
    "append": lambda store: store.append(record(NGRAM, 1, 0)),
    "fail": lambda store: store.fail(NGRAM, "it fell over", "raised"),
    "verdict": lambda store: store.put_verdict(NGRAM, {"verdict": "other"}),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_full_disk_leaves_what_was_there(
    store: Store, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(record(NGRAM, 0, 0))
    store.put_verdict(NGRAM, {"verdict": "same"})
    store.fail("plain", "earlier", "hung")
    before = tree(store.folder)
    with full_after(10, monkeypatch):
        refuses(lambda: WRITES[name](store), "cannot be written", "No space left", kind=Unwritable)
    assert tree(store.folder) == before
    WRITES[name](store)
    assert tree(store.folder) != before


def test_a_full_disk_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with full_after(100, monkeypatch):
        refuses(lambda: Store.create(tmp_path / "run", manifest()), "No space left")
    assert list(tmp_path.iterdir()) == []


@POSIX
def test_a_limit_of_the_system_is_like_a_full_disk(store: Store) -> None:
    import resource

    store.append(record(NGRAM, 0, 0))
    size = path_of(store).stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50, hard))
    try:
        refuses(lambda: store.append(record(NGRAM, 1, 0)), str(path_of(store)), kind=Unwritable)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path_of(store).stat().st_size == size
    store.append(record(NGRAM, 1, 0))


def test_ctrl_c_in_a_line_leaves_no_part_of_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(file: int, data: Any) -> int:
        real(file, bytes(data[:20]))
        raise KeyboardInterrupt

    real = os.write
    store.append(record(NGRAM, 0, 0))
    before = tree(store.folder)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "write", interrupted)
        store.append(record(NGRAM, 1, 0))
    assert tree(store.folder) == before


@pytest.fixture
def guarded() -> Iterator[Path]:
    """A folder that this process, even one of root's, may read only."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        Store.create(folder / "run", manifest()).close()
        for path in (folder, folder / "run", *(folder / "run").rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        with as_nobody(folder):
            yield folder


@POSIX
def test_a_read_only_folder_is_read_but_not_written(guarded: Path) -> None:
    refuses(lambda: Store.create(guarded / "new", manifest()), "new", "Permission denied")
    found = Store.open(guarded / "run")
    assert found.done() == set()
    refuses(lambda: found.append(record(NGRAM, 0, 0)), "run", "Permission denied")
    refuses(lambda: Store.open(guarded / "run", write=True), "run", "Permission denied")


# --- places where no sweep can be ---------------------------------------------------------------


def test_no_folder_with_anything_in_it_is_taken(store: Store, tmp_path: Path) -> None:
    refuses(lambda: Store.create(store.folder, manifest()), "bench.resume=", "holds a sweep")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".hidden").touch()
    refuses(lambda: Store.create(tmp_path / "other", manifest()), "holds files already")
    refuses(lambda: Store.create(tmp_path / "other/.hidden", manifest()), "is no folder")
    refuses(lambda: Store.create(tmp_path / "no/where", manifest()), str(tmp_path / "no"))
    refuses(lambda: Store.create("a\0b", manifest()), "can be no folder")
    assert not list(tmp_path.glob(".foredraft*"))


def test_an_empty_folder_is_taken_also_behind_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    with Store.create(tmp_path / "link", manifest()) as store:
        assert store.folder == (tmp_path / "empty").resolve()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    refuses(lambda: Store.create(".", manifest()), "the folder you are in")


def test_of_two_that_begin_at_once_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.rename

    def beaten(here: Any, there: Any) -> None:
        monkeypatch.setattr(os, "rename", real)
        Store.create(tmp_path / "run", manifest(command="first")).close()
        real(here, there)

    monkeypatch.setattr(os, "rename", beaten)
    refuses(lambda: Store.create(tmp_path / "run", manifest()), "holds a sweep already")
    assert Store.open(tmp_path / "run").manifest["command"] == "first"


HOLDER = """
import sys
from foredraft.framework.bench.store import Store
store = Store.open({folder!r}, write=True)
print("held", flush=True)
sys.stdin.read()
"""


def test_two_processes_never_share_a_folder(store: Store) -> None:
    refuses(lambda: Store.open(store.folder, write=True), str(store.folder), "another sweep")
    store.close()
    with python(HOLDER.format(folder=str(store.folder))) as process:
        assert heard(process) == ["held"]
        refuses(lambda: Store.open(store.folder, write=True), str(store.folder), "another sweep")
        refuses(lambda: store.append(record(NGRAM, 0, 0)), "another sweep")
        assert Store.open(store.folder).done() == set()
    store.append(record(NGRAM, 0, 0))  # a kill gives the lock back


@POSIX
@pytest.mark.parametrize("place", ["records", f"records/{NGRAM}.jsonl", "failures.jsonl",
                                   "verdicts", ".lock"])  # fmt: skip
def test_nothing_is_written_through_a_link(store: Store, place: str, tmp_path: Path) -> None:
    store.close()
    outside, path = tmp_path / "outside", store.folder / place
    if path.is_dir():
        path.rmdir()
        outside.mkdir()
    else:
        path.unlink(missing_ok=True)
        outside.touch()
    path.symlink_to(outside)
    for write in WRITES.values():
        try:
            write(store)
        except InputError as error:
            assert "link" in str(error)
            break
    else:
        pytest.fail("nothing was refused")
    assert outside.read_bytes() == b"" if outside.is_file() else not any(outside.iterdir())


@POSIX
def test_a_pipe_is_not_waited_for(store: Store) -> None:
    os.mkfifo(path_of(store))
    refuses(lambda: list(store.records()), "it is not a file")
    refuses(lambda: store.append(record(NGRAM, 0, 0)), "it is not a file")
