"""Reported faults of benchmarks and sweeps, each with the test that shows it."""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from bench_inline import WORDS, Inline, at, kept, write_prompts
from bench_store_helpers import UNITS, manifest, record
from cli_helpers import Cli, make_cli

from foredraft.framework import load
from foredraft.framework.api import engine_from
from foredraft.framework.bench import hand
from foredraft.framework.bench.grid import read
from foredraft.framework.bench.paging import page
from foredraft.framework.bench.store import Store
from foredraft.framework.bench.summary import summarise
from foredraft.framework.bench.worker import Desk
from foredraft.framework.errors import ConfigError
from foredraft.framework.requests import Answer

pytestmark = pytest.mark.usefixtures("only_builtins")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hand, "Worker", Inline)
    monkeypatch.setattr(Inline, "heard", [])
    write_prompts()
    return make_cli(capsys)


# --- figures ------------------------------------------------------------------------------------


def timed(cell: str, unit: int, repeat: int, prefill: float, decode: float) -> dict[str, Any]:
    one = record(cell, unit, repeat, ids=10)
    phases = {
        "draft": 0.25 * decode,
        "verify": 0.5 * decode,
        "sampling": 0.0,
        "other": 0.25 * decode,
    }
    return {**one, "seconds": prefill + decode, "prefill": prefill, "time": phases}


def test_throughput_leaves_the_prefill_out_and_says_what_drafting_takes(tmp_path: Path) -> None:
    """10 s of prefill, then 10 tokens a row in 1 s; of the drafting cell 30 s, then half a second."""
    with Store.create(tmp_path / "r", manifest()) as store:
        for unit, rows in enumerate(len(unit["prompts"]) for unit in UNITS):
            store.append(timed("plain", unit, 0, 10.0, 1.0 * rows) | _counted(unit))
            store.append(timed(store.ids[0], unit, 0, 30.0, 0.5 * rows))
    found = summarise(store.manifest, store.records())
    assert found["plain"].rate.value == pytest.approx(10)
    assert found[store.ids[0]].rate.value == pytest.approx(20)
    assert found[store.ids[0]].speedup.value == pytest.approx(2)
    assert found[store.ids[0]].unequal == 0  # equal token counts, of the same prompts
    (shown,) = (cell for cell in page(Store.open(store.folder)).cells if cell.kind == "engine")
    assert shown.phases["draft"] / sum(shown.phases.values()) == pytest.approx(0.25)


def _counted(unit: int) -> dict[str, Any]:
    counts = {"finish": "length", "rounds": 10, "drafted": 0, "accepted": 0, "emitted": 10}
    more = {"reached_at": [], "accepted_at": [], "overlap": 0.0}
    rows = record("plain", unit, 0, ids=10)["rows"]
    return {"rows": [{**row, **counts, **more} for row in rows]}


def test_counters_are_those_of_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was run before in the same process, and again and again."""
    monkeypatch.chdir(tmp_path)
    write_prompts()
    sweep = read(WORDS)
    cells = [asdict(cell) for cell in sweep.cells]
    prompts = [{"index": i, "content": text} for i, text in enumerate(["0 1 2", "2 1", "3 1"])]
    opening = {"do": "open", "cells": cells, "prompts": prompts, "warmup": 0, "assistant": None}

    def desk() -> Desk:
        made = Desk()
        assert made.answer({**opening, "plugins": []})["is"] == "open"
        return made

    def rows(made: Desk, cell: str, prompt: int) -> Any:
        answer = made.answer({"do": "run", "cell": cell, "prompts": [prompt]})
        assert answer["is"] == "run", answer
        return answer["rows"]

    used = desk()
    for cell in ("drafter=ngram", "drafter=prompt_lookup", "plain", "drafter=ngram"):
        for prompt in (0, 2):
            assert rows(used, cell, prompt) == rows(desk(), cell, prompt)


@pytest.mark.parametrize("gamma", [0, 3])
def test_nothing_of_a_round_is_kept_behind_it(gamma: int) -> None:
    """A slice that is kept pins all of the tensor that it is a part of: here 32 kB a round."""
    drafter = ["drafter=ngram"] if gamma else ["drafter=none"]
    engine = load("target=table", "target.vocab_size=1000", f"policy.gamma={gamma}", *drafter)
    answer = Answer(engine.request([1, 2, 3], max_new_tokens=4000, logprobs="raw"))
    held = {}
    for count, _ in enumerate(engine.run([answer])):
        if count in (50, 300):
            held[count] = tensor_bytes()
        if count == 300:
            break
    assert len(held) == 2
    assert held[300] < held[50] + 65_536
    assert len(answer.logprobs) > 300 and all(type(one) is float for one in answer.logprobs)


def tensor_bytes() -> int:
    gc.collect()
    storages = {
        one.untyped_storage().data_ptr(): one.untyped_storage().nbytes()
        for one in gc.get_objects()
        if issubclass(type(one), torch.Tensor)  # to ask the object itself may warn
    }
    return sum(storages.values())


# --- sweeps -------------------------------------------------------------------------------------


def test_an_interrupted_sweep_goes_on_with_its_numbers(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of four runs are made when it ends; the other two are, under the numbers they had."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    Path("p.jsonl").write_text('{"prompt": "0 1 2"}\n')
    monkeypatch.setattr(Inline, "before", staticmethod(at("run", 3, interrupt)))
    assert cli("bench", *WORDS, "bench.dir=r").code == 130
    first = {key: one["order"] for key, one in orders("r").items()}
    assert sorted(first.values()) == [0, 1]
    monkeypatch.setattr(Inline, "before", staticmethod(lambda message: None))
    changed = ["max_new_tokens=9" if word.startswith("max_new") else word for word in WORDS]
    refused_text = cli("bench", *changed, "bench.resume=r")
    assert refused_text.code == 2 and "max_new_tokens was 8, is 9" in refused_text.err
    Inline.heard.clear()
    assert cli("bench", "bench.resume=r").code == 0
    assert sum(message["do"] == "run" for message in Inline.heard) == 2
    second = {key: one["order"] for key, one in orders("r").items()}
    assert sorted(second.values()) == [0, 1, 2, 3] and first.items() <= second.items()
    assert len(kept("r")) == 4


def orders(folder: str) -> dict[tuple[str, int, int], dict[str, Any]]:
    return {(r["cell"], r["unit"], r["repeat"]): r for r in Store.open(folder).records()}


PAIRS = """# @package _global_
defaults:
  - override /target: table
zip:
  drafter: [none, prompt_lookup, ngram]
  policy.gamma: [0, 2, 5]
"""


def test_a_sweep_of_matched_pairs_can_be_written_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(PAIRS)
    sweep = read(["experiment=mine"], tmp_path)
    pairs = [(one.config["drafter"]["name"], one.config["policy"]["gamma"]) for one in sweep.cells]
    assert set(pairs) == {("none", 0), ("prompt_lookup", 2), ("ngram", 5)}
    assert sum(cell.kind == "engine" for cell in sweep.cells) == 2  # the third is plain decoding


@pytest.mark.parametrize(
    "text",
    [
        "defaults:\n  - override /hydra/launcher: joblib",
        "hydra: {launcher: {n_jobs: 2}}",
        "grid: {hydra/launcher: [joblib, basic]}",
        "grid: {hydra.launcher.n_jobs: [1, 2]}",
        "zip: {hydra: [1, 2]}",
    ],
)
def test_a_launcher_in_a_swept_file_is_refused(tmp_path: Path, text: str) -> None:
    """It would be taken and have no effect."""
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{text}\n")
    with pytest.raises(ConfigError, match="hydra"):
        read(["target=table", "experiment=mine"], tmp_path)


def test_numbers_are_numbers_on_every_path(tmp_path: Path) -> None:
    """1e-4 and infinity: from a file, from a word, from an axis, and from the saved config."""
    (tmp_path / "experiment").mkdir()
    text = "sampling: {min_p: 1e-4, temperature: 1, logit_bias: {5: -.inf}}"
    (tmp_path / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{text}\n")
    words = ["sampling.temperature=1", "sampling.logit_bias={5: -inf}"]
    for number, given in enumerate(
        (
            ["experiment=mine"],
            [*words, "sampling.min_p=1e-4"],
            [*words, "grid.sampling.min_p=[1e-4]"],
        )
    ):
        cells = read(["target=table", "drafter=ngram", *given], tmp_path).cells
        planned = manifest(cells=[asdict(cell) for cell in cells])
        with Store.create(tmp_path / f"r{number}", planned) as store:
            assert store.difference(planned) == []
        saved = Store.open(store.folder).cells
        for config in [cells[-1].config, saved[-1]["config"]]:
            sampling = engine_from(config).defaults.sampling
            assert type(sampling.min_p) is float and sampling.min_p == 1e-4
            assert sampling.logit_bias == {5: -math.inf}
        assert "Infinity" not in (store.folder / "run.json").read_text()


LISTING = """
    import collections, sys

    class Watch:
        looked = collections.Counter()
        def find_spec(self, name, path=None, target=None):
            self.looked[name] += 1

    sys.meta_path.insert(0, Watch())
    from foredraft.framework.cli.main import main
    codes = [main([*words]) for words in (["plugins"], ["bench", "--help"], ["plugins"])]
    heavy = {"torch", "transformers"} & set(sys.modules)
    # The command line looks for a command before it imports it.
    ours = {name: n for name, n in Watch.looked.items()
            if name.startswith("foredraft.") and ".cli." not in name}
    print("codes", codes, "heavy", sorted(heavy), "most", max(ours.values()), len(ours) > 20)
"""


def test_listing_imports_no_heavy_library_and_no_plugin_twice() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LISTING)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "codes [0, 0, 0] heavy [] most 1 True"
