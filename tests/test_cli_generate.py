"""``foredraft generate`` with one prompt: texts as typed, streams, refusals, sweeps."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from cli_helpers import Cli, make_cli, refused

from foredraft.framework import hookimpl, plugins
from foredraft.framework.bases import point_mass_draft
from foredraft.framework.cli.arguments import parse
from foredraft.framework.cli.display import visible
from foredraft.framework.errors import ForedraftError
from foredraft.framework.interfaces import Drafter, DraftSession
from foredraft.framework.law import DenseLaw
from foredraft.framework.records import Draft
from foredraft.framework.specs import DrafterSpec
from foredraft.framework.testing.tiny_tokenizer import save_tiny, tiny_tokenizer


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return make_cli(capsys, "generate")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny(tmp_path_factory.mktemp("model") / "chat", dtype=torch.float32)


@pytest.fixture(scope="module")
def plain_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model") / "plain"
    return save_tiny(folder, chat=False, eos=False, dtype=torch.float32, context=2048)


TABLE = ("target=table", "prompt=0 1 2", "max_new_tokens=12")
NASTY = [
    "a, b, c",
    "it's {x} and [y]",
    'say "hi" \\ there',
    "a=b",
    "prompt=x",
    "true",
    "null",
    "1e5",
    "${oc.env:HOME} $HOME ~",
    "line one\nline two\n",
    "  spaces around\t",
    "Grüße, 世界 🙂 \u2028 \u200f",
    "\x1b[31m\x07",
    "- # : & * ! | > ' % @ `",
    "{" * 50,
    "--help",
    "<|end|>",
]


@pytest.mark.parametrize("text", NASTY)
def test_a_prompt_arrives_as_typed(cli: Cli, plain_model: str, text: str) -> None:
    where = ("target=causal_lm", f"target.model={plain_model}", "max_new_tokens=1")
    (value,) = cli(*where, f"prompt={text}", f"stop={text}", "output=json").objects
    assert value["prompt"] == text
    assert value["config"]["stop"] == [text]
    assert value["prompt_tokens"] == len(tiny_tokenizer().encode(text))


def test_text_streams_to_stdout_and_counts_to_stderr(cli: Cli) -> None:
    done = cli(*TABLE)
    assert done.code == 0
    assert len(done.out.split()) == 12 and done.out.endswith("\n")
    (line,) = done.err.splitlines()
    assert "12 tokens in" in line and "tau" in line and "accept rate" in line
    assert "ended by length" in line


@pytest.mark.parametrize("seed", range(6))
def test_streamed_pieces_join_to_the_text(cli: Cli, model: str, seed: int) -> None:
    """Random bytes: characters break across tokens and rounds."""
    where = ("target=causal_lm", f"target.model={model}", "prompt=äö", "max_new_tokens=60")
    settings = ("sampling.temperature=1", f"seed={seed}", "drafter=ngram", "policy.gamma=3")
    (value,) = cli(*where, *settings, "output=json").objects
    assert cli(*where, *settings).out == value["trimmed_text"] + "\n"
    assert value["text"].startswith(value["trimmed_text"])
    assert value["metrics"]["emitted"] == len(value["token_ids"])


def test_pieces_come_round_by_round(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[str] = []
    monkeypatch.setattr("foredraft.framework.cli.runner.write", pieces.append)
    cli(*TABLE, "drafter=none")
    assert len(pieces) == 13 and "".join(pieces).split() == "".join(pieces)[:-1].split(" ")


def test_nothing_is_shown_behind_a_stop(cli: Cli) -> None:
    full = cli(*TABLE).out.split()
    stop = " ".join(full[3:5])
    done = cli(*TABLE, f"stop={stop}", "policy.gamma=8")
    (value,) = cli(*TABLE, f"stop={stop}", "policy.gamma=8", "output=json").objects
    assert done.out == value["text"] + "\n"
    assert value["finish_reason"] == "stop" and stop in value["text"]
    assert value["trimmed_text"] == value["text"].split(stop)[0]


def test_no_limit_runs_to_the_end_of_the_answer(cli: Cli) -> None:
    """No limit is null, never a negative sentinel."""
    full = cli(*TABLE, "sampling.temperature=1").out.split()
    eos = next(token for token in full if token not in ("0", "1", "2"))
    settings = (*TABLE, "sampling.temperature=1", f"target.eos={eos}", "output=json")
    (value,) = cli(*settings, "max_new_tokens=null").objects
    assert value["finish_reason"] == "eos"
    assert value["token_ids"] == [int(t) for t in full[: full.index(eos) + 1]]
    assert cli(*TABLE, "max_new_tokens=-1").code == 2


def test_the_end_mark_is_no_text(cli: Cli, model: str) -> None:
    """The reader sees the answer; ``text`` keeps the decoding of every id."""
    settings = ("target=causal_lm", f"target.model={model}", "sampling.temperature=1")
    for seed in range(100):
        rest = ("prompt=a", "max_new_tokens=200", f"seed={seed}")
        (value,) = cli(*settings, *rest, "output=json").objects
        if value["finish_reason"] == "eos":
            break
    assert value["finish_reason"] == "eos"
    assert value["text"] == value["trimmed_text"] + "<|end|>"
    assert cli(*settings, *rest).out == value["trimmed_text"] + "\n"


def test_json_is_one_strict_object(cli: Cli) -> None:
    done = cli(*TABLE, "output=json", "drafter=none", "verifier=greedy", "seed=7")
    (value,) = done.objects
    assert done.out.isascii() and done.out.count("\n") == 1
    assert value["lossless"] is True and value["seed"] == 7
    assert value["metrics"]["tau"] == 1.0 and value["metrics"]["accept_rate"] is None
    assert set(value["metrics"]["time"]) == {"prefill", "draft", "verify", "sampling", "other"}
    assert value["config"]["drafter"] == {"name": "none"}
    assert not {"prompt", "prompts", "out", "output"} & set(value["config"])


def test_the_chat_template_is_used_where_there_is_one(cli: Cli, model: str) -> None:
    settings = ("target=causal_lm", f"target.model={model}", "max_new_tokens=1", "output=json")
    (chat,) = cli(*settings, "prompt=abc").objects
    (bare,) = cli(*settings, "prompt=abc", "chat=false").objects
    assert (chat["prompt_tokens"], bare["prompt_tokens"]) == (6, 3)


def test_control_characters_cannot_drive_a_terminal(
    cli: Cli, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert visible("a\x1b[2J\r\x9b\x7f\n\tb") == "a\\x1b[2J\\r\\x9b\\x7f\n\tb"
    settings = ("target=causal_lm", f"target.model={model}", "prompt=a", "max_new_tokens=120")
    raw = cli(*settings, "sampling.temperature=1").out
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: self is sys.stdout)
    shown = cli(*settings, "sampling.temperature=1").out
    assert shown == visible(raw) != raw


# --- sweeps and configs ---------------------------------------------------------------------


def test_a_sweep_runs_every_combination(cli: Cli) -> None:
    done = cli("-m", *TABLE, "drafter=none,ngram", "policy.gamma=range(1,3)", "output=json")
    chosen = [
        (v["config"]["drafter"]["name"], v["config"]["policy"]["gamma"]) for v in done.objects
    ]
    assert chosen == [("none", 1), ("none", 2), ("ngram", 1), ("ngram", 2)]
    assert len({v["text"] for v in done.objects}) == 1
    headings = [line for line in done.err.splitlines() if line.startswith("---")]
    assert headings[2] == "--- run 3 of 4: drafter=ngram policy.gamma=1"


def test_a_sweep_does_not_split_texts(cli: Cli) -> None:
    done = cli("-m", "target=table", "prompt=0 1", "stop=a,b", "seed=1,2", "output=json")
    assert [value["config"]["stop"] for value in done.objects] == [["a,b"], ["a,b"]]


def test_a_sweep_is_checked_whole_before_it_starts(cli: Cli) -> None:
    refused(cli("-m", *TABLE, "policy.gamma=1,2,-1"), "policy.gamma=-1")


def test_cfg_prints_the_config_and_stops(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "drafter").mkdir()
    preset = "defaults:\n  - ngram\n  - _self_\norder: 5\n"
    (tmp_path / "drafter" / "long.yaml").write_text(preset)
    done = cli("drafter=long", "--config-dir", str(tmp_path), "--cfg", "stop=true", "prompt=a: b")
    config = yaml.safe_load(done.out)
    assert config["drafter"].items() >= {"name": "ngram", "order": 5, "path": None}.items()
    assert config["stop"] == ["true"] and config["prompt"] == "a: b"


def test_help_shows_the_chosen_parts_keys(cli: Cli) -> None:
    done = cli("drafter=ngram", "--help")
    shown = " ".join(done.out.split())  # a narrow terminal breaks lines
    assert done.code == 0 and "drafter.order" in shown and "up to 6" in shown
    assert "prompt_lookup" in done.out and "experiment" in done.out


# --- refusals: one line, another exit code than 0, nothing on standard output ------------------


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("drafter=promt_lookup", ("unknown drafter", "did you mean 'prompt_lookup'")),
        ("policy.gama=3", ("policy.gama", "did you mean 'gamma'")),
        ("max_new_token=3", ("did you mean 'max_new_tokens'",)),
        ("policy.gamma=-1", ("policy.gamma=-1", "from 0")),
        ("policy.gamma=1.9", ("policy.gamma=1.9", "whole number")),
        ("policy.gamma=true", ("policy.gamma=True",)),
        ("policy.gamma='3'", ("policy.gamma='3'",)),
        ("policy.gamma=null", ("policy.gamma=null",)),
        ("policy.gamma=1000000", ("policy.gamma=1000000",)),
        ("policy.gamma=1,2", ("add -m",)),
        ("sampling.temperature=-1", ("sampling.temperature=-1",)),
        ("sampling.temperature=nan", ("sampling.temperature=nan",)),
        ("target.max_context=3", ("3 tokens", "context")),
        ("output=xml", ("output='xml'", "json")),
        ("stop=", ("stop",)),
        ("out=", ("out",)),
        ("out=/no/such/folder/x", ("no such folder",)),
        ("prompt=again", ("prompt= is given twice",)),
        ("prompts=x", ("prompt= and prompts=",)),
        ("why is the sky blue", ("prompt=",)),
        ("--mutirun", ("did you mean '--multirun'",)),
        ("--config-dir=/no/such/folder", ("/no/such/folder",)),
        ("target=causal_lm", ("target.model is empty",)),
        ("drafter=early_exit", ("early_exit",)),
    ],
)
def test_bad_arguments_are_one_sentence(cli: Cli, override: str, words: tuple[str, ...]) -> None:
    refused(cli(*TABLE, override), *words)


def test_gamma_0_is_plain_decoding(cli: Cli) -> None:
    """Numbers of the wrong kind."""
    (value,) = cli(*TABLE, "policy.gamma=0", "output=json").objects
    assert value["metrics"]["drafted"] == 0 and value["metrics"]["tau"] == 1.0


@pytest.mark.parametrize("prompt", ["", " ", "\n\t", "\udcff"])
def test_an_empty_or_broken_prompt_is_refused(cli: Cli, prompt: str) -> None:
    refused(cli("target=table", f"prompt={prompt}"), "prompt")


def test_no_prompt_is_refused(cli: Cli) -> None:
    refused(cli("target=table"), "prompt=", "prompts=")


def test_a_model_with_too_long_a_prompt_is_one_sentence(cli: Cli, model: str) -> None:
    where = ("target=causal_lm", f"target.model={model}")
    refused(cli(*where, "prompt=" + "x" * 600), "603 tokens", "512")


def test_a_fault_of_ours_names_its_type(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("foredraft.framework.cli.generate.answer_runs", fail)
    done = cli(*TABLE)
    assert (done.code, done.out) == (1, "")
    (line,) = done.err.splitlines()
    assert "unexpected RuntimeError: two lines" in line and "--trace" in line
    assert "Traceback" in cli(*TABLE, "--trace").err


def test_ctrl_c_is_quiet_and_keeps_what_is_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("foredraft.framework.cli.generate.answer_runs", interrupt)
    assert cli(*TABLE) == (130, "", "")


# --- plugins at fault -------------------------------------------------------------------------


@dataclass
class FaultyConfig:
    """Which fault to make."""

    fault: str = "raise"


class Faulty(Drafter):
    def __init__(self, fault: str) -> None:
        self.fault = fault

    def start(self, context: Any) -> DraftSession:
        return FaultySession(self.fault, context)


class FaultySession(DraftSession):
    def __init__(self, fault: str, context: Any) -> None:
        self.fault, self.context = fault, context

    def propose(self, gammas: list[int]) -> Draft:
        rows, vocab = self.context.rows, self.context.vocab_size
        tokens = torch.zeros(rows, 1, dtype=torch.int64)
        laws = torch.full((rows, 1, vocab), 1 / vocab, dtype=torch.float64)
        if self.fault == "raise":
            raise ValueError("no\nluck")
        if self.fault == "id":
            return point_mass_draft([[vocab]] * rows, self.context.device)
        if self.fault == "not_a_law":
            laws[0, 0, 0] = float("nan")
        if self.fault == "law_shape":
            laws = laws[..., :-1]
        if self.fault == "shape":
            tokens = tokens.expand(-1, 2)
        return Draft(tokens, [1] * rows, DenseLaw(laws))


class FaultyPlugin:
    @hookimpl
    def foredraft_drafters(self) -> list[DrafterSpec]:
        return [
            DrafterSpec(
                "faulty", lambda config, target: Faulty(config.fault), FaultyConfig, contract=1
            )
        ]


@pytest.fixture
def faulty() -> Iterator[None]:
    plugins.register(FaultyPlugin(), "faulty-plugin")
    yield
    plugins.reset()


@pytest.mark.usefixtures("faulty")
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("raise", ("ValueError: no luck",)),
        ("id", ("drafted id 8", "0 to 7")),
        ("not_a_law", ("NaN",)),
        ("law_shape", ("draft law of shape",)),
        ("shape", ("tokens of shape",)),
    ],
)
@pytest.mark.parametrize("output", ["text", "json"])
def test_a_faulty_drafter_is_named(
    cli: Cli, fault: str, words: tuple[str, ...], output: str
) -> None:
    done = cli(*TABLE, "drafter=faulty", f"drafter.fault={fault}", f"output={output}")
    refused(done, "drafter 'faulty'", *words)


# --- arguments by themselves, and the real program ----------------------------------------------


def test_texts_never_reach_hydra() -> None:
    found = parse(["stop=a", "policy.gamma=1", "stop=b,c", "prompt=x", "out=o", "-m"])
    assert found.overrides == ["policy.gamma=1"] and found.stop == ["a", "b,c"]
    assert found.texts == {"prompt": "x", "out": "o"} and found.multirun
    with pytest.raises(ForedraftError, match="output=text"):
        parse(["out=o", "output=text"])


LIGHT = """
import sys
from foredraft.framework.cli.main import main
code = main({argv!r})
heavy = {{"torch", "transformers"}} & set(sys.modules)
assert not heavy, heavy
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        ([], 0),
        (["--help"], 0),
        (["plugins"], 0),
        (["generate", "--help"], 0),
        (["generate", "prompt=x", "drafter=nope"], 2),
        (["generate", "prompts=/no/such/file"], 2),
    ],
)
def test_help_lists_and_refusals_import_no_torch(argv: list[str], code: int) -> None:
    program = [sys.executable, "-c", LIGHT.format(argv=argv)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr


def test_a_closed_pipe_and_a_signal_are_quiet() -> None:
    program = [sys.executable, "-m", "foredraft.framework.cli.main", "generate", "target=table"]
    program += ["prompt=0 1", "max_new_tokens=null", "target.max_context=100000"]
    for stop in ("close", "interrupt"):
        with subprocess.Popen(
            program,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A job in the background of a shell ignores Ctrl-C, and its children would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as running:
            assert running.stdout and running.stderr
            assert running.stdout.read(2)
            if stop == "close":
                running.stdout.close()
                error = running.stderr.read()
                running.wait(60)
            else:
                running.send_signal(signal.SIGINT)
                _, error = running.communicate(timeout=60)
            assert error == b""
        assert running.returncode == {"close": 141, "interrupt": 130}[stop]
