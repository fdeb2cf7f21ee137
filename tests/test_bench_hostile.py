"""Folders of sweeps that somebody else made, or changed: whatever they hold, ``report``, ``compare``,
``rerun`` and a resumed sweep refuse it in one sentence that names the file, or show it as text."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from bench_store_helpers import CELLS, PLAN, manifest, record
from cli_helpers import Cli, make_cli, refused

from foredraft.framework.bench.comparing import compare
from foredraft.framework.bench.disk import Unwritable
from foredraft.framework.bench.paging import page, summary
from foredraft.framework.bench.report.flat import csv_text, markdown
from foredraft.framework.bench.report.html import render
from foredraft.framework.bench.store import Store
from foredraft.framework.errors import ForedraftError

POSIX = pytest.mark.skipif(os.name != "posix", reason="links, pipes and sockets")
CELL = CELLS[0]
RECORDS, VERDICT, TRACE = f"records/{CELL}.jsonl", f"verdicts/{CELL}.json", f"traces/{CELL}.json"
EVIL = (
    "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*191 }}{% x %}${7*191}"
)
pytestmark = pytest.mark.usefixtures("only_builtins")


def made(folder: Path, text: str = "good", **changed: Any) -> Path:
    """A small sweep that is complete: runs, a failure, a verdict and an answer round by round."""
    with Store.create(folder, manifest(**changed)) as store:
        for key in PLAN:
            store.append(record(*key))
        store.fail("plain", text, "hung")
        store.put_verdict(CELL, {"verdict": text, "says": text})
        token = {"text": text, "draft_prob": 0.5, "accept_prob": None}
        rounds = [{"accepted": [token], "rejected": [token], "own": [token]}]
        store.put_trace(CELL, {"answers": [{"prompt": 0, "rounds": rounds}]})
    return folder


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("good") / "run")


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    shutil.copytree(good, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return make_cli(capsys)


def look(folder: Path, html: bool = False) -> None:
    """Everything that is read of a folder, and made of it."""
    found, store = page(Store.open(folder)), summary(Store.open(folder))
    markdown([found]), csv_text([found])
    json.dumps(store.as_dict(), allow_nan=False)
    json.dumps(compare(store, store).as_dict(), allow_nan=False)
    if html:
        render([found])


def hashed(folder: Path) -> None:
    """Lets the manifest vouch for the prompts as they are now: whoever changes one can change both."""
    value = json.loads((folder / "run.json").read_text())
    value["prompts"]["sha256"] = hashlib.sha256((folder / "prompts.jsonl").read_bytes()).hexdigest()
    (folder / "run.json").write_text(json.dumps(value))


# --- bytes ---------------------------------------------------------------------------------------

GARBAGE = {
    "nothing": b"\n",
    "binary": bytes(range(256)) * 8 + b"\n",
    "not UTF-8": b'{"cell": "\xe9"}\n',
    "UTF-16": '{"cell": 1}\n'.encode("utf-16"),
    "BOM": b'\xef\xbb\xbf{"cell": "plain"}\n',
    "NaN": b'{"seconds": NaN}\n',
    "infinity": b'{"seconds": -Infinity}\n',
    "1e999": b'{"seconds": 1e999}\n',
    "10^400": b'{"unit": 1' + b"0" * 400 + b"}\n",
    "5000 digits": b'{"unit": ' + b"9" * 5000 + b"}\n",
    "twice": b'{"cell": "plain", "cell": "plain"}\n',
    "deep": b'{"cell": ' + b"[" * 100 + b"]" * 100 + b"}\n",
    "very deep": b"[" * 200_000 + b"\n",
    "surrogate": b'{"cell": "\\ud800"}\n',
    "list": b"[1]\n",
    "two": b"{} {}\n",
    "pickle": b"\x80\x04\x95cos\nsystem\n(S'true'\ntR.\n",
    "yaml": b"!!python/object/apply:os.system ['true']\n",
}
FILES = ["run.json", "prompts.jsonl", RECORDS, "failures.jsonl", VERDICT, TRACE]


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_is_no_strict_json_is_named(folder: Path, file: str) -> None:
    for data in GARBAGE.values():
        (folder / file).write_bytes(data)
        if file == "prompts.jsonl":
            hashed(folder)
        with pytest.raises(ForedraftError) as caught:
            look(folder)
        text = str(caught.value)
        assert str(folder / file) in text and "\n" not in text and text.endswith("."), text
        assert len(text) < 500 and text.isprintable(), text


def test_line_ends_of_windows_are_white_space(folder: Path) -> None:
    for file in FILES:
        path = folder / file
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    hashed(folder)
    look(folder)


def test_no_change_of_bytes_is_more_than_a_refusal(good: Path, tmp_path: Path) -> None:
    """300 seeded changes; numbers that were changed into other possible ones are still numbers."""
    draws, read = random.Random(0), 0
    whole = {file: (good / file).read_bytes() for file in FILES}
    shutil.copytree(good, tmp_path / "run")
    for _ in range(300):
        file = draws.choice(FILES)
        (tmp_path / "run" / file).write_bytes(changed(whole[file], draws))
        if file == "prompts.jsonl":
            hashed(tmp_path / "run")
        try:
            look(tmp_path / "run")
            read += 1
        except ForedraftError as error:
            assert str(tmp_path / "run") in str(error) and "\n" not in str(error)
        for name in {file, "run.json"}:
            (tmp_path / "run" / name).write_bytes(whole[name])
    assert 10 < read < 290


def changed(data: bytes, draws: random.Random) -> bytes:
    pieces = [b'"', b"{", b"]", b",", b"\n", b"0", b"9" * 20, b"-", b"e9", b"\0", b"\xff", b"null"]
    for _ in range(draws.choice([1, 1, 2, 5])):
        at, how = draws.randrange(len(data)), draws.randrange(4)
        put = [bytes([draws.randrange(256)]), draws.choice(pieces), b"", data[at : at + 30] * 2][
            how
        ]
        data = data[:at] + put + data[at + (1, 0, draws.choice([1, 2, 10]), 30)[how] :]
    return data


# --- values --------------------------------------------------------------------------------------

ODD = (None, True, -1, 1.5, "x", "../x", [], {}, [None], 10**30, 1e300)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value that holds something; of a list the first item."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:1])
    found: list[tuple[Any, ...]] = []
    for key, item in items:
        found.append((*path, key))
        if isinstance(item, dict | list):
            found += places(item, (*path, key))
    return found


def replaced(value: Any, path: tuple[Any, ...], put: Any) -> Any:
    copy = json.loads(json.dumps(value))
    inside = copy
    for key in path[:-1]:
        inside = inside[key]
    if put is Ellipsis:
        del inside[path[-1]]
    else:
        inside[path[-1]] = put
    return copy


@pytest.mark.parametrize("file", FILES)
def test_values_of_another_kind_are_refused_or_shown(folder: Path, file: str) -> None:
    """Every value there is, left out and in turn replaced by odd ones."""
    path, draws, refusals = folder / file, random.Random(1), 0
    lines = path.read_text().splitlines() if file.endswith("l") else [path.read_text()]
    value = json.loads(lines[0])
    for place in places(value):
        for put in (..., draws.choice(ODD)):
            text = json.dumps(replaced(value, place, put))
            path.write_text("\n".join([text, *lines[1:]]) + "\n")
            if file == "prompts.jsonl":
                hashed(folder)
            try:
                look(folder)
            except ForedraftError as error:
                refusals += 1
                assert str(folder) in str(error) and "\n" not in str(error), (place, put)
    assert refusals > 2


def edit(folder: Path, file: str, change: Callable[[Any], object]) -> None:
    path = folder / file
    lines = path.read_text().splitlines() if file.endswith("l") else [path.read_text()]
    value = json.loads(lines[0])
    change(value)
    path.write_text("\n".join([json.dumps(value), *lines[1:]]) + "\n")


def cell(change: Callable[[Any], object]) -> tuple[str, Callable[[Any], object]]:
    return "run.json", lambda value: change(value["cells"][0])


def row(**values: Any) -> tuple[str, Callable[[Any], object]]:
    return RECORDS, lambda value: value["rows"][0].update(values)


EDITS: dict[str, tuple[tuple[str, Callable[[Any], object]], str]] = {
    "id is a path": (cell(lambda c: c.update(id="../../x")), "'../../x', which cannot name a file"),
    "id is a bool": (cell(lambda c: c.update(id=True)), "cell id True"),
    "id is a number": (cell(lambda c: c.update(id=3)), "cell id 3"),
    "more keys": (cell(lambda c: c.update(extra=1)), "'extra', which no cell has"),
    "kind": (cell(lambda c: c.update(kind="sleep")), "kind='sleep'; possible: engine, plain"),
    "baseline": (cell(lambda c: c.update(baseline=CELL)), "which is no plain loop"),
    "drafter": (cell(lambda c: c["config"].update(drafter="x")), "config.drafter='x'"),
    "name": (cell(lambda c: c["config"]["drafter"].update(name=1)), "config.drafter.name=1"),
    "gamma": (cell(lambda c: c["config"]["policy"].update(gamma="3")), "config.policy.gamma='3'"),
    "batch": (cell(lambda c: c["config"]["runtime"].update(batch_size=0)), "batch_size=0"),
    "overrides": (cell(lambda c: c.update(overrides=[1])), "an override that is no text"),
    "task": (("run.json", lambda m: m["task"].update(source="x")), "task.source='x'"),
    "option": (("run.json", lambda m: m["options"].update(repeats=0)), "repeats=0"),
    "no option": (("run.json", lambda m: m["options"].update(code=1)), "options.code is not a key"),
    "commit": (("run.json", lambda m: m.update(commit=7)), "'commit' is no text"),
    "unit": (("run.json", lambda m: m["units"][0].update(batch_size=None)), "unit 0"),
    "huge count": (row(drafted=2**63), "drafted=9223372036854775808"),
    "more accepted": (row(accepted=2), "accepted_at does not add up to accepted"),
    "more reached": (row(reached_at=[9, 9]), "more than drafted=6"),
    "positions": (row(accepted_at=[0, 0, 1]), "accepted_at does not add up"),
    "emitted": (row(emitted=9), "emitted=9"),
    "overlap": (row(overlap=99.0), "overlap=99.0"),
    "half of it": ((RECORDS, lambda r: r["rows"][0].pop("rounds")), "but no rounds"),
    "negative": ((RECORDS, lambda r: r.update(seconds=-1)), "seconds=-1"),
    "no time": ((RECORDS, lambda r: r.update(seconds=1e-300, prefill=0, time={})), "clock"),
    "phases": ((RECORDS, lambda r: r["time"].update(draft=5.0)), "the phases in time take"),
    "trace": ((TRACE, lambda t: t["answers"][0].update(prompt=9)), "prompt=9 is none of the 4"),
    "token": (
        (TRACE, lambda t: t["answers"][0]["rounds"][0]["own"][0].update(draft_prob="1")),
        "a round of prompt 0",
    ),
    "verdict": ((VERDICT, lambda v: v.update(verdict=["same"])), "verdict=['same'] is no word"),
    "says": ((VERDICT, lambda v: v.update(says=0)), "says=0 is no text"),
}


@pytest.mark.parametrize("name", EDITS)
def test_what_was_changed_is_named(folder: Path, cli: Cli, name: str) -> None:
    (file, change), words = EDITS[name]
    edit(folder, file, change)
    commands: list[tuple[str, ...]] = [("report", "run")]
    if file != TRACE:
        commands.append(("compare", "run", "run"))
    if file in ("run.json", RECORDS):
        commands.append(("rerun", "run", CELL))
    for command in commands:
        refused(cli(*command), str(folder / file), words)
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config["target"].update(trust_remote_code=True),
        lambda config: config["drafter"].update(drafters=[{"trust_remote_code": True}]),
        lambda config: config.update(out="/tmp/x"),
        lambda config: config.update(prompts="/etc/passwd"),
        lambda config: config.update(observers=[{"name": "jsonl", "path": "/tmp/x"}]),
    ],
    ids=["code", "code of a drafter's drafter", "writes", "reads", "listens"],
)
def test_a_folder_says_nothing_that_only_a_command_line_may(
    folder: Path, cli: Cli, change: Callable[[Any], object]
) -> None:
    edit(folder, "run.json", lambda value: change(value["cells"][0]["config"]))
    refused(cli("rerun", "run", CELL), "only an override may set it")
    refused(cli("bench", "bench.resume=run"), "only an override may set it")


# --- what is no file -----------------------------------------------------------------------------


@POSIX
@pytest.mark.parametrize("file", FILES)
def test_a_pipe_a_folder_or_a_link_is_refused_at_once(folder: Path, cli: Cli, file: str) -> None:
    path = folder / file
    content = path.read_bytes()
    outside = folder.parent / "outside"
    outside.write_bytes(content)
    for make in (
        lambda: os.mkfifo(path),
        lambda: path.mkdir(),
        lambda: path.symlink_to("/dev/zero"),
        lambda: path.symlink_to(outside),
        lambda: path.symlink_to(path.name),
    ):
        path.unlink()
        make()
        refused(cli("report", "run"), str(folder))
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        path.write_bytes(content)
    assert cli("report", "run").code == 0


@POSIX
def test_a_report_follows_no_link(folder: Path, cli: Cli) -> None:
    victim = folder.parent / "victim"
    for name in ("report.html", "summary.md", "summary.csv"):
        victim.write_text("mine")
        (folder / name).symlink_to(victim)
        (folder / f"{name}.{os.getpid()}.partial").symlink_to(victim)
    assert cli("report", "run").code == 0
    assert victim.read_text() == "mine" and not (folder / "report.html").is_symlink()
    outside = folder.parent / "records"
    shutil.move(folder / "records", outside)
    (folder / "records").symlink_to(outside)
    refused(cli("report", "run"), str(folder / "records"), "is a link")


def test_the_folder_of_a_race_is_gone_on_with_as_a_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, value: object) -> None:
        raise Unwritable(f"{path} cannot be written: No space left on device; make room.")

    race = tmp_path / "race"
    words = re.escape(f"tune.resume={race}")
    with Store.create(race, manifest(tune={})) as store:
        monkeypatch.setattr("foredraft.framework.bench.store.append_line", full)
        with pytest.raises(Unwritable, match=rf"make room, and go on with {words}\.$"):
            store.append(record(*PLAN[0]))
    with pytest.raises(ForedraftError, match=f"holds a race already; go on with it by {words},"):
        Store.create(race, manifest())
    (race / "run.json").write_bytes(b"\xff")
    with pytest.raises(ForedraftError, match="holds a sweep already"):
        Store.create(race, manifest())


# --- text is text --------------------------------------------------------------------------------


class Elements(HTMLParser):
    """How often each element is there with which attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: Counter[tuple[str, ...]] = Counter()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found[(tag, *sorted(name for name, _ in attrs))] += 1


def worded(folder: Path, text: str) -> Path:
    """A sweep that says this wherever it can say anything."""
    made(folder, text)
    value = json.loads((folder / "run.json").read_text())
    value |= {"command": text, "started": text, "commit": text}
    value["versions"], value["hardware"] = {text: text}, {text: text}
    value["task"] = {"source": "file", "file": text}
    for one in value["cells"]:
        one["choices"] = {text: text}
        one["config"]["drafter"]["name"] = text
    for unit in value["units"]:
        unit["group"] = text
    prompts = [json.loads(line) for line in (folder / "prompts.jsonl").read_text().splitlines()]
    lines = [json.dumps({**one, "id": text, "group": text, "content": text}) for one in prompts]
    (folder / "prompts.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "run.json").write_text(json.dumps(value))
    hashed(folder)
    for path in (folder / "records").iterdir():
        runs = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps({**run, "group": text}) + "\n" for run in runs))
    return folder


def test_hostile_text_makes_no_element(tmp_path: Path) -> None:
    plain = render([page(Store.open(worded(tmp_path / "plain", "x" * len(EVIL))))])
    evil = render([page(Store.open(worded(tmp_path / "evil", EVIL)))])
    assert Elements(evil).found == Elements(plain).found
    assert "1337" not in evil and evil.count("{{ 7*191 }}") > 5
    assert evil.count("<script") == plain.count("<script")


def test_hostile_text_stays_in_its_place_in_tables(tmp_path: Path) -> None:
    evil = f"=cmd|' /C calc'!A1 | | {EVIL}\r\n# x\n```\n[a](javascript:x)"
    one, other = (page(Store.open(worded(tmp_path / n, t))) for n, t in (("a", "x"), ("b", evil)))
    assert len(markdown([other]).splitlines()) == len(markdown([one]).splitlines())
    assert not re.search(r"(?<!\\)<|(?<!\\)\]\(", markdown([other]))
    rows = list(csv.reader(io.StringIO(csv_text([other]))))
    assert len({len(line) for line in rows}) == 1 and len(rows) == len(CELLS) + 1
    assert not any(field.startswith(("=", "+", "@")) for line in rows for field in line)


def test_no_text_steers_a_terminal(tmp_path: Path, cli: Cli) -> None:
    evil = "\x1b]0;mine\x07\x1b[2J[red]a[/nope]\r\nworse: nothing\x9b31m"
    worded(tmp_path / "run", evil)
    made(tmp_path / "other")
    for command in (("compare", "run", "run"), ("compare", "other", "run"), ("report", "run")):
        done = cli(*command)
        assert done.code in (0, 4), done
        for sign in ("\x1b", "\x07", "\x9b", "\r"):
            assert sign not in done.out + done.err
        assert "\nworse: nothing" not in done.err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.pop("sampling"), "config.sampling=None"),
        (lambda c: c.update(sampling=[]), "config.sampling=[]"),
        (lambda c: c["sampling"].pop("temperature"), "config.sampling.temperature=None"),
        (lambda c: c["sampling"].update(temperature="0"), "config.sampling.temperature='0'"),
        (lambda c: c["sampling"].pop("draft"), "config.sampling.draft=None"),
        (lambda c: c.pop("max_new_tokens"), "config.max_new_tokens='nothing'"),
        (lambda c: c.update(max_new_tokens=0), "config.max_new_tokens=0"),
        (lambda c: c["drafter"].pop("name"), "config.drafter.name=None"),
    ],
)
def test_a_cell_lacks_nothing_that_a_race_and_an_export_read(
    folder: Path, cli: Cli, change: Callable[[Any], object], words: str
) -> None:
    edit(folder, "run.json", lambda value: change(value["cells"][0]["config"]))
    for command in (
        ("report", "run"),
        ("tune", "tune.resume=run"),
        ("export", "run", "to=vllm", f"cell={CELL}"),
    ):
        refused(cli(*command), str(folder / "run.json"), words)
