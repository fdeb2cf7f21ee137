"""What a sweep asks: prompts that ship, files, data sets of a hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from foredraft.framework.bench.options import TaskConfig
from foredraft.framework.bench.tasks import GROUPS, BenchPrompt, own_prompts, read_task
from foredraft.framework.errors import ConfigError, ForedraftError, InputError


def lines(path: Path, *values: Any) -> str:
    path.write_text("\n".join(v if isinstance(v, str) else json.dumps(v) for v in values))
    return str(path)


def refusal(task: TaskConfig, kind: type[ForedraftError] = InputError) -> str:
    with pytest.raises(kind) as caught:
        read_task(task)
    text = str(caught.value)
    assert "\n" not in text and text.endswith(".")
    return text


# --- what ships ----------------------------------------------------------------------------------


def test_the_own_prompts_are_six_groups_of_eight() -> None:
    found = own_prompts()
    assert Counter(prompt.group for prompt in found) == dict.fromkeys(GROUPS, 8)
    assert [prompt.index for prompt in found] == list(range(48))
    assert len({prompt.id for prompt in found}) == len({prompt.content for prompt in found}) == 48
    for prompt in found:
        assert prompt.id == f"{prompt.group}-{prompt.index % 8 + 1}" and prompt.form == "prompt"
        assert prompt.content == prompt.content.strip() and 5 <= prompt.words <= 150


def test_two_groups_hold_what_their_answers_repeat() -> None:
    for prompt in own_prompts():
        if prompt.group == "summarization":
            assert prompt.words > 100 and "\n\n" in prompt.content
        if prompt.group == "code":
            assert len(prompt.content) > 200 and "print the whole" in prompt.content.replace(
                "print it", "print the whole"
            )


def test_a_task_keeps_what_it_is_told_to() -> None:
    found = read_task({"groups": ["code", "math"], "per_group": 3})
    assert Counter(prompt.group for prompt in found) == {"math": 3, "code": 3}
    assert [prompt.index for prompt in found] == list(range(6))
    assert found[0].id == "math-1"
    short = read_task(TaskConfig(most_words=20))
    assert short and max(prompt.words for prompt in short) <= 20
    assert "summarization" not in {prompt.group for prompt in short}


def test_a_task_that_keeps_nothing_is_refused() -> None:
    assert "did you mean 'math'" in refusal(TaskConfig(groups=["maths"]), ConfigError)
    text = refusal(TaskConfig(most_words=2))
    assert text == "task.most_words=2 leaves none of the 48 prompts."


@pytest.mark.parametrize(
    "values, message",
    [
        ({"source": "fiel"}, "did you mean 'file'"),
        ({"source": "file"}, "task=file needs task.file=FILE"),
        ({"file": "x"}, "task.file='x' has no effect with task=own; write task=file"),
        ({"source": "file", "file": "x", "split": "test"}, "write task=hub"),
        ({"source": "hub"}, "task.name=None is not possible with task=hub"),
        ({"source": "hub", "name": "../x"}, "must be a data set's id"),
        ({"source": "hub", "name": "/etc"}, "must be a data set's id"),
        ({"source": "hub", "name": "a/b/c"}, "must be a data set's id"),
        ({"per_group": 0}, "task.per_group=0 is not possible"),
        ({"most_words": True}, "task.most_words=True is not possible"),
        ({"grups": []}, "did you mean 'groups'"),
    ],
)
def test_a_task_that_cannot_be(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_task(values)
    assert message in str(caught.value)


# --- files ---------------------------------------------------------------------------------------


def test_a_file_of_every_form(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "x.jsonl",
        {"prompt": "one two"},
        {"id": "b", "group": "g", "prompt_ids": [1, 2, 3]},
        {"question_id": 81, "category": "writing", "turns": ["first turn", "second turn"]},
        {"messages": [{"role": "user", "content": "a b c d"}], "group": "g"},
    )
    found = read_task(TaskConfig("file", path))
    assert found == [
        BenchPrompt(0, 0, "prompts", "prompt", "one two"),
        BenchPrompt(1, "b", "g", "prompt_ids", [1, 2, 3]),
        BenchPrompt(2, 81, "writing", "prompt", "first turn"),
        BenchPrompt(3, 3, "g", "messages", [{"role": "user", "content": "a b c d"}]),
    ]
    assert [prompt.words for prompt in found] == [2, 3, 2, 4]
    kept = read_task(TaskConfig("file", path, groups=["g"], most_words=3))
    assert [(prompt.index, prompt.id) for prompt in kept] == [(0, "b")]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "holds no prompt"),
        ("{", "line 1 of"),
        ('{"prompt": ""}', "prompt is empty"),
        ('{"prompt": "a", "gamma": 3}', "sets 'gamma', which a sweep sets for each cell"),
        ('{"prompt": "a", "id": 1}\n{"prompt": "b", "id": "1"}', "two prompts of the id '1'"),
        ('{"text": "a"}', "must have one of prompt, turns"),
    ],
)
def test_a_file_that_cannot_be_asked(text: str, message: str, tmp_path: Path) -> None:
    assert message in refusal(TaskConfig("file", lines(tmp_path / "x.jsonl", text)))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    missing = refusal(TaskConfig("file", str(tmp_path / "no.jsonl")))
    assert missing.startswith("task.file=") and "cannot be read: No such file" in missing
    assert "cannot be read" in refusal(TaskConfig("file", str(tmp_path)))
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        assert "it is not a file" in refusal(TaskConfig("file", str(tmp_path / "pipe")))
    assert "reads its prompts from a file" in refusal(TaskConfig("file", "-"), ConfigError)


# --- hubs ----------------------------------------------------------------------------------------


class Hub:
    """A stand-in for the library ``datasets``."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows, self.read = rows, 0
        self.asked: Any = None

    def load_dataset(self, *names: Any, **options: Any) -> Any:
        self.asked = (names, options)
        for row in self.rows:
            self.read += 1
            yield row


def hub(monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]]) -> Hub:
    made = Hub(rows)
    library = SimpleNamespace(load_dataset=made.load_dataset)
    monkeypatch.setitem(sys.modules, "datasets", library)
    return made


def test_rows_of_a_hub_are_streamed_and_no_more_than_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    made = hub(monkeypatch, [{"text": f"row {i}"} for i in range(1000)])
    task = TaskConfig("hub", name="a/b", subset="s", column="text", per_group=5)
    found = read_task(task)
    wanted = [BenchPrompt(i, i, "prompts", "prompt", f"row {i}") for i in range(5)]
    assert found == wanted
    assert made.asked == (("a/b", "s"), {"split": "test", "revision": None, "streaming": True})
    assert made.read == 5
    assert len(read_task(TaskConfig("hub", name="a/b", column="text"))) == 48


def test_groups_of_a_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"prompt": f"row number {i}", "kind": "ab"[i % 2]} for i in range(100)]
    made = hub(monkeypatch, [{"prompt": "  ", "kind": "a"}, *rows])
    found = read_task(TaskConfig("hub", name="x", group_column="kind", per_group=2, groups=["b"]))
    assert [prompt.content for prompt in found] == ["row number 1", "row number 3"]
    assert made.read == 5
    both = read_task(TaskConfig("hub", name="x", group_column="kind", per_group=2))
    assert Counter(prompt.group for prompt in both) == {"a": 2, "b": 2}


def test_what_a_hub_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    hub(monkeypatch, [{"promt": "x", "n": 3}])
    text = refusal(TaskConfig("hub", name="x"), ConfigError)
    assert text.startswith("task.column='prompt' is no column") and "did you mean 'promt'" in text
    assert "holds int, not text" in refusal(TaskConfig("hub", name="x", column="n"), ConfigError)
    hub(monkeypatch, [])
    assert "gives no prompt" in refusal(TaskConfig("hub", name="x"))


def test_a_hub_that_fails_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*names: Any, **options: Any) -> Any:
        raise ConnectionError("no route\nto host")

    library = SimpleNamespace(load_dataset=broken)
    monkeypatch.setitem(sys.modules, "datasets", library)
    text = refusal(TaskConfig("hub", name="a/b"))
    assert text == "task.name=a/b cannot be loaded: no route to host."


def test_a_hub_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install 'foredraft[hub]'" in refusal(TaskConfig("hub", name="a/b"), ConfigError)


def test_a_folder_is_no_data_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The library would read it from this machine in place of the hub."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    with pytest.raises(ConfigError, match="is a file or folder here"):
        TaskConfig("hub", name="mine")


def test_reading_a_sweep_needs_no_torch() -> None:
    code = (
        "import sys; from foredraft.framework.bench import grid, plan, tasks; "
        "grid.read(['target=table']); tasks.read_task({}); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
