"""``foredraft generate`` with files: JSON lines in, answers that survive an interruption out."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_helpers import Cli, make_cli, refused

from foredraft.framework.cli.main import main
from foredraft.framework.testing.tiny_tokenizer import save_tiny, tiny_tokenizer


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)

    return make_cli(capsys, "generate", "target=table", "max_new_tokens=6")


LINES = [
    {"prompt": "0 1 2"},
    {"question_id": 81, "category": "writing", "turns": ["3 4", "1", "2"], "reference": []},
    {"prompt_ids": [1, 2, 3], "id": "ids"},
    {"id": "last", "prompt": "7"},
]
SAMPLED = ("prompts=p.jsonl", "sampling.temperature=1", "drafter=ngram")


def write_lines(*lines: Any, name: str = "p.jsonl") -> None:
    Path(name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def read_lines(name: str = "out.jsonl") -> list[Any]:
    return [json.loads(line) for line in Path(name).read_text().splitlines()]


def without_times(objects: list[Any]) -> list[Any]:
    for value in objects:
        del value["metrics"]["time"]
    return sorted(objects, key=lambda value: value["index"])


def test_every_form_of_prompt_is_answered_in_order(cli: Cli) -> None:
    write_lines(*LINES)
    done = cli(*SAMPLED, "output=json", "seed=3")
    assert [(v["id"], v["turn"], v["index"]) for v in done.objects] == [
        (0, 0, 0), (81, 0, 1), (81, 1, 2), (81, 2, 3), ("ids", 0, 4), ("last", 0, 5),
    ]  # fmt: skip
    assert done.objects[4]["prompt_ids"] == [1, 2, 3] and done.objects[1]["prompt"] == "3 4"
    assert {v["seed"] for v in done.objects} == {3}


@pytest.mark.parametrize("size", [2, 3, 8])
def test_batches_answer_the_same(cli: Cli, size: int) -> None:
    write_lines(*LINES)
    alone, together = (
        without_times(cli(*SAMPLED, "output=json", f"runtime.batch_size={n}").objects)
        for n in (1, size)
    )
    assert [v["token_ids"] for v in alone] == [v["token_ids"] for v in together]


def test_each_turn_sees_the_answers_before_it(cli: Cli) -> None:
    write_lines(LINES[1])
    first, second, third = cli(*SAMPLED, "output=json").objects
    assert second["prompt_tokens"] == 2 + 6 + 1
    assert third["prompt_tokens"] == 2 + 6 + 1 + 6 + 1


def test_turns_go_through_the_chat_template(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = save_tiny(tmp_path / "model", dtype=torch.float32)
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"turns": ["ab", "cd"]}) + "\n")
    argv = ["generate", "target=causal_lm", f"target.model={model}", f"prompts={path}"]
    assert main([*argv, "max_new_tokens=4", "output=json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    said = first["trimmed_text"]
    tokenizer = tiny_tokenizer()
    talk = f"<|user|>ab<|end|><|assistant|>{said}<|end|><|user|>cd<|end|><|assistant|>"
    assert second["prompt_tokens"] == len(tokenizer.encode(talk))


def test_a_later_turn_that_outgrows_the_context_ends_there(cli: Cli) -> None:
    write_lines({"turns": ["1 2 3", "1 2 3"]}, {"prompt": "1"})
    done = cli("prompts=p.jsonl", "target.max_context=10", "output=json")
    assert [v["finish_reason"] for v in done.objects] == ["length", "context", "length"]
    assert done.objects[1]["token_ids"] == [] and done.objects[1]["metrics"]["tau"] is None


def test_text_output_is_the_answers_in_order(cli: Cli) -> None:
    write_lines(*LINES)
    objects = cli(*SAMPLED, "output=json").objects
    texts = "".join(value["text"] + "\n" for value in objects)
    assert cli(*SAMPLED).out == texts
    assert cli(*SAMPLED, "runtime.batch_size=8").out.count("\n") == 6


def test_prompts_come_from_standard_input(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b'\xef\xbb\xbf{"prompt": "1 2"}\r\n\r\n{"prompt": "3"}'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert [v["prompt"] for v in cli("prompts=-", "output=json").objects] == ["1 2", "3"]


BAD_LINES = [
    (b'{"prompt": "1"', "not valid JSON"),
    (b"1 2 3", "not valid JSON"),
    (b"[1]", "not a JSON object"),
    (b'{"text": "1"}', "one of prompt, turns"),
    (b'{"prompt": "1", "turns": ["1"]}', "prompt and turns"),
    (b'{"prompt": ""}', "empty"),
    (b'{"prompt": " \\n"}', "empty"),
    (b'{"prompt": 1}', "no text"),
    (b'{"prompt": NaN}', "NaN"),
    (b'{"prompt": "1", "prompt": "2"}', "twice"),
    (b'{"prompt": "\\ud800"}', "surrogate"),
    (b'{"turns": []}', "empty"),
    (b'{"turns": ["1", ""]}', "turn is empty"),
    (b'{"prompt_ids": []}', "empty"),
    (b'{"prompt_ids": [1, true]}', "whole numbers"),
    (b'{"prompt_ids": [1, 8]}', "id 8"),
    (b'{"messages": [{"role": "user"}]}', "role and content"),
    (b'{"messages": [{"role": "user", "content": "1"}]}', "chat template"),
    (b'{"prompt": "1", "id": [1]}', "id"),
    (b'{"prompt": "1", "seed": 3}', "'seed'"),
    (b'{"prompt": "1 nine"}', "'nine'"),
    (b'{"prompt": "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"}', "20 tokens"),
    (b'{"prompt": "\xff"}', "UTF-8"),
    (b"[" * 100_000, "not valid JSON"),
]


@pytest.mark.parametrize(("line", "word"), BAD_LINES)
def test_a_bad_line_is_named_before_anything_is_answered(cli: Cli, line: bytes, word: str) -> None:
    Path("p.jsonl").write_bytes(b'{"prompt": "1"}\n\n' + line + b'\n{"prompt": "2"}\n')
    refused(cli("prompts=p.jsonl", "target.max_context=15", "out=out.jsonl"), "line 3", word)
    assert not Path("out.jsonl").exists()


def test_bad_files_are_one_sentence(cli: Cli, tmp_path: Path) -> None:
    refused(cli("prompts=missing.jsonl"), "missing.jsonl", "No such file")
    refused(cli(f"prompts={tmp_path}"), "directory")
    Path("empty.jsonl").write_text("\n\n")
    refused(cli("prompts=empty.jsonl"), "no prompt")


# --- out=FILE ---------------------------------------------------------------------------------


def test_the_file_holds_what_json_would_print(cli: Cli) -> None:
    write_lines(*LINES)
    printed = without_times(cli(*SAMPLED, "output=json").objects)
    done = cli(*SAMPLED, "out=out.jsonl", "runtime.batch_size=1")
    assert (done.code, done.out) == (0, "")
    assert without_times(read_lines()) == printed


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize(("kept", "torn"), [(0, 0), (0, 5), (1, 200), (2, 1), (4, 0), (5, 900)])
def test_an_interrupted_run_goes_on(cli: Cli, size: int, kept: int, torn: int) -> None:
    """On the command line: cut anywhere, the end is the same."""
    write_lines(*LINES)
    argv = (*SAMPLED, "out=out.jsonl", f"runtime.batch_size={size}")
    cli(*argv)
    whole = without_times(read_lines())
    lines = Path("out.jsonl").read_text().splitlines(keepends=True)
    Path("out.jsonl").write_text("".join(lines[:kept]) + "".join(lines[kept:])[:torn])
    done = cli(*argv)
    assert done.code == 0
    assert without_times(read_lines()) == whole
    assert (f"{kept} of 6 answers" in done.err) == (kept > 0)


def test_a_finished_file_loads_nothing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines(*LINES)
    cli(*SAMPLED, "out=out.jsonl")
    before = Path("out.jsonl").read_bytes()
    monkeypatch.setattr("foredraft.framework.api.engine_from", None)
    assert cli(*SAMPLED, "out=out.jsonl").code == 0
    assert Path("out.jsonl").read_bytes() == before


def test_another_config_or_other_prompts_are_refused(cli: Cli) -> None:
    write_lines(*LINES)
    cli(*SAMPLED, "out=out.jsonl")
    before = Path("out.jsonl").read_bytes()
    other = cli(*SAMPLED, "out=out.jsonl", "policy.gamma=2")
    refused(other, "another config", "policy.gamma is 4 there and 2 here")
    refused(cli(*SAMPLED, "out=out.jsonl", "stop=1"), "another config", "stop")
    write_lines(*LINES[1:])
    refused(cli(*SAMPLED, "out=out.jsonl"), "another prompt")
    write_lines(*LINES[:2])
    refused(cli(*SAMPLED, "out=out.jsonl"), "another prompt")
    assert Path("out.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "data", [b"my notes", b"my notes\n", b'{"prompt": "1"}\n', b"\xff\n", b"1\n"]
)
def test_a_file_that_is_not_ours_is_left_alone(cli: Cli, data: bytes) -> None:
    write_lines(*LINES)
    Path("out.jsonl").write_bytes(data)
    refused(cli(*SAMPLED, "out=out.jsonl"), "line 1 of out=out.jsonl")
    assert Path("out.jsonl").read_bytes() == data


def test_out_refuses_what_is_no_file(cli: Cli, tmp_path: Path) -> None:
    refused(cli("prompt=1", f"out={tmp_path}"), "is not a file")
    refused(cli("prompt=1", "out=no/such/folder.jsonl"), "no such folder")
    refused(cli("prompt=1", "out=o.jsonl", "output=text"), "output=text")


def test_an_error_keeps_what_is_finished(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a batch too: rows that were done before the failure are in the file."""
    from foredraft.framework import decoding

    write_lines({"prompt": "0"}, {"prompt": "1 2"}, {"prompt": "3"})
    argv = ("prompts=p.jsonl", "sampling.temperature=1", "target.eos=3", "max_new_tokens=40")
    whole = cli(*argv, "output=json").objects
    rounds = sorted(value["metrics"]["rounds"] for value in whole)
    step = decoding.Batch.step

    def fails_late(batch: decoding.Batch) -> Any:
        if batch.context.round_index == rounds[1]:
            raise RuntimeError("no luck")
        return step(batch)

    assert rounds[1] < rounds[2]
    monkeypatch.setattr(decoding.Batch, "step", fails_late)
    done = cli(*argv, "out=out.jsonl", "runtime.batch_size=3")
    assert done.code == 1 and len(read_lines()) == 2
    printed = cli(*argv, "output=json", "runtime.batch_size=3")
    assert printed.code == 1 and len(printed.objects) == 2


def test_a_sweep_fills_one_file_and_goes_on(cli: Cli) -> None:
    write_lines(*LINES)
    argv = ("-m", *SAMPLED, "policy.gamma=1,2,3", "out=out.jsonl")
    cli(*argv)
    whole = read_lines()
    assert len(whole) == 18
    lines = Path("out.jsonl").read_text().splitlines(keepends=True)
    Path("out.jsonl").write_text("".join(lines[:8]) + lines[8][:50])
    done = cli(*argv)
    assert done.code == 0 and "2 of 6 answers" in done.err
    again = [(v["config"]["policy"]["gamma"], v["index"], v["token_ids"]) for v in read_lines()]
    assert again == [(v["config"]["policy"]["gamma"], v["index"], v["token_ids"]) for v in whole]


def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    """The real program, killed without a chance to clean up."""
    lines = [json.dumps({"prompt": f"{n % 8}"}) + "\n" for n in range(40)]
    (tmp_path / "p.jsonl").write_text("".join(lines))
    out = tmp_path / "out.jsonl"
    program = [sys.executable, "-m", "foredraft.framework.cli.main", "generate", "target=table"]
    program += [f"prompts={tmp_path / 'p.jsonl'}", f"out={out}", "sampling.temperature=1"]
    with subprocess.Popen([*program, "max_new_tokens=100"]) as running:
        while not (out.exists() and out.read_bytes().count(b"\n") >= 2):
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
    kept = out.read_text().splitlines()[:2]
    done = subprocess.run([*program, "max_new_tokens=100"], capture_output=True, check=True)
    assert done.stdout == b""
    assert out.read_text().splitlines()[:2] == kept
    assert sorted(value["index"] for value in read_lines(str(out))) == list(range(40))
