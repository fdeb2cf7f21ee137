"""``foredraft replay``: tables, files, and refusals in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_helpers import Cli, make_cli, refused

from foredraft.framework.times.steps import Constant
from foredraft.framework.times.table import BatchTimes, TimeTable
from foredraft.framework.traces import read_traces, write_traces
from foredraft.framework.traces.synthetic import TwoState, synthetic_traces

pytestmark = pytest.mark.usefixtures("only_builtins")

SMALL = ("texts=3", "places=60", "gamma_max=6")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return make_cli(capsys, "replay")


def first_words(out: str) -> list[str]:
    return [line.split("  ")[0].strip() for line in out.splitlines() if line.strip()]


def test_a_table_of_synthetic_texts(cli: Cli) -> None:
    done = cli("synthetic=two_state", "alphas=.9,.3", "lengths=30,30", *SMALL, "policies=optimal,heuristic",
               "gammas=1,4", "c=.1")  # fmt: skip
    assert done.code == 0, done.err
    names = first_words(done.out)
    assert "3 texts of 180 tokens, batch 1" in done.out
    due = ["fixed 0", "fixed 1", "fixed 4", "optimal", "heuristic", "informed", "oracle"]
    assert names[-7:] == due


def test_figures_go_to_a_file(cli: Cli) -> None:
    done = cli(
        "synthetic=iid", "alpha=.6", *SMALL, "policy=fixed", "policy.gamma=2", "out=found.json"
    )
    assert done.code == 0, done.err
    found = json.loads(Path("found.json").read_text())
    rows = {row["policy"]: row for row in found["rows"]}
    assert list(rows) == [*(f"fixed {g}" for g in range(7)), "fixed", "informed", "oracle"]
    assert rows["fixed"] == {**rows["fixed 2"], "policy": "fixed"}
    assert found["arguments"][0] == "synthetic=iid"
    assert rows["fixed 0"]["tokens_per_second"] == pytest.approx(1)


def test_saved_texts_are_read_again(cli: Cli) -> None:
    words = ("policy=heuristic", "c=.2")
    made = cli("synthetic=drifting", "low=.2", "high=.8", "period=40", "seed=3", "greedy=false", *SMALL,
               "save=made.npz", *words)  # fmt: skip
    again = cli("traces=made.npz", *words)
    assert made.code == again.code == 0 and made.out == again.out
    assert len(read_traces("made.npz")) == 3
    twice = cli("traces=made.npz", "traces=made.npz", *words)
    assert "6 texts" in twice.out


def test_measured_times_take_the_place_of_c(cli: Cli) -> None:
    times = BatchTimes(1, (0,), (1, 2, 9), ((1.0, 1.5, 5.0),), (1,), (0.25,))
    TimeTable([times]).save("times.json")
    done = cli("synthetic=iid", *SMALL, "times=times.json", "gammas=1", "out=found.json")
    assert done.code == 0, done.err
    rows = {row["policy"]: row for row in json.loads(Path("found.json").read_text())["rows"]}
    one = rows["fixed 1"]
    plain_rounds = one["rounds"] - one["drafted"]  # the last round of a text has room for no draft
    assert one["seconds"] == pytest.approx(1.75 * one["drafted"] + plain_rounds)


def test_a_batch_shares_its_rounds(cli: Cli) -> None:
    made = synthetic_traces(TwoState((0.9, 0.3), (20, 20)), 4, 50, 6)
    write_traces("made.npz", made)
    for batch in ("1", "4"):
        assert (
            cli("traces=made.npz", "policy=goodput", f"batch={batch}", f"out={batch}.json").code
            == 0
        )
    alone, four = (json.loads(Path(f"{b}.json").read_text())["rows"] for b in "14")
    assert alone[0]["seconds"] == 200 and four[0]["seconds"] == pytest.approx(50)
    assert Constant(0.05).target(4, [1], 0) == 1  # a flat step costs the same for four rows


def test_asking_for_too_much_is_noted(cli: Cli) -> None:
    done = cli("synthetic=iid", *SMALL, "policy=fixed", "policy.gamma=9")
    assert done.code == 0 and "fixed asked for more tokens than the traces hold" in done.err


def test_the_oracle_is_a_policy_here_and_nowhere_else(
    cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    done = cli("synthetic=iid", *SMALL, "policy=oracle")
    assert done.code == 0 and done.out.count("oracle ") >= 2
    live = make_cli(capsys)("generate", "target=table", "policy=oracle", "prompt=0 1")
    refused(live, "policy=oracle", "live run", "foredraft replay")


def test_help_lists_every_key(cli: Cli) -> None:
    from foredraft.framework.cli.replay_arguments import EVERY

    text = cli("--help").out
    assert [key for key in EVERY if key not in text] == []


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("", "needs traces=FILE or synthetic=PROCESS"),
        ("traces=a synthetic=iid", "one of the two"),
        ("synthetic=two_sate", "did you mean 'two_state'"),
        ("synthetic=iid alphas=.3", "no key of synthetic=iid; it has alpha"),
        ("synthetic=iid alpha=2", "alpha=2.0"),
        ("synthetic=two_state alphas=.9,x", "alphas=x"),
        ("synthetic=two_state alphas=.9", "one per rate"),
        ("synthetic=iid texts=0", "texts=0"),
        ("synthetic=iid greedy=yes", "true or false"),
        ("synthetic=iid c=x", "c=x"),
        ("synthetic=iid c=-1", "c=-1"),
        ("synthetic=iid c=.1 times=t.json", "do not go together"),
        ("synthetic=iid times=missing.json", "missing.json cannot be read"),
        ("synthetic=iid gammas=1,x", "gammas=x"),
        ("synthetic=iid gammas=999", "gammas=999"),
        ("synthetic=iid batch=0", "batch=0"),
        ("synthetic=iid policies=fixed,optimol", "unknown policy 'optimol'"),
        ("synthetic=iid policy=fixed policy.gama=3", "did you mean 'gamma'"),
        ("synthetic=iid policy.gamma=3", "policy= needs one value"),
        ("synthetic=iid policies=fixed policy.gamma=3", "does not go with policies="),
        ("synthetic=iid polcy=fixed", "did you mean 'policy'"),
        ("synthetic=iid drafter.order=3", "does not take 'drafter.order=3'"),
        ("synthetic=iid c=.1 c=.2", "c= needs one value"),
        ("synthetic=iid c=", "c= needs one value"),
        ("synthetic=iid out=no/where.json", "there is no such folder"),
        ("synthetic=iid save=.", "it is a folder"),
        ("traces=missing.npz", "No such file"),
        ("traces=missing.npz alpha=.3", "goes with synthetic=PROCESS"),
        ("traces=missing.npz save=x.npz", "goes with synthetic=PROCESS"),
    ],
)
def test_refusals_are_one_sentence(cli: Cli, words: str, shown: str) -> None:
    refused(cli(*words.split()), shown)


def test_a_file_of_something_else_is_refused(cli: Cli) -> None:
    Path("other.npz").write_text("not traces")
    refused(cli("traces=other.npz", "policy=fixed"), "other.npz", "dense traces")
