"""``foredraft bench``: a whole sweep on tiny targets, and what can end one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_inline import Inline, kept
from cli_helpers import Cli, Done, make_cli, refused

from foredraft.framework.bench import hand
from foredraft.framework.bench.store import Store

FAULTY = """
    from __future__ import annotations
    import os, signal, time
    from dataclasses import dataclass

    import torch
    from foredraft.framework import DrafterSpec, StepSession, hookimpl

    @dataclass
    class FaultyConfig:
        how: str = "raises"

    class Faulty(StepSession):
        def next_logits(self, drafted):
            if len(self.context.tokens[0]) > 6:
                fail(self.config.how)
            vocab = self.context.vocab_size
            logits = torch.zeros(len(self.context.tokens), vocab)
            return logits if self.config.how != "garbage" else logits[:, :2] / 0

    def fail(how):
        if how == "raises":
            raise RuntimeError("the drafter tripped over its own feet")
        if how == "hangs":
            time.sleep(600)
        if how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exits":
            os._exit(7)
        if how == "hungry":
            raise MemoryError("no 12 TiB")

    @hookimpl
    def foredraft_drafters():
        yield DrafterSpec("faulty", Faulty, FaultyConfig, "fails as told", contract=1)
"""
PROMPTS = ["0 1 2", "2 1", "3 1", "0 3"]
TABLE = ("target=table", "max_new_tokens=12", "task=file", "task.file=p.jsonl", "bench.repeats=2")
GRID = ("grid.drafter=[prompt_lookup,ngram]", "grid.policy.gamma=[1,3]")

pytestmark = [pytest.mark.usefixtures("only_builtins"), pytest.mark.xdist_group("bench")]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    lines = [{"prompt": text, "group": "ab"[i % 2]} for i, text in enumerate(PROMPTS)]
    Path("p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    Path("faulty.py").write_text(textwrap.dedent(FAULTY))
    return make_cli(capsys)


@pytest.fixture
def inline(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command without a process to start, where none is to die."""
    monkeypatch.setattr(hand, "Worker", Inline)
    return cli


def finished(done: Done, code: int = 0) -> None:
    assert done.code == code, done.err


def test_every_cell_runs_on_every_prompt_and_is_judged(cli: Cli) -> None:
    finished(cli("bench", *TABLE, *GRID, "grid.sampling.temperature=[0,1]", "bench.dir=r"))
    store, runs = Store.open("r"), kept("r")
    cells = {cell["id"]: cell for cell in store.cells}
    assert len(cells) == 8 + 4  # plain, and plain again, for each temperature
    assert set(runs) == {(cell, unit, r) for cell in cells for unit in range(4) for r in (0, 1)}
    for cell, verdict in store.verdicts().items():
        greedy = cells[cell]["config"]["sampling"]["temperature"] == 0
        assert verdict["verdict"] == ("same" if greedy else "audited"), verdict
    assert len(store.verdicts()) == 8 + 2
    for (cell, unit, repeat), rows in runs.items():
        assert all(len(row["ids"]) == 12 for row in rows)
        assert rows == runs[cell, unit, 1 - repeat]


def test_a_report_is_written_and_runs_are_compared(inline: Cli) -> None:
    done = inline("bench", *TABLE, *GRID, "bench.dir=r")
    finished(done)
    assert all(word in done.out for word in ("drafter=ngram,policy.gamma=3", "plain", "same"))
    for name in ("report.html", "summary.md", "summary.csv"):
        text = Path("r", name).read_text("utf-8")
        assert "prompt_lookup" in text.replace("\\_", "_")
    cells = [cell["id"] for cell in Store.open("r").cells if cell["kind"] == "engine"]
    assert set(Store.open("r").traces()) == set(cells)
    Path("both").mkdir()
    finished(inline("report", "r", "r", "out=both"))
    assert Path("both", "report.html").is_file()
    same = inline("compare", "r", "r", "out=c.json")
    finished(same)
    assert json.loads(Path("c.json").read_text())["regressions"] == []
    assert all(cell in same.out for cell in cells)


def test_a_cell_can_be_run_again_from_its_record(inline: Cli) -> None:
    words = ("grid.sampling.temperature=[0,1]", "grid.drafter=[ngram]", "bench.repeats=1")
    finished(inline("bench", *TABLE[:-1], *words, "bench.dir=r"))
    cell = "sampling.temperature=1,drafter=ngram"
    again = inline("rerun", "r", cell)
    finished(again)
    assert "4 units, 48 tokens, the same ids and counters" in again.out
    path = Path("r", "records", f"{cell}.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    del lines[1]["rows"][0]["by_round"]  # which would give it away at once
    lines[1]["rows"][0]["drafted"] += 1
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    other = inline("rerun", "r", cell)
    assert other.code == 4 and "prompt 1: drafted came out otherwise" in other.err
    refused(inline("rerun", "r", "drafter=ngran"), "has no cell 'drafter=ngran'", cell)


def test_a_folder_cannot_say_what_only_a_command_line_may(inline: Cli) -> None:
    finished(inline("bench", *TABLE, "drafter=ngram", "bench.dir=r"))
    manifest = json.loads(Path("r", "run.json").read_text())
    for cell in manifest["cells"]:
        cell["config"]["target"]["trust_remote_code"] = True
    Path("r", "run.json").write_text(json.dumps(manifest))
    refused(inline("bench", "bench.resume=r"), "trust_remote_code", "only an override")
    refused(inline("rerun", "r", "drafter=ngram"), "trust_remote_code", "only an override")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rerun", "r"), "takes a sweep's folder and a cell's id"),
        (("report", "none"), "none is no folder of a sweep"),
        (("report", "a", "b"), "needs out=DIR"),
        (("report", "--json", "r"), "takes folders"),
        (("compare", "r"), "takes two folders"),
        (("compare", "r", "r", "threshold=x"), "threshold=x"),
        (("compare", "r", "none"), "no folder of a sweep"),
        (("bench", "--fast"), "does not take --fast"),
        (("bench", "--config-dir", "a", "--config-dir=b", "drafter=ngram"), "is given once"),
        (("tune", "--config-dir=a", "--config-dir", "b"), "is given once"),
        (("bench", "grid.drafter=ngram"), "grid.drafter=[ngram]"),
        (("bench", "grid.drafter=[ngran]"), "did you mean 'ngram'"),
        (("bench", "bench.resume=none"), "no folder of a sweep"),
    ],
)
def test_what_cannot_be_done_is_refused(cli: Cli, words: tuple[str, ...], said: str) -> None:
    refused(cli(*words), said)


def test_without_an_audited_round_nothing_is_said_to_be_proven(inline: Cli) -> None:
    words = ("drafter=ngram", "sampling.temperature=1", "bench.audit=0", "bench.repeats=1")
    finished(inline("bench", *TABLE[:-1], *words, "bench.dir=r"))
    assert Store.open("r").verdicts()["drafter=ngram"]["verdict"] == "unknown"


def test_rows_of_a_batch_decode_together(inline: Cli) -> None:
    batches = ("grid.runtime.batch_size=[1,2]", "drafter=ngram", "bench.repeats=1")
    finished(inline("bench", *TABLE[:-1], *batches, "bench.dir=r"))
    runs = kept("r")
    alone = {r["prompt"]: r["ids"] for key, rows in runs.items() if "=1" in key[0] for r in rows}
    both = {r["prompt"]: r["ids"] for key, rows in runs.items() if "=2" in key[0] for r in rows}
    assert alone == both and set(alone) == {0, 1, 2, 3}
    assert {len(rows) for key, rows in runs.items() if "size=2" in key[0]} == {2}


@pytest.mark.parametrize(
    ("how", "kind", "cause"),
    [
        ("raises", "raised", "tripped over its own feet"),
        ("hungry", "memory", "MemoryError: no 12 TiB"),
        ("garbage", "raised", "faulty"),
    ],
)
def test_a_cell_that_fails_leaves_the_others(inline: Cli, how: str, kind: str, cause: str) -> None:
    failed_alone(inline, how, kind, cause)


@pytest.mark.parametrize(
    ("how", "kind", "cause"),
    [
        ("hangs", "hung", "no end after 15 s"),
        ("dies", "killed", "SIGKILL"),
        ("exits", "killed", "exit code 7"),
    ],
)
def test_a_cell_that_ends_the_process_leaves_the_others(
    cli: Cli, how: str, kind: str, cause: str
) -> None:
    failed_alone(cli, how, kind, cause)


def failed_alone(cli: Cli, how: str, kind: str, cause: str) -> None:
    words = ("grid.drafter=[faulty,prompt_lookup]", f"grid.drafter.how=[{how}]")
    limit = ("bench.limit_s=15",) if how == "hangs" else ()
    done = cli("--plugin", "faulty.py", "bench", *TABLE, *words, *limit, "bench.dir=r")
    finished(done, 3)
    store = Store.open("r")
    ((cell, failure),) = store.failures().items()
    assert "faulty" in cell and failure["kind"] == kind and cause in failure["cause"]
    assert cell in done.err and cause in done.err and "Traceback" not in done.err
    others = {c["id"] for c in store.cells} - {cell}
    assert {key for key in kept("r") if key[0] != cell} == {
        (other, unit, repeat) for other in others for unit in range(4) for repeat in (0, 1)
    }


def test_a_sweep_can_end_at_the_first_failure(inline: Cli) -> None:
    words = ("grid.drafter=[faulty,prompt_lookup]", "bench.on_error=stop", "bench.dir=r")
    done = inline("--plugin", "faulty.py", "bench", *TABLE, *words)
    refused(Done(done.code, done.out, done.err.splitlines()[-1]), "faulty", "own feet")
    assert len(kept("r")) < 4 * 2 * 4


def test_a_changed_config_is_refused_with_the_difference(inline: Cli) -> None:
    finished(inline("bench", *TABLE, *GRID, "bench.dir=r"))
    before = kept("r")
    changed = [word.replace("max_new_tokens=12", "max_new_tokens=9") for word in TABLE]
    done = inline("bench", *changed, *GRID, "bench.resume=r")
    assert done.code == 2 and "max_new_tokens" in done.err and "12" in done.err
    again = inline("bench", *TABLE, *GRID, "bench.dir=r")
    assert again.code == 2 and "r" in again.err
    finished(inline("bench", *TABLE, *GRID, "bench.resume=r"))
    assert kept("r") == before


def started(*words: str, **options: Any) -> subprocess.Popen[str]:
    """The command in a process of its own, which imports from where we do."""
    command = [sys.executable, "-m", "foredraft.framework.cli.main", "bench", *words]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(command, text=True, env=env, stderr=subprocess.PIPE, **options)


def done_in(folder: str) -> int:
    """How far a sweep is: runs on the disk, verdicts, and answers taken down."""
    return runs_in(folder) + sum(
        1 for kind in ("verdicts", "traces") for _ in Path(folder, kind).glob("*.json")
    )


def runs_in(folder: str) -> int:
    """Runs on the disk. An answer that is taken down may be there before any of them."""
    return sum(path.read_bytes().count(b"\n") for path in Path(folder).glob("records/*"))


def killed_until_done(folder: str, words: tuple[str, ...], kills: int, seed: int) -> list[int]:
    """Starts a sweep, kills it at random places between its begin and its end, and lets the last one
    end.

    Returns:
        How far it was at each kill.
    """
    draws, whole = np.random.default_rng(seed), done_in("whole")
    begun, hits = (*words, f"bench.dir={folder}"), []
    for place in sorted(draws.choice(np.arange(1, whole - 1), kills, replace=False).tolist()):
        process = started(*((f"bench.resume={folder}",) if Path(folder).exists() else begun))
        while process.poll() is None and done_in(folder) < place:
            time.sleep(0.01)
        time.sleep(float(draws.uniform(0, 0.05)))
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        hits.append(done_in(folder))
    last = started(f"bench.resume={folder}")
    said = last.communicate()[1]
    assert last.returncode == 0, said
    return hits


def same_results(folder: str, other: str) -> bool:
    one, two = Store.open(folder), Store.open(other)
    said = kept(folder) == kept(other) and one.verdicts() == two.verdicts()
    return said and one.traces().keys() == two.traces().keys()


def test_what_is_killed_goes_on_where_it_was(cli: Cli) -> None:
    words = (*TABLE[:-1], *GRID, "grid.sampling.temperature=[0,1]", "bench.repeats=3")
    finished(cli("bench", *words, "bench.dir=whole"))
    assert len(set(killed_until_done("broken", words, kills=2, seed=1))) == 2
    assert same_results("broken", "whole")


@pytest.mark.slow
def test_twenty_kills_lose_nothing(cli: Cli) -> None:
    axes = ("grid.drafter=[prompt_lookup,ngram]", "grid.policy.gamma=[1,2,3]")
    more = ("grid.sampling.temperature=[0,1]", "grid.runtime.batch_size=[1,2]", "bench.repeats=4")
    words = (*TABLE[:-1], *axes, *more)
    finished(cli("bench", *words, "bench.dir=whole"))
    assert sum(cell["kind"] == "engine" for cell in Store.open("whole").cells) == 24
    places = killed_until_done("broken", words, kills=20, seed=2)
    print(f"killed at {places} of {done_in('whole')}")
    assert len(places) == 20
    assert same_results("broken", "whole")


def test_ctrl_c_says_how_to_go_on(cli: Cli) -> None:
    words = (*TABLE[:-1], *GRID, "bench.repeats=50", "bench.dir=r")
    # Of a test run in the background, SIGINT may be ignored, and children inherit that.
    process = started(*words, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    while process.poll() is None and not runs_in("r"):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err
    assert f"foredraft bench bench.resume={Path('r').resolve()}" in err
    assert len(kept("r")) > 0
