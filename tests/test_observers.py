"""Observers: what they hear is complete and true, and nothing they do costs an answer."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_helpers import Cli, make_cli, refused
from helpers import PerRow, cycle
from observer_helpers import MOMENTS, PROMPTS, TABLE, Recorder, answers_for, table_engine

from foredraft.drafters.none import NoDrafter
from foredraft.framework import (
    ConfigError,
    Engine,
    Observer,
    ObserverSpec,
    PluginFault,
    hookimpl,
    load,
    plugins,
)
from foredraft.framework.config import as_dict, compose, to_objects
from foredraft.framework.decoding import Parts
from foredraft.framework.metrics import total
from foredraft.verifiers.token import TokenVerifier

FILE = ("generate", *TABLE, "prompts=p.jsonl")


pytestmark = pytest.mark.usefixtures("only_builtins")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    Path("p.jsonl").write_text("".join(f'{{"prompt": "{i} 1"}}\n' for i in range(5)))
    return make_cli(capsys)


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


# --- what is heard -----------------------------------------------------------------------------


def test_a_run_of_several_batches_is_heard_whole() -> None:
    heard = Recorder()
    engine = table_engine(heard)
    answers = engine.generate_many(PROMPTS, samples=2)
    names = [name for name, _ in heard.heard]
    assert names[0] == "run_started" and names[-1] == "run_done"
    assert names.count("run_started") == names.count("run_done") == 1
    rounds, requests = heard.of("round_done"), heard.of("request_done")
    assert sorted({record.batch for record in rounds}) == [0, 1, 2, 3, 4]
    for batch in range(5):
        of_batch = [record.index for record in rounds if record.batch == batch]
        assert of_batch == list(range(len(of_batch)))
    emitted: dict[int, list[int]] = {}
    for record in rounds:
        for number, row in zip(record.requests, record.rows, strict=True):
            emitted.setdefault(number, []).extend(row.emitted)
            assert row.request == answers[number].request.index
    assert [emitted[number] for number in range(14)] == [a.token_ids for a in answers]
    assert len({len(tokens) for tokens in emitted.values()}) > 2  # rows ended at different rounds
    for record in requests:
        answer = answers[record.number]
        assert record.token_ids == tuple(answer.token_ids) and record.text == answer.text
        assert (record.index, record.sample) == (answer.request.index, answer.request.sample)
        assert record.seed == answer.request.seed == 0
        assert record.prompt_tokens == len(answer.request.prompt)
        assert record.finish_reason == answer.finish_reason
        assert record.metrics == answer.metrics.as_dict()
    assert sorted(record.number for record in requests) == list(range(14))
    assert heard.summary.metrics == total(a.metrics for a in answers).as_dict()
    assert (heard.summary.ended, heard.summary.requests, heard.summary.unfinished) == (
        "done",
        14,
        0,
    )
    assert (
        sum(len(row.emitted) for r in rounds for row in r.rows) == heard.summary.metrics["emitted"]
    )


def test_a_run_says_what_it_is() -> None:
    heard = Recorder()
    engine = table_engine(heard, more=["verifier=lenient", "seed=5", "prompt='0'"])
    engine.generate([0])
    (run,) = heard.of("run_started")
    names = {"target": "table", "drafter": "ngram", "verifier": "lenient", "policy": "fixed"}
    assert run.parts == names and run.lossless is False and run.seed == 5 and run.requests == 1
    assert run.config["drafter"]["order"] == 3 and run.config["policy"]["gamma"] == 3
    assert not {"prompt", "observers", "observer"} & set(run.config)
    assert json.loads(json.dumps(run.config)) == run.config
    assert run.versions["torch"].startswith("2.") and set(run.versions) > {"foredraft", "python"}
    everything = [record for name, record in heard.heard if name != "run_started"]
    assert everything and {record.run for record in everything} == {run.run}


def test_a_run_on_a_target_of_ones_own_names_its_class() -> None:
    heard = Recorder()
    load("drafter=ngram", target=cycle(5), observers=[heard]).generate([0], max_new_tokens=2)
    (run,) = heard.of("run_started")
    assert run.parts["target"] == run.config["target"] == "TableTarget"


def test_records_cannot_be_changed() -> None:
    heard = Recorder()
    table_engine(heard).generate([0])
    for name, record in heard.heard:
        with pytest.raises(AttributeError):
            record.run = name


def test_each_batch_alone_is_a_run_and_a_block_makes_one_of_several() -> None:
    heard = Recorder()
    engine = table_engine(heard)
    for _ in range(2):
        list(engine.run(answers_for(engine)))
    assert len({run.run for run in heard.of("run_started")}) == 2
    assert [run.requests for run in heard.of("run_started")] == [3, 3]
    heard.heard.clear()
    with engine.observed(9), engine.observed():  # the inner one is part of the outer
        engine.generate_many(PROMPTS)
        list(engine.run(answers_for(engine, PROMPTS[:2])))
    assert [run.requests for run in heard.of("run_started")] == [9]
    assert [r.number for r in heard.of("request_done")] and heard.summary.requests == 9
    assert {record.batch for record in heard.of("round_done")} == {0, 1, 2, 3}


def test_a_cancelled_request_is_heard_with_what_it_had() -> None:
    heard = Recorder()
    engine = table_engine(heard, more=["target.eos=null"])
    answers = answers_for(engine)
    for outcome in engine.run(answers):
        if outcome.index == 1:
            answers[1].cancel()
    done = {record.number: record for record in heard.of("request_done")}
    assert [done[n].finish_reason for n in range(3)] == ["length", "cancelled", "length"]
    assert 0 < len(done[1].token_ids) < 16 and done[1].token_ids == tuple(answers[1].token_ids)
    rounds = heard.of("round_done")
    assert [r.requests for r in rounds[:3]] == [(0, 1, 2), (0, 1, 2), (0, 2)]
    assert all(len(r.requests) == len(r.rows) for r in rounds)
    assert (heard.summary.requests, heard.summary.unfinished) == (3, 0)


def test_all_cancelled_at_once() -> None:
    heard = Recorder()
    engine = table_engine(heard, more=["target.eos=null"])
    answers = answers_for(engine)
    for _ in engine.run(answers):
        for answer in answers:
            answer.cancel()
    assert [r.finish_reason for r in heard.of("request_done")] == ["cancelled"] * 3
    assert heard.summary.ended == "done" and len(heard.of("round_done")) == 1


def test_a_stream_that_is_left_is_a_closed_run() -> None:
    heard = Recorder()
    engine = table_engine(heard, more=["target.eos=null"])
    pieces = engine.stream([0])
    assert next(pieces)
    engine.generate([1])  # a run of its own, while the stream rests
    pieces.close()  # type: ignore[attr-defined]
    ends = [(s.ended, s.requests, s.unfinished) for s in heard.of("run_done")]
    assert ends == [("done", 1, 0), ("closed", 0, 1)]
    assert heard.of("run_done")[1].metrics["emitted"] > 0


def failing(error: type[BaseException], *observers: Observer) -> Engine:
    """Its policy raises in round 2 of the batch."""

    def rule(place: int, index: int) -> int:
        if index == 2:
            raise error("no more")
        return 2

    target = cycle(5)
    parts = Parts(target, NoDrafter(), TokenVerifier(), PerRow(rule), {})
    return Engine(parts, observers=observers)


def test_a_failing_run_ends_with_its_error() -> None:
    heard = Recorder()
    engine = failing(RuntimeError, heard)
    with pytest.raises(PluginFault, match="no more"):
        engine.generate([0])
    summary = heard.summary
    assert (
        summary.ended == "failed" and "PluginFault" in summary.error and "no more" in summary.error
    )
    assert (summary.requests, summary.unfinished) == (0, 1)
    assert summary.metrics["emitted"] == 2 == sum(
        len(row.emitted) for r in heard.of("round_done") for row in r.rows
    )  # fmt: skip
    assert engine.generate([0], max_new_tokens=1).token_ids == [1]  # the engine is still usable
    assert heard.of("run_done")[1].ended == "done"


def test_an_interrupted_run_says_so() -> None:
    heard = Recorder()
    with pytest.raises(KeyboardInterrupt):
        failing(KeyboardInterrupt, heard).generate([0])
    assert (heard.summary.ended, heard.summary.error) == ("interrupted", "")
    assert heard.of("run_started")[0].parts["policy"] == "PerRow"


def test_a_refused_request_opens_no_run() -> None:
    heard = Recorder()
    with pytest.raises(Exception, match="prompt 1 holds id 99"):
        table_engine(heard).generate_many([[0], [99]])
    assert heard.heard == []


# --- observers that misbehave ------------------------------------------------------------------


def misbehaving(moment: str, error: BaseException) -> tuple[Recorder, list[str]]:
    """Raises at one moment, and lists every call."""
    calls: list[str] = []

    class Bad(Recorder):
        def __getattribute__(self, name: str) -> Any:
            if name not in (*MOMENTS, "close"):
                return super().__getattribute__(name)
            calls.append(name)
            if name != moment:
                return super().__getattribute__(name)

            def fail(*_: object) -> None:
                raise error

            return fail

    return Bad(), calls


@pytest.mark.parametrize("error", [OSError("disk\nfull"), SystemExit(3), StopIteration()], ids=repr)
@pytest.mark.parametrize("moment", MOMENTS)
def test_one_that_raises_is_dropped_and_costs_nothing(moment: str, error: BaseException) -> None:
    expected = [a.token_ids for a in table_engine().generate_many(PROMPTS)]
    bad, calls = misbehaving(moment, error)
    before, behind = Recorder(), Recorder()
    engine = table_engine(before, bad, behind)
    with pytest.warns(RuntimeWarning) as caught:
        answers = engine.generate_many(PROMPTS)
    (warning,) = caught
    text = str(warning.message)
    assert f"observer 'Bad' failed in {moment} and hears no more" in text and "\n" not in text
    assert type(error).__name__ in text
    assert [a.token_ids for a in answers] == expected
    assert calls[-1] == moment and calls.count(moment) == 1
    for other in (before, behind):
        assert len(other.of("request_done")) == 7 and other.summary.ended == "done"
    calls.clear()
    with pytest.warns(RuntimeWarning):
        engine.generate([0])  # the next run is heard again
    assert calls[0] == "run_started"


def test_one_that_cannot_be_closed_stops_no_other() -> None:
    bad, _ = misbehaving("close", OSError("gone"))
    other = Recorder()
    engine = table_engine()
    engine.owns([bad, other])
    with pytest.warns(RuntimeWarning, match="observer 'Bad' failed in close: OSError: gone"):
        engine.close()
    assert other.closed == 1
    engine.close()
    assert other.closed == 1  # once


def test_ctrl_c_inside_an_observer_is_ctrl_c() -> None:
    bad, _ = misbehaving("round_done", KeyboardInterrupt())
    heard = Recorder()
    with pytest.raises(KeyboardInterrupt):
        table_engine(heard, bad).generate([0])
    assert heard.summary.ended == "interrupted"


def test_what_is_no_observer_is_refused() -> None:
    made: list[Recorder] = []
    plugins.register(log_plugin(made), "mine")
    with pytest.raises(
        ConfigError, match="the observer 'jsonl' is not possible; give Observer obj"
    ):
        load(*TABLE, "observers=[log]", observers=["jsonl"])  # type: ignore[list-item]
    assert made[0].closed == 1  # what the config brought is closed


def test_without_observers_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OpenRun", "RoundRecord", "RequestRecord"):
        monkeypatch.setattr(f"foredraft.framework.listening.{name}", None)
    engine = table_engine()
    assert len(engine.generate_many(PROMPTS)) == 7
    assert engine.run([]).__name__ == "_rounds"  # type: ignore[attr-defined]


def test_a_dropped_engine_is_gone_at_once() -> None:
    """Its model is too large to wait for the collector."""
    gc.disable()
    try:
        engine = table_engine(Recorder())
        engine.generate([0])
        gone = weakref.ref(engine)
        del engine
        assert gone() is None
    finally:
        gc.enable()


# --- from a config -----------------------------------------------------------------------------


@dataclass
class LogConfig:
    path: str = "log"
    deep: bool = False


def log_plugin(made: list[Recorder], factory: Callable[..., Any] | None = None) -> SimpleNamespace:
    def build(config: LogConfig) -> Recorder:
        made.append(Recorder())
        return made[-1]

    @hookimpl
    def foredraft_observers() -> list[ObserverSpec]:
        return [ObserverSpec("log", factory or build, LogConfig, "keeps a log", contract=1)]

    return SimpleNamespace(foredraft_observers=foredraft_observers)


def test_a_third_partys_observer_is_chosen_by_name_and_closed_with_its_engine() -> None:
    made: list[Recorder] = []
    plugins.register(log_plugin(made), "mine")
    own = Recorder()
    with load(*TABLE, "observers=[log]", "observer.log.deep=true", observers=[own]) as engine:
        engine.generate([0])
    (log,) = made
    assert log.name == "log" and log.closed == 1 and log.summary.requests == 1
    assert own.closed == 0 and own.summary.requests == 1  # whoever made it closes it
    engine.generate([0])
    assert len(log.of("run_done")) == len(own.of("run_done")) == 1
    engine = load(*TABLE, "observers=[log]")
    engine.generate([0])
    del engine
    gc.collect()
    assert made[1].closed == 1


def test_its_fault_is_named_as_the_config_names_it() -> None:
    plugins.register(
        log_plugin([], lambda config: misbehaving("round_done", OSError("x"))[0]), "mine"
    )
    engine = load(*TABLE, "observers=[log]")
    with pytest.warns(RuntimeWarning, match="observer 'log' failed in round_done"):
        engine.generate([0])
    engine.close()


def test_a_factory_that_gives_something_else_is_named() -> None:
    made: list[Recorder] = []
    plugins.register(log_plugin(made), "mine")
    plugins.register(SimpleNamespace(foredraft_observers=_wrong), "other")
    with pytest.raises(PluginFault, match="observer 'wrong' of .* gave a int; it must give a Obs"):
        load(*TABLE, "observers=[log,wrong]")
    assert made[0].closed == 1  # what was built before it is closed


@hookimpl
def _wrong() -> list[ObserverSpec]:
    return [ObserverSpec("wrong", lambda config: 5, LogConfig, contract=1)]


def test_a_target_that_cannot_be_built_leaves_no_observer_open() -> None:
    made: list[Recorder] = []
    plugins.register(log_plugin(made), "mine")
    with pytest.raises(Exception, match="no_such_folder"):
        load("target=causal_lm", "target.model=./no_such_folder", "observers=[log]")
    assert [one.closed for one in made] == [1]


def test_a_config_has_the_values_of_listed_observers_only() -> None:
    plain = as_dict(compose(["target=table"]))
    assert plain["observers"] == [] and "observer" not in plain
    given = as_dict(compose(["observers=[progress,jsonl]", "observer.jsonl.path=a.jsonl"]))
    assert given["observer"] == {"progress": {}, "jsonl": {"path": "a.jsonl", "rounds": True}}
    assert as_dict(json.loads(json.dumps(given))) == given
    names = [part.spec.name for part in to_objects(given).observers]
    assert names == ["progress", "jsonl"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["observers=[jsnol]"], "unknown observer 'jsnol'; did you mean 'jsonl'.*known: .*wandb"),
        (["observers=[jsonl,jsonl]"], "lists 'jsonl' twice"),
        (["observers=jsonl"], "observers='jsonl' is not possible; it must be a list"),
        (["observer=jsonl"], r"observer='jsonl' is not possible.*observers=\[jsonl\]"),
        (["observer.jsonl.path=x"], r"observer.jsonl.path='x' would have no effect.*=\[jsonl\]"),
        (
            ["observers=[progress]", "observer.jsonl.rounds=true"],
            r"observer.jsonl.rounds=True would have no effect.*observers=\[progress,jsonl\]",
        ),
        (["observer.jsnol.path=x"], "unknown observer 'jsnol'; did you mean 'jsonl'"),
        (["observers=[jsonl]", "observer.jsonl.pth=x"], "observer.jsonl.pth is not a key of"),
        (["observers=[jsonl]", "observer.jsonl.name=x"], "observer.jsonl.name is not a key of"),
        (["observers=[jsonl]", "observer.jsonl.folder=x"], "it is one of observer 'tensorboard'"),
        (["observers=[jsonl]", "observer.jsonl.path=5"], "observer.jsonl.path=5 is not possible"),
        (["observers=[jsonl]", "observer.jsonl=5"], "observer.jsonl=5 is not possible"),
        (["observers=[wandb]", "observer.wandb.mode=on"], "observer.wandb.mode='on' is not"),
        (["observers=[mlflow]", "observer.mlflow.every=0"], "observer.mlflow.every=0 is not"),
        (["observer_=x"], "did you mean 'observer"),
    ],
)
def test_what_is_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        compose(["target=table", *overrides])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["observers: [jsonl]", "observers: [jsonl]\nobserver:\n  jsonl:\n    path: x.jsonl"]
)
def test_a_file_cannot_make_a_run_write_or_send(text: str, tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment/spy.yaml").write_text(f"# @package _global_\n{text}\n")
    with pytest.raises(ConfigError, match="is set by a config file; only an override may set it"):
        compose(["experiment=spy"], tmp_path)
    if "path" in text:
        with pytest.raises(ConfigError, match="observer.jsonl.path='x.jsonl' is set by a config"):
            compose(["experiment=spy", "observers=[jsonl]"], tmp_path)


def test_specs_are_checked_like_all_others() -> None:
    def offering(*specs: object) -> SimpleNamespace:
        return SimpleNamespace(foredraft_observers=hookimpl(lambda: specs))

    spec = ObserverSpec("log", lambda config: Recorder(), LogConfig, contract=1)
    with pytest.raises(PluginFault, match="offers observer 'log' twice"):
        plugins.register(offering(spec, spec), "mine")
    with pytest.raises(PluginFault, match="gave a str; it must give ObserverSpec records"):
        plugins.register(offering("log"), "mine")
    with pytest.raises(PluginFault, match="observer 'log' is written for version 99"):
        plugins.register(
            offering(ObserverSpec("log", lambda config: None, LogConfig, contract=99)), "mine"
        )
    plugins.register(offering(spec), "one")
    with pytest.raises(PluginFault, match="its observer 'log' is taken by one"):
        plugins.register(offering(spec), "two")
    assert compose(["observers=[log]"]).observers == ["log"]


# --- on the command line -----------------------------------------------------------------------


def test_a_file_of_prompts_is_one_run(cli: Cli) -> None:
    done = cli(*FILE, "output=json", "runtime.batch_size=2", "observers=[jsonl]",
               "observer.jsonl.path=t.jsonl")  # fmt: skip
    assert done.code == 0, done.err
    trace = lines("t.jsonl")
    assert trace[0]["record"] == "run_started" and trace[0]["requests"] == 5
    assert [t["record"] for t in trace].count("run_started") == 1
    answers = {t["index"]: t for t in trace if t["record"] == "request_done"}
    for value in done.objects:
        assert "observers" not in value["config"] and "observer" not in value["config"]
        shared = (
            "token_ids",
            "text",
            "finish_reason",
            "metrics",
            "seed",
            "sample",
            "prompt_tokens",
        )
        assert [answers[value["index"]][key] for key in shared] == [value[key] for key in shared]
    assert trace[-1]["record"] == "run_done" and trace[-1]["requests"] == 5


def test_a_turn_that_needs_no_round_is_heard_too(cli: Cli) -> None:
    turns = json.dumps({"turns": ["0 1 2 3 4 5", "1 2 3 4", "5"]})
    Path("p.jsonl").write_text(turns + "\n")
    done = cli(*FILE, "target.max_context=14", "output=json", "observers=[jsonl]",
               "observer.jsonl.path=t.jsonl")  # fmt: skip
    assert done.code == 0, done.err
    heard = [t for t in lines("t.jsonl") if t["record"] == "request_done"]
    assert [t["token_ids"] for t in heard] == [value["token_ids"] for value in done.objects]
    assert "context" in [t["finish_reason"] for t in heard] and [] in [
        t["token_ids"] for t in heard
    ]
    assert [t["number"] for t in heard] == [0, 1, 2]


def test_a_sweep_keeps_its_observers(cli: Cli) -> None:
    done = cli(*FILE, "-m", "policy.gamma=1,2", "out=o.jsonl", "observers=[jsonl]",
               "observer.jsonl.path=t.jsonl", "observer.jsonl.rounds=false")  # fmt: skip
    assert done.code == 0, done.err
    trace = lines("t.jsonl")
    runs = [t for t in trace if t["record"] == "run_started"]
    assert [run["config"]["policy"]["gamma"] for run in runs] == [1, 2]
    assert [t["record"] for t in trace].count("run_done") == 2
    assert [t["record"] for t in trace].count("request_done") == 10
    assert "round_done" not in [t["record"] for t in trace]


def test_observers_that_differ_within_a_sweep(cli: Cli) -> None:
    done = cli(*FILE, "-m", "observer.jsonl.path=a.jsonl,b.jsonl", "observers=[jsonl]")
    assert done.code == 0, done.err
    assert [lines(name)[-1]["ended"] for name in ("a.jsonl", "b.jsonl")] == ["done", "done"]


def test_a_file_of_answers_does_not_depend_on_who_listened(cli: Cli) -> None:
    assert cli(*FILE, "out=o.jsonl").code == 0
    done = cli(*FILE, "out=o.jsonl", "observers=[jsonl]", "observer.jsonl.path=t.jsonl")
    assert done.code == 0 and "5 of 5 answers" in done.err
    assert not Path("t.jsonl").exists()


def test_ctrl_c_leaves_a_whole_trace(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from foredraft.framework.cli.runner import Runner

    keep, kept = Runner.keep, []

    def interrupted(self: Runner, *arguments: Any) -> Any:
        kept.append(1)
        if len(kept) == 3:
            raise KeyboardInterrupt
        return keep(self, *arguments)

    monkeypatch.setattr(Runner, "keep", interrupted)
    made: list[Recorder] = []
    plugins.register(log_plugin(made), "mine")
    done = cli(*FILE, "output=json", "observers=[jsonl,log]", "observer.jsonl.path=t.jsonl")
    assert done.code == 130
    trace = lines("t.jsonl")
    assert (trace[-1]["record"], trace[-1]["ended"]) == ("run_done", "interrupted")
    assert made[0].closed == 1


def test_a_broken_observer_is_one_line_on_standard_error(cli: Cli) -> None:
    plugins.register(
        log_plugin([], lambda config: misbehaving("round_done", OSError("x"))[0]), "mine"
    )
    expected = cli(*FILE).out
    with warnings.catch_warnings():
        warnings.simplefilter("always")  # as without pytest
        done = cli(*FILE, "observers=[log]")
    assert (done.code, done.out) == (0, expected)
    assert [x for x in done.err.splitlines() if "observer 'log' failed" in x] == [
        "foredraft: warning: observer 'log' failed in round_done and hears no more of this run: "
        "OSError: x."
    ]


def test_refusals_come_before_a_model_is_loaded(cli: Cli) -> None:
    Path("there.jsonl").touch()
    model = ("generate", "target=causal_lm", "target.model=./no_such_folder", "prompt=0")
    for path, word in (("there.jsonl", "exists already"), ("no/x.jsonl", "no folder 'no'")):
        done = cli(*model, "observers=[jsonl]", f"observer.jsonl.path={path}")
        refused(done, f"observer.jsonl.path='{path}'", word)
    refused(cli(*model, "observers=[jsonl]"), "observer.jsonl.path=''", "has to be given")


def test_listing_imports_nothing_heavy(cli: Cli) -> None:
    listed = [part for part in json.loads(cli("plugins", "--json").out)["parts"]]
    names = [part["name"] for part in listed if part["kind"] == "observer"]
    assert names == ["jsonl", "mlflow", "progress", "tensorboard", "wandb"]
    shown = cli("plugins").out
    assert "a run in an MLflow store" in shown and "one JSON object per record" in shown


LIGHT = """
import sys
from foredraft.framework.cli.main import main

chosen = ["generate", "target=table", "observers=[jsonl,wandb]"]
assert main(["plugins"]) == 0
assert main([*chosen, "--help"]) == main([*chosen, "--cfg"]) == 0
assert main([*chosen, "observer.mlflow.every=3", "prompt=0"]) == 2
heavy = {"torch", "transformers", "tensorboard", "mlflow", "wandb"} & set(sys.modules)
assert not heavy, heavy
"""


def test_listing_help_and_refusals_import_no_torch() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "observer.jsonl.path" in done.stdout and "would have no effect" in done.stderr


def test_help_shows_the_keys_of_listed_observers(cli: Cli) -> None:
    assert "observer.jsonl.path" not in cli("generate", "--help").out
    shown = cli("generate", "observers=[jsonl]", "--help").out
    assert "observer.jsonl.path" in shown and "observers=[jsonl]" in shown
