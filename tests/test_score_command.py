"""``foredraft score`` and ``foredraft record``: what they print, keep and refuse."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import Cli, make_cli, refused

from foredraft.framework.cli.scoring_run import rate
from foredraft.framework.traces import read_traces

TABLE = ("target=table", "sampling.temperature=1", "max_new_tokens=24")
PROMPTS = '{"prompt": "0 1 2", "group": "a"}\n{"prompt": "1 1", "category": "b", "id": "x"}\n'

pytestmark = pytest.mark.usefixtures("only_builtins")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    Path("p.jsonl").write_text(PROMPTS)
    return make_cli(capsys)


def test_every_drafter_and_temperature_has_a_row(cli: Cli) -> None:
    words = ("drafter=ngram,prompt_lookup,none", "temperatures=0,1", "live=2", "out=s.json")
    done = cli("score", *TABLE, *words, "prompts=p.jsonl", "runtime.batch_size=2")
    assert done.code == 0, done.err
    rows = json.loads(Path("s.json").read_text())["rows"]
    assert [(row["drafter"], row["temperature"]) for row in rows] == [
        (name, t) for name in ("ngram", "prompt_lookup", "none") for t in (0.0, 1.0)
    ]
    for row in rows:
        live = row["temperature"] == 1  # the texts are of that temperature
        assert ("tau_live" in row) == live
        assert row["drafter"] in done.out
    alphas = {row["drafter"]: row["alpha"] for row in rows if row["temperature"] == 1}
    assert alphas["none"] is None and 0 < alphas["prompt_lookup"] < 1
    plain = next(row for row in rows if row["drafter"] == "none" and "tau_live" in row)
    assert plain["tau_live"] == plain["tau_predicted"] == 1 and plain["tau_error"] == 0


def test_a_live_runs_alpha_is_within_the_intervals(cli: Cli) -> None:
    Path("many.jsonl").write_text("".join(f'{{"prompt": "{i % 4} {i % 3}"}}\n' for i in range(24)))
    words = ("drafter=ngram,prompt_lookup", "live=1", "prompts=many.jsonl", "out=s.json")
    done = cli("score", *TABLE, *words, "runtime.batch_size=8")
    assert done.code == 0 and "±" in done.out
    for row in json.loads(Path("s.json").read_text())["rows"]:
        within = (row["alpha_within"] ** 2 + row["alpha_live_within"] ** 2) ** 0.5
        assert 0 < within < 0.2
        assert abs(row["alpha"] - row["alpha_live"]) < within


def test_the_interval_is_over_texts_and_covers_as_it_says() -> None:
    """Places of one text are alike, so that an interval over places would cover far less."""
    draws = np.random.default_rng(1)
    covered = []
    for _ in range(600):
        rates, counts = draws.beta(4, 4, 12), draws.integers(5, 60, 12)
        value, within = rate(list(rates * counts), counts.tolist())
        assert value is not None and within is not None
        covered.append(abs(value - 0.5) < within)
    assert 0.92 < np.mean(covered) < 0.98
    assert rate([], []) == rate([0.0], [0]) == (None, None)
    assert rate([3.0], [4]) == (0.75, None)


def test_recorded_answers_are_scored_as_they_are(cli: Cli) -> None:
    plain = ("drafter=none", "prompts=p.jsonl", "out=a.jsonl")
    assert cli("generate", *TABLE, *plain).code == 0
    made = cli("score", *TABLE, "drafter=ngram", "prompts=p.jsonl", "out=made.json")
    read = cli("score", *TABLE, "drafter=ngram", "answers=a.jsonl", "out=read.json")
    assert made.code == read.code == 0, read.err
    rows = [json.loads(Path(name).read_text())["rows"] for name in ("made.json", "read.json")]
    assert rows[0] == rows[1]


def test_a_drafter_that_cannot_be_built_costs_no_other(cli: Cli) -> None:
    words = ("drafter=ngram,cascade,prompt_lookup", "prompts=p.jsonl", "out=s.json")
    done = cli("score", *TABLE, *words)
    assert done.code == 2 and "model" in done.err.splitlines()[-1] and "ngram" in done.out
    (row,) = json.loads(Path("s.json").read_text())["rows"]
    assert row["drafter"] == "ngram"


def test_scores_feed_replay(cli: Cli) -> None:
    words = ("drafter=ngram,prompt_lookup", "traces=s.npz", "most=3", "prompts=p.jsonl")
    assert cli("score", *TABLE, *words).code == 0
    traces = read_traces("s.npz")
    assert [t.about["drafter"] for t in traces] == ["ngram"] * 2 + ["prompt_lookup"] * 2
    assert [t.about.get("group") for t in traces] == ["a", "b"] * 2
    assert cli("replay", "traces=s.npz", "policy=fixed", "policy.gamma=2", "c=.1").code == 0


def test_record_keeps_a_dense_trace_per_prompt(cli: Cli) -> None:
    done = cli("record", *TABLE, "drafter=ngram", "prompts=p.jsonl", "most=3", "out=r.npz")
    assert done.code == 0, done.err
    assert "48 places of 2 answers" in done.out
    first, second = read_traces("r.npz")
    assert first.accepts.shape == (24, 3) and first.about["drafter"] == "ngram"
    assert (second.about["group"], second.about["id"]) == ("b", "x")
    assert cli("replay", "traces=r.npz", "policy=fixed", "policy.gamma=2", "c=.1").code == 0


def test_greedy_traces_tell_how_sure_the_drafter_was(cli: Cli) -> None:
    words = ("sampling.temperature=0", "drafter=ngram", "prompt=0 1 2", "out=r.npz")
    assert cli("record", "target=table", "max_new_tokens=24", *words).code == 0
    (trace,) = read_traces("r.npz")
    sure = trace.confidences[np.arange(trace.most) < trace.lengths[:, None]]
    assert 0 < sure.min() < 0.99  # and not 1, which its greedy law would say


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("score", "prompt=0"), "needs drafter=NAME"),
        (("score", "drafter=ngram,", "prompt=0"), "needs drafter=NAME"),
        (("score", "drafter=ngran", "prompt=0"), "ngram"),
        (("score", "drafter=ngram,none", "drafter.order=2", "prompt=0"), "one by one"),
        (("score", "drafter=ngram"), "there is no prompt"),
        (("score", "drafter=ngram", "prompt=0", "temperatures=0;1"), "temperatures=0;1"),
        (("score", "drafter=ngram", "prompt=0", "temperatures=1.2.3"), "temperatures=1.2.3"),
        (("score", "drafter=ngram", "prompt=0", "most=65"), "most=65"),
        (("score", "drafter=ngram", "prompt=0", "live=x"), "live='x'"),
        (("score", "drafter=ngram", "prompt=0", "answers=p.jsonl"), "drop prompt="),
        (("score", "drafter=ngram", "answers=p.jsonl"), "line 1 of p.jsonl has no token_ids"),
        (("score", "drafter=ngram", "answers=none.jsonl"), "answers=none.jsonl cannot be read"),
        (("score", "drafter=ngram", "prompt=0", "traces=no/t.npz"), "traces=no/t.npz"),
        (
            ("score", "drafter=prompt_lookup", "drafter.branches=2", "verifier=greedy", "prompt=0"),
            "drafts trees",
        ),
        (("score", "drafter=ngram", "prompt=0", "-m"), "does not take -m"),
        (("record", "drafter=ngram", "prompt=0"), "needs out=FILE.npz"),
        (("score", "drafter=ngram,jacobi", "prompt=0"), "drafter=jacobi learns from the target"),
        (("record", "drafter=jacobi", "prompt=0", "out=r.npz"), "drafter=jacobi learns"),
        (("record", "drafter=ngram", "prompt=0", "out=."), "it is a folder"),
        (
            (
                "record",
                "drafter=prompt_lookup",
                "drafter.branches=2",
                "verifier=greedy",
                "prompt=0",
                "out=r.npz",
            ),
            "drafts trees",
        ),
        (("record", "drafter=ngram", "prompt=0 9", "out=r.npz"), "9"),
    ],
)
def test_what_cannot_be_is_one_sentence(cli: Cli, words: tuple[str, ...], said: str) -> None:
    command, *rest = words
    refused(cli(command, "target=table", *rest), said)
    assert not list(Path().glob("*.npz"))
