"""What a sweep's folder refuses to read and to write, what it says of a change, and its tables."""

from __future__ import annotations

import copy
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_store_helpers import CELLS, PLAN, PROMPTS, UNITS, cell, manifest, record

from foredraft.framework.bench import disk, machine
from foredraft.framework.bench.frames import RUN_COLUMNS
from foredraft.framework.bench.store import Store
from foredraft.framework.errors import ConfigError, InputError

NGRAM = CELLS[0]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.create(tmp_path / "run", manifest()) as made:
        yield made


def path_of(store: Store, name: str = NGRAM) -> Path:
    return store.folder / "records" / f"{name}.jsonl"


def refuses(call: Callable[[], object], *words: str) -> None:
    """One sentence that has the words."""
    with pytest.raises(InputError) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text and text.endswith("."), text
    for word in words:
        assert word in text, text


# --- edited by hand -----------------------------------------------------------------------------


def text_with(**changed: Any) -> bytes:
    return json.dumps({**record(NGRAM, 1, 0), **changed}).encode()


def row_with(**changed: Any) -> bytes:
    return text_with(rows=[{**record(NGRAM, 1, 0)["rows"][0], **changed}])


def without(key: str) -> bytes:
    return json.dumps({k: v for k, v in record(NGRAM, 1, 0).items() if k != key}).encode()


EDITS = {
    b"": "not valid JSON",
    b'{"cell": "plain"': "not valid JSON",
    b"[1, 2]": "not a JSON object",
    b"7": "not a JSON object",
    b"\xff\xfe{}": "not UTF-8",
    b'{"cell": "a", "cell": "b"}': "there twice",
    b"[" * 100_000: "not valid JSON",
    b"{}": "its cell is None",
    b'{"a": ' + b"9" * 5000 + b"}": "not valid JSON",
    text_with(note=json.loads("[" * 300 + "]" * 300)): "levels deep",
    text_with(note="\ud800"): "half of a character",
    text_with(cell="plain"): "its cell is 'plain'",
    text_with(cell="../../x"): "its cell is '../../x'",
    text_with(unit=3): "unit=3",
    text_with(unit=-1): "unit=-1",
    text_with(unit=True): "unit=True",
    text_with(repeat="0"): "repeat='0'",
    text_with(repeat=0.0): "repeat=0.0",
    text_with(order=None): "order=None",
    text_with(group="qa"): "group='qa'",
    text_with(seconds=float("nan")): "NaN is not JSON",
    text_with(seconds=float("inf")): "Infinity is not JSON",
    text_with(seconds=1).replace(b'"seconds": 1,', b'"seconds": 1e999,'): "1e999 is too large",
    text_with(seconds=-0.5): "seconds=-0.5",
    text_with(seconds="1"): "seconds='1'",
    text_with(seconds=True): "seconds=True",
    text_with(prefill=99.0): "more than seconds",
    text_with(time={"draft": -1.0}): "time.draft=-1.0",
    text_with(time=[0.5]): "time is not an object",
    text_with(contended=1): "contended=1",
    text_with(started=[]): "no moment",
    text_with(rows=[]): "not those of the prompts [2]",
    text_with(rows={}): "no list of objects",
    text_with(rows=[3]): "no list of objects",
    row_with(prompt=3): "not those of the prompts [2]",
    row_with(ids=[1, -1]): "no list of token ids",
    row_with(ids=[1.0]): "no list of token ids",
    row_with(ids="12"): "no list of token ids",
    row_with(ids=[1 << 70]): "no list of token ids",
    row_with(drafted=-1): "drafted=-1",
    row_with(accepted=9): "accepted=9 is more than drafted=6",
    row_with(reached_at=[None]): "reached_at is no list",
    row_with(overlap=-0.1): "overlap=-0.1",
    row_with(finish=3): "finish=3",
    json.dumps(record(NGRAM, 0, 0)).encode(): "is there twice",
    **{without(key): key for key in ("unit", "repeat", "seconds", "prefill", "rows", "started")},
}


@pytest.mark.parametrize("line", EDITS, ids=range(len(EDITS)))
def test_a_record_changed_by_hand_is_refused_with_its_line(store: Store, line: bytes) -> None:
    store.append(record(NGRAM, 0, 0))
    store.close()
    good = path_of(store).read_bytes()
    path_of(store).write_bytes(good + line + b"\n" + good.replace(b'"repeat": 0', b'"repeat": 1'))
    for call in (lambda: list(store.records()), lambda: Store.open(store.folder, write=True)):
        refuses(call, f"line 2 of {path_of(store)}", EDITS[line])


def test_a_giant_line_is_refused_and_none_is_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foredraft.framework.bench.lines.MOST", 2000)
    monkeypatch.setattr(disk, "MOST", 2000)
    store.append(record(NGRAM, 0, 0))
    refuses(lambda: store.append(record(NGRAM, 1, 0, ids=3000)), "bytes")
    with path_of(store).open("ab") as file:
        file.write(b'{"a": "' + b"x" * 3000 + b'"}\n')
    refuses(lambda: list(store.records()), f"line 2 of {path_of(store)}", "more than 2000 bytes")


@pytest.mark.parametrize("change", [
    {"cell": "other"}, {"seconds": float("nan")}, {"unit": 9}, {"rows": []}, {"note": {1, 2}},
    {"note": float("nan")},
])  # fmt: skip
def test_no_record_is_written_that_could_not_be_read(store: Store, change: dict[str, Any]) -> None:
    refuses(lambda: store.append({**record(NGRAM, 1, 0), **change}))
    assert not path_of(store).exists() or path_of(store).read_bytes() == b""
    store.append(record(NGRAM, 1, 0))


@pytest.mark.parametrize("line, words", [
    (b'{"cell": "x"}', "no cell 'x'"), (b'{"cell": "plain", "kind": "bored"}', "kind='bored'"),
    (b'{"cell": "plain", "kind": "hung"}', "no text"), (b"nonsense", "not valid JSON"),
    (b'{"cell": "plain", "kind": "hung", "cause": "a", "unit": -1}', "unit=-1"),
])  # fmt: skip
def test_failures_changed_by_hand_are_refused(store: Store, line: bytes, words: str) -> None:
    store.fail("plain", "a", "hung")
    with (store.folder / "failures.jsonl").open("ab") as file:
        file.write(line + b"\n")
    refuses(store.failures, "line 2 of", "failures.jsonl", words)


def test_failures_and_verdicts_are_of_cells_there_are(store: Store) -> None:
    refuses(lambda: store.fail("../x", "a", "hung"), "'../x'")
    refuses(lambda: store.fail("plain", "a", "bored"), "kind='bored'")
    refuses(lambda: store.put_verdict("../../x", {}), "'../../x'")
    (store.folder / "verdicts" / "plain.json").write_text("{")
    refuses(store.verdicts, "plain.json", "not valid JSON")


@pytest.mark.parametrize("name", [
    "", ".", "..", "../x", "a/b", "a\\b", "/etc/x", ".lock", "a\nb", "a b", "a:b", "x" * 201, 3,
    None, "CON\0",
])  # fmt: skip
def test_a_cell_cannot_leave_the_folder(tmp_path: Path, name: Any) -> None:
    cells = [cell("plain"), {**cell("plain"), "id": name}]
    refuses(lambda: Store.create(tmp_path / "run", manifest(cells=cells)), "cannot name a file")
    assert not (tmp_path / "run").exists()
    Store.create(tmp_path / "run", manifest()).close()
    edited = json.loads((tmp_path / "run/run.json").read_text())
    edited["cells"][1]["id"] = name
    (tmp_path / "run/run.json").write_text(json.dumps(edited))
    refuses(lambda: Store.open(tmp_path / "run"), "run.json", "cannot name a file")


def edited(store: Store, change: Callable[[dict[str, Any]], object]) -> Callable[[], object]:
    path = store.folder / "run.json"
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
    return lambda: Store.open(store.folder)


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "version": (lambda m: m.update(format="foredraft bench 2"), "this version reads"),
    "format": (lambda m: m.update(format=["foredraft"]), "no manifest"),
    "options": (lambda m: m.pop("options"), "no 'options'"),
    "task": (lambda m: m.update(task="own"), "'task' is not an object"),
    "no cells": (lambda m: m.update(cells={}), "no cells"),
    "deep": (lambda m: m.update(task={"a": json.loads("[" * 300 + "]" * 300)}), "levels deep"),
    "twice": (lambda m: m["cells"].append(cell("PLAIN")), "'PLAIN'"),
    "config": (lambda m: m["cells"][0].update(config=3), "config=3"),
    "lossless": (lambda m: m["cells"][0].update(lossless="yes"), "lossless='yes'"),
    "unit": (lambda m: m["units"][1].update(index=7), "unit 1"),
    "unit's prompt": (lambda m: m["units"][1].update(prompts=[9]), "unit 1"),
    "prompts": (lambda m: m.update(prompts=None), "prompts.jsonl"),
    "count": (lambda m: m["prompts"].update(count=3), "prompts.jsonl"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_manifest_changed_by_hand_is_refused(store: Store, name: str) -> None:
    change, words = CHANGES[name]
    refuses(edited(store, change), str(store.folder), words)


def test_what_is_no_sweep_is_not_opened(store: Store, tmp_path: Path) -> None:
    refuses(lambda: Store.open(tmp_path), str(tmp_path), "run.json")
    refuses(lambda: Store.open(tmp_path / "none"), "run.json")
    prompts = store.folder / "prompts.jsonl"
    text = prompts.read_bytes()
    for changed in (text.replace(b"Question 0", b"Question 9"), text[:-5], text + b"{}\n"):
        prompts.write_bytes(changed)
        refuses(lambda: Store.open(store.folder), "prompts.jsonl")
    prompts.unlink()
    refuses(lambda: Store.open(store.folder), "prompts.jsonl")
    (store.folder / "run.json").write_bytes(b'{"format": "foredraft bench 1"')
    refuses(lambda: Store.open(store.folder), "run.json", "not valid JSON")


# --- what a resumed sweep would change ----------------------------------------------------------


def changed(store: Store, change: Callable[[dict[str, Any]], object]) -> list[str]:
    new = copy.deepcopy(manifest())
    change(new)
    return store.difference(new)


def test_nothing_that_does_not_matter_is_a_difference(store: Store) -> None:
    assert store.difference(manifest()) == []
    free = {"repeats": 2, "minutes": 10, "dir": "b", "on_error": "stop"}
    other = {"command": "another", "started": "later", "commit": "abc", "options": free}
    assert store.difference(manifest(**other)) == []
    assert changed(store, lambda m: m["hardware"].update(memory_gib=7.9)) == []


DIFFERENT: dict[str, Callable[[dict[str, Any]], object]] = {
    f"cell {NGRAM}: policy.gamma was 3, is 5": (
        lambda m: m["cells"][0]["config"]["policy"].update(gamma=5)
    ),
    f"cell {NGRAM}: target.order was 1, is 1.0": (
        lambda m: m["cells"][0]["config"]["target"].update(order=1.0)
    ),
    "all 2 cells: seed was not there, is 1": (
        lambda m: [one["config"].update(seed=1) for one in m["cells"]]
    ),
    "cell plain: lossless was true, is false": lambda m: m["cells"][1].update(lossless=False),
    "cell plain: drafter.name was none, is ngram": (
        lambda m: m["cells"][1]["config"]["drafter"].update(name="ngram")
    ),
    "cell more is new among the cells": lambda m: m["cells"].append(cell("more")),
    f"cell {NGRAM} is no longer among the cells": lambda m: m["cells"].pop(0),
    "bench.repeats was 2, is 3": lambda m: m["options"].update(repeats=3),
    'task.groups was ["qa", "math"], is ["qa"]': lambda m: m["task"].update(groups=["qa"]),
    "prompts: there were 4, there are 5": (
        lambda m: m.update(prompts=[*PROMPTS, {**PROMPTS[0], "index": 4}])
    ),
    "prompts: they are as many as they were, but not the same": (
        lambda m: m["prompts"][2].update(content="Another?")
    ),
    "units: the prompts are put together in other batches or another order": (
        lambda m: m["units"][0].update(prompts=[1, 0])
    ),
    "versions.torch was 2.13.0, is 2.12.0": lambda m: m["versions"].update(torch="2.12.0"),
    "versions.transformers was 5.24.0, is not there": lambda m: m["versions"].pop("transformers"),
    "hardware.threads was 1, is 2": lambda m: m["hardware"].update(threads=2),
}


@pytest.mark.parametrize("sentence", DIFFERENT)
def test_what_would_change_is_said(store: Store, sentence: str) -> None:
    assert changed(store, DIFFERENT[sentence]) == [sentence]


# --- whose machine it was -----------------------------------------------------------------------


def test_no_home_folder_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home" / "jdoe"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.setenv("A_SECRET", "s3cr3t")
    model = f"{home}/models/m"
    plain = cell("plain", target={"name": "causal_lm", "model": model})
    cells = [{**plain, "overrides": [f"target.model={model}"]}]
    words = ["bench", f"target.model={model}", f"task.file=[{home}/a.jsonl,b/c.jsonl]"]
    planned = manifest(cells=cells, command=machine.command(["foredraft", *words]))
    with Store.create(home / "run", planned) as store:
        store.fail("plain", f"{home}/x.py has line 3", "raised")
        store.put_verdict("plain", {"verdict": "same", "says": f"see {home}"})
    for path in (home / "run").rglob("*"):
        text = path.read_text() if path.is_file() else ""
        assert "jdoe" not in text and "s3cr3t" not in text, path
    found = Store.open(home / "run")
    assert found.manifest["command"].split()[1:] == [
        "bench", "target.model=m", "'task.file=[a.jsonl,b/c.jsonl]'",
    ]  # fmt: skip
    assert found.cells == cells  # and another reader's home takes its place
    assert found.difference(planned) == []
    assert found.failures()["plain"]["cause"] == "<home>/x.py has line 3"


@pytest.mark.parametrize("word, shown", [
    ("drafter=ngram", "drafter=ngram"), ("target=mine/fast", "target=mine/fast"),
    ("/usr/bin/foredraft", "foredraft"), ("out=~/a/b.json", "out=b.json"),
    ("out=~jdoe/b.json", "out=b.json"), ("task.file=../jdoe/q.jsonl", "task.file=q.jsonl"),
    ("task.file='/data/my own/q.jsonl'", "task.file='q.jsonl'"),
    ("a=[/x/y,z,{k: /u/v/}]", "a=[y,z,{k: v}]"), ("C:\\Users\\jdoe\\q.jsonl", "q.jsonl"),
    ("u=http://jdoe:pw@host/x", "u=http://host/x"), ("x=1/2", "x=1/2"),
])  # fmt: skip
def test_a_command_names_files_not_places(word: str, shown: str) -> None:
    import shlex

    assert shlex.split(machine.command([word])) == [shown]


def test_the_machine_is_described_without_its_name() -> None:
    import platform

    found = machine.hardware(threads=1, device="cpu")
    assert found["cores"] >= 1 and found["memory_gib"] > 0 and found["cpu"]
    assert platform.node() not in json.dumps(found).split('"')
    assert machine.versions().keys() >= {"torch", "transformers", "foredraft"}
    commit = machine.commit()
    assert commit is None or re.fullmatch(r"[0-9a-f]{12,40}(-dirty)?", commit)


def test_a_commit_is_that_of_the_code_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "machine.py"))
    assert machine.commit() is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.commit() is None


# --- tables -------------------------------------------------------------------------------------


def filled(store: Store) -> Store:
    for key in PLAN:
        store.append(record(*key))
    return store


def test_runs_are_a_table(store: Store) -> None:
    pytest.importorskip("pandas")
    empty = store.runs()
    assert tuple(empty.columns) == RUN_COLUMNS and len(empty) == 0
    frame = filled(store).runs().set_index(["cell", "unit", "repeat"])
    assert len(frame) == len(PLAN)
    ours = frame.loc[(NGRAM, 0, 1)]
    assert (ours["tokens"], ours["drafted"], ours["reached"], ours["overlap"]) == (6, 12, 6, 1.5)
    assert (ours["seconds"], ours["prefill"], ours["decode"]) == (0.5, 0.125, 0.375)
    assert (ours["draft"], ours["verify"]) == (0.1, 0.2)
    assert frame.loc[("plain", 0, 0)][["rounds", "reached", "overlap"]].isna().all()


def test_rows_are_a_table_and_a_parquet_file(store: Store, tmp_path: Path) -> None:
    pandas, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    frame = filled(store).rows()
    assert len(frame) == sum(len(UNITS[unit]["prompts"]) for _, unit, _ in PLAN)
    store.to_parquet(tmp_path / "rows.parquet")
    read = pandas.read_parquet(tmp_path / "rows.parquet")
    assert list(read.columns) == list(frame.columns) and len(read) == len(frame)
    for one, other in zip(read.to_dict("records"), frame.to_dict("records"), strict=True):
        assert list(one["ids"]) == other["ids"]
        assert all(one[k] == other[k] for k in ("cell", "unit", "prompt", "prompt_id", "seconds"))
        assert json.loads(one["choices"]) == cell(one["cell"])["choices"]
    about = parquet.read_schema(tmp_path / "rows.parquet").metadata[b"foredraft"]
    assert json.loads(about) == store.manifest
    refuses(lambda: store.to_parquet(tmp_path / "none/rows.parquet"), "cannot be written")
    assert not [name for name in os.listdir(tmp_path) if "partial" in name]


@pytest.mark.parametrize("package", ["pandas", "pyarrow"])
def test_a_missing_extra_is_named(
    store: Store, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"{package}.*foredraft\[bench\]") as caught:
        store.runs() if package == "pandas" else store.to_parquet(tmp_path / "a.parquet")
    assert "\n" not in str(caught.value)
