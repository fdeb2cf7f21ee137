"""``foredraft theory``: the formulas from the command line, and runs beside their predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Cli, make_cli, refused

from foredraft.framework import theory
from foredraft.framework.cli.theory_files import read_runs

pytestmark = pytest.mark.usefixtures("only_builtins")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return make_cli(capsys)


def answer(cli: Cli, *argv: str) -> Any:
    done = cli("theory", *argv, "output=json")
    assert done.code == 0, done.err
    return done.objects[0]


# --- given rates -------------------------------------------------------------------------------


def test_the_best_gamma_and_what_it_brings(cli: Cli) -> None:
    found = answer(cli, "alpha=.8", "c=.05")["rates"]
    assert found["best"]["gamma"] == 8 and found["given"] is None
    assert found["best"]["speedup"] == pytest.approx(3.09, abs=0.005)
    assert found["guaranteed_speedup"] == pytest.approx(1.8 / 1.05)
    assert found["oracle"] == {"tau": pytest.approx(5), "speedup": pytest.approx(1 / 0.24)}


def test_a_given_gamma_a_limit_and_another_cost_of_operations(cli: Cli) -> None:
    found = answer(cli, "alpha=.8", "c=.05", "gamma=5", "limit=3", "c_hat=0")["rates"]
    assert found["best"]["gamma"] == 3
    assert found["given"]["operations"] == pytest.approx(1.63, abs=0.005)  # Table 1
    assert found["given"]["tau"] == pytest.approx(3.69, abs=0.005)
    assert found["given"]["memory_reads"] == pytest.approx(1 / found["given"]["tau"])


def test_tables_name_their_formulas(cli: Cli) -> None:
    shown = cli("theory", "alpha=.8", "c=.05", "gamma=4").out
    for word in ("best gamma 8, 3.09 times", "Equation 1", "Theorem 3.8", "Corollary 3.9", "2.80"):
        assert word in shown
    assert "do not speculate (gamma 0)" in cli("theory", "alpha=.3", "c=.5").out


def test_certain_acceptance_has_an_endless_oracle(cli: Cli) -> None:
    found = answer(cli, "alpha=1", "c=.1", "limit=10")["rates"]
    assert found["oracle"]["tau"] == "inf" and found["best"]["gamma"] == 10


def test_rates_by_position(cli: Cli) -> None:
    found = answer(cli, "alpha_at=.9,.5,.1", "c=.1")["positions"]
    taus = [row["tau"] for row in found["gammas"]]
    assert taus == pytest.approx([1, 1.9, 2.35, 2.395])
    assert found["best"]["gamma"] == 2
    assert found["best"]["speedup"] == pytest.approx(2.35 / 1.2)
    assert "2 *" in cli("theory", "alpha_at=.9,.5,.1", "c=.1").out


def test_figures_are_drawn(cli: Cli) -> None:
    pytest.importorskip("matplotlib")
    done = cli("theory", "figures=drawn")
    assert done.out.splitlines() == ["drawn/figure2.png", "drawn/figure3.png"]
    assert all(Path(line).read_bytes().startswith(b"\x89PNG") for line in done.out.splitlines())
    refused(cli("theory", "figures=drawn/figure2.png"), "it is a file")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), ("alpha=", "run=FILE")),
        (("alpha=.8",), ("needs c=",)),
        (("c=.8",), ("alpha=",)),
        (("alpha=1.2", "c=.1"), ("alpha=1.2", "from 0 to 1")),
        (("alpha=.8", "c=-1"), ("c=-1",)),
        (("alpha=nan", "c=.1"), ("'nan'", "number")),
        (("alpha=.8", "c=inf"), ("'inf'", "number")),
        (("alpha=high", "c=.1"), ("'high'",)),
        (("alpha=.8", "alpha=.7", "c=.1"), ("once",)),
        (("alpha=.8", "alpha_at=.7,.6", "c=.1"), ("alpha= and alpha_at=",)),
        (("alpha_at=.7,,.6", "c=.1"), ("alpha_at=''",)),
        (("alpha_at=.7,.6", "c=.1", "gamma=2"), ("gamma=",)),
        (("alpha=.8", "c=.1", "gamma=-1"), ("gamma='-1'", "whole number")),
        (("alpha=.8", "c=.1", "gamma=2.0"), ("gamma='2.0'",)),
        (("alpha=.8", "c=.1", "limit=257"), ("limit=257", "256")),
        (("alpha=.8", "c=.1", "plain=x"), ("plain=FILE needs run=FILE",)),
        (("alpha=.8", "c=.1", "output=yaml"), ("output='yaml'", "json")),
        (("alpah=.8", "c=.1"), ("did you mean 'alpha'",)),
        (("run=missing.jsonl",), ("run=missing.jsonl", "cannot be read")),
        (("run=missing.jsonl", "c=.1"), ("c= cannot be with run=FILE",)),
    ],
)
def test_what_cannot_be_is_refused(cli: Cli, argv: tuple[str, ...], words: tuple[str, ...]) -> None:
    refused(cli("theory", *argv), *words)


# --- runs --------------------------------------------------------------------------------------

SWEEP = ("target=table", "sampling.temperature=1", "max_new_tokens=40", "policy.gamma=3")


@pytest.fixture
def sweep(cli: Cli) -> Cli:
    """A plain run and a drafting one of three answers each, as answers and as a trace."""
    Path("questions.jsonl").write_text("".join(f'{{"prompt": "{n} 1 2"}}\n' for n in range(3)))
    done = cli(
        "generate", "-m", "drafter=none,ngram", *SWEEP, "prompts=questions.jsonl", "out=answers.jsonl",
        "observers=[jsonl]", "observer.jsonl.path=trace.jsonl",
    )  # fmt: skip
    assert done.code == 0, done.err
    return cli


def test_a_trace_is_compared_exactly(sweep: Cli) -> None:
    (found,) = answer(sweep, "run=trace.jsonl")["runs"]
    lines = [json.loads(line) for line in Path("trace.jsonl").read_text().splitlines()]
    done = [line["metrics"] for line in lines if line["record"] == "run_done"][1]
    assert found["measured"]["tau"] == pytest.approx(done["tau"])
    assert found["alpha"] == pytest.approx(done["alpha"])
    assert found["accept_rate_at"] == pytest.approx(done["accept_rate_at"])
    rounds = [r for line in lines if line["record"] == "round_done" for r in line["rows"]]
    lengths = [len(r["drafted"]) for r in rounds if r["request"] >= 0][120:]  # 120 plain rounds
    tokens = theory.expected_tokens(done["alpha"], lengths)
    assert found["one_rate"]["tau"] == pytest.approx(tokens.mean())
    assert found["by_position"]["tau"] == pytest.approx(done["tau"], abs=0.1)


def test_answers_of_the_same_runs_say_nearly_the_same(sweep: Cli) -> None:
    (answers,) = answer(sweep, "run=answers.jsonl")["runs"]
    (trace,) = answer(sweep, "run=trace.jsonl")["runs"]
    assert (answers["answers"], answers["rounds"]) == (trace["answers"], trace["rounds"])
    assert answers["measured"]["tau"] == pytest.approx(trace["measured"]["tau"])
    for key in ("alpha", "accept_rate", "accept_rate_at"):
        assert answers[key] == pytest.approx(trace[key])
    assert answers["one_rate"]["tau"] == pytest.approx(trace["one_rate"]["tau"], rel=0.03)
    assert answers["by_position"]["tau"] == pytest.approx(trace["by_position"]["tau"], rel=0.05)


def clocked(run: str) -> None:
    """The answers of a file, as if a target step took a second and a draft step a tenth of it."""
    lines = [json.loads(line) for line in Path(run).read_text().splitlines()]
    for line in lines:
        rounds = line["metrics"]["rounds"]
        drafted = line["metrics"]["drafted"]
        spent = {"prefill": 9.0, "draft": 0.1 * drafted, "verify": 1.0 * rounds}
        line["metrics"]["time"] = {**spent, "sampling": 0.0, "other": 0.0}
    Path(run).write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_costs_and_speed_are_those_of_the_plain_run(
    sweep: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    clocked("answers.jsonl")
    (found,) = answer(sweep, "run=answers.jsonl", "gamma=2")["runs"]
    assert found["c"] == pytest.approx(0.1)
    assert found["c_from"] == "steps of the plain run"
    tau, gamma = found["measured"]["tau"], found["gamma"]
    assert found["measured"]["speedup"] == pytest.approx(tau / (1 + 0.1 * gamma))
    assert found["measured"]["speedup_of_steps"] == pytest.approx(tau / (1 + 0.1 * gamma))
    expected = found["one_rate"]["tau"] / (1 + 0.1 * gamma)
    assert found["one_rate"]["speedup"] == pytest.approx(expected)
    best, factor = theory.best_gamma(found["alpha"], 0.1, 64)
    assert found["one_rate"]["best_gamma"] == best
    assert found["one_rate"]["best_speedup"] == pytest.approx(float(factor))
    assert found["given"]["speedup"] == pytest.approx(float(theory.speedup(found["alpha"], 2, 0.1)))
    shown = sweep("theory", "run=answers.jsonl").out
    assert "drafter=ngram" in shown and "predicted from alpha" in shown and "c 0.1" in shown


def test_the_plain_run_may_be_another_file(sweep: Cli) -> None:
    lines = Path("answers.jsonl").read_text().splitlines(keepends=True)
    Path("plain.jsonl").write_text("".join(line for line in lines if '"none"' in line))
    Path("run.jsonl").write_text("".join(line for line in lines if '"ngram"' in line))
    (alone,) = answer(sweep, "run=run.jsonl")["runs"]
    assert alone["measured"]["speedup"] is None and "wider" in alone["c_from"]
    (beside,) = answer(sweep, "run=run.jsonl", "plain=plain.jsonl")["runs"]
    assert beside == answer(sweep, "run=answers.jsonl")["runs"][0]
    refused(sweep("theory", "run=plain.jsonl"), "no drafted tokens")
    refused(sweep("theory", "run=run.jsonl", "plain=run.jsonl"), "drafter=none")
    Path("plain.jsonl").write_text(
        Path("plain.jsonl").read_text().replace('"temperature": 1.0', '"temperature": 0.5')
    )
    refused(sweep("theory", "run=run.jsonl", "plain=plain.jsonl"), "another target, sampling")


def test_rounds_without_a_draft_are_plain_steps(sweep: Cli) -> None:
    lines = [json.loads(line) for line in Path("trace.jsonl").read_text().splitlines()]
    kept = [line for line in lines if line["run"] == lines[-1]["run"]]
    for number, line in enumerate(line for line in kept if line["record"] == "round_done"):
        line["seconds"] = {"draft": 0.3, "verify": 2.0}
        if number < 3:
            line["seconds"]["verify"] = 1.0
            for row in line["rows"]:
                row |= {"drafted": [], "accepted": 0, "emitted": [0], "overlaps": [], "path": []}
                row["rejected"] = []
    Path("idle.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    (found,) = answer(sweep, "run=idle.jsonl")["runs"]
    assert found["c_from"] == "its own rounds without a draft"
    assert found["c"] == pytest.approx(0.3 / found["gamma"])
    (run,) = read_runs("run", "idle.jsonl")
    assert run.idle[:3] == [1.0] * 3 and run.lengths[0] >= 3


def test_a_line_that_was_cut_is_left_out(sweep: Cli) -> None:
    text = Path("trace.jsonl").read_text()
    Path("trace.jsonl").write_text(text[:-40])
    assert answer(sweep, "run=trace.jsonl")["runs"][0]["answers"] == 3


def test_a_trace_without_rounds_is_taken_by_its_answers(cli: Cli) -> None:
    words = ("observers=[jsonl]", "observer.jsonl.path=t.jsonl", "observer.jsonl.rounds=false")
    assert cli("generate", "drafter=ngram", *SWEEP, "prompt=0 1 2", *words).code == 0
    (found,) = answer(cli, "run=t.jsonl")["runs"]
    assert found["answers"] == 1 and found["measured"]["tau"] > 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("no answer and no round",)),
        ("nonsense\n", ("line 1", "neither an answer")),
        ("[1]\n", ("line 1", "neither")),
        ('{"prompt": "x"}\n', ("line 1", "neither")),
        ('{"record": "round_done", "run": "x", "rows": []}\n', ("line 1", "neither")),
        ('{"config": {}, "metrics": {}}\n', ("line 1", "neither")),
    ],
)
def test_a_file_of_something_else_is_refused(cli: Cli, text: str, words: tuple[str, ...]) -> None:
    Path("odd.jsonl").write_text(text)
    refused(cli("theory", "run=odd.jsonl"), "odd.jsonl", *words)


def test_trees_are_refused(cli: Cli) -> None:
    tree = ("drafter.widths=[2,1]", "verifier=recursive", "observers=[jsonl]")
    words = ("prompt=0 1 2", "out=o.jsonl", "observer.jsonl.path=t.jsonl")
    assert cli("generate", "drafter=ngram", *SWEEP, *tree, *words).code == 0
    for name in ("o.jsonl", "t.jsonl"):
        refused(cli("theory", f"run={name}"), "drafts trees", "chains")
