"""What the shipped observers leave behind, read back with the readers of their own libraries."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from observer_helpers import PROMPTS, Recorder, answers_for, table_engine

from foredraft.framework import Answer, ConfigError, Observer
from foredraft.framework.config import compose, to_objects
from foredraft.framework.config.build import build_observers
from foredraft.framework.metrics import PHASES, Metrics, total

RATIOS = ("tau", "accept_rate", "alpha")


def observer(name: str, **values: object) -> Observer:
    """A shipped observer, made from a config."""
    chosen = [f"observer.{name}.{key}={value}" for key, value in values.items()]
    (made,) = build_observers(to_objects(compose(["target=table", f"observers=[{name}]", *chosen])))
    return made


def ran(one: Observer) -> tuple[Recorder, list[Answer]]:
    """A run that it heard, beside an observer that kept the records."""
    heard = Recorder()
    answers = table_engine(heard, one).generate_many(PROMPTS)
    one.close()
    return heard, answers


def points(heard: Recorder, every: int) -> dict[int, Metrics]:
    """The sum of every so many rounds, by the number of the last; counted here once more."""
    rounds, found = heard.of("round_done"), {}
    for first in range(0, len(rounds), every):
        sum_, chunk = Metrics(), rounds[first : first + every]
        for record in chunk:
            for row in record.rows:
                sum_.count(row, {})
            sum_.spend(record.seconds)
        found[first + len(chunk)] = sum_
    return found


# --- JSON lines --------------------------------------------------------------------------------


def test_the_trace_is_the_records(tmp_path: Path) -> None:
    heard, answers = ran(observer("jsonl", path=tmp_path / "t.jsonl"))
    trace = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [line["record"] for line in trace] == [name for name, _ in heard.heard]
    texts = {
        line["number"]: line["token_ids"] for line in trace if line["record"] == "request_done"
    }
    assert [texts[number] for number in range(7)] == [answer.token_ids for answer in answers]
    rows = [row for line in trace if line["record"] == "round_done" for row in line["rows"]]
    assert sum(len(row["emitted"]) for row in rows) == sum(len(ids) for ids in texts.values())
    assert trace[-1]["metrics"] == total(answer.metrics for answer in answers).as_dict()


def test_every_line_is_there_before_the_run_goes_on(tmp_path: Path) -> None:
    one, path = observer("jsonl", path=tmp_path / "t.jsonl"), tmp_path / "t.jsonl"
    engine, count = table_engine(one), 1
    for _ in engine.run(answers_for(engine)):
        lines = path.read_bytes().splitlines(keepends=True)
        assert all(line.endswith(b"\n") for line in lines) and len(lines) > count
        assert json.loads(lines[-1])["record"] in ("round_done", "request_done")
        count = len(lines)
    one.close()


def test_a_trace_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    one = observer("jsonl", path=tmp_path / "t.jsonl")
    (tmp_path / "t.jsonl").write_text("mine")
    with pytest.warns(RuntimeWarning, match="observer 'jsonl' failed in run_started.*FileExists"):
        table_engine(one).generate([0])
    assert (tmp_path / "t.jsonl").read_text() == "mine"


# --- the bar -----------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_shows_the_figures_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, out = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setattr("foredraft.framework.observers.progress.WAIT", 0.0)
    one: Any = observer("progress")
    engine = table_engine(one)
    shown = []
    with engine.observed(7):
        for begin in range(0, 7, 3):
            prompts = PROMPTS[begin : begin + 3]
            list(engine.run(answers_for(engine, prompts)))
            shown.append(one._bar.tasks[0])
            one._bar.refresh()
    text = screen.getvalue()
    assert "7/7" in text and "tokens/s), tau" in text and "accept rate" in text
    assert out.getvalue() == "" and one._bar is None


def test_no_terminal_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    ran(observer("progress"))
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("terminals", "config", "shown"),
    [
        (("stderr",), {}, True),
        ((), {}, False),
        (("stderr", "stdout"), {}, False),  # answers are printed there
        (("stderr", "stdout"), {"out": "o.jsonl"}, True),
        (("stderr",), {"prompts": None}, False),
        (("stderr",), {"observers": ["progress"]}, False),  # it is there already
    ],
)
def test_the_command_line_has_the_same_bar(
    terminals: tuple[str, ...], config: dict[str, Any], shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from foredraft.framework.cli.answering import _bar
    from foredraft.framework.observers.progress import ProgressBar

    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, Terminal() if name in terminals else io.StringIO())
    bars = _bar({"out": None, "prompts": "p.jsonl", "observers": [], **config})
    assert [type(bar) for bar in bars] == [ProgressBar] * shown


# --- TensorBoard -------------------------------------------------------------------------------


def scalars(folder: Path) -> tuple[Any, dict[str, dict[int, float]]]:
    """An event folder as TensorBoard reads it."""
    module = "tensorboard.backend.event_processing.event_accumulator"
    accumulator: Any = pytest.importorskip(module).EventAccumulator(str(folder))
    accumulator.Reload()
    tags = accumulator.Tags()["scalars"]
    return accumulator, {t: {e.step: e.value for e in accumulator.Scalars(t)} for t in tags}


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    heard, answers = ran(observer("tensorboard", folder=tmp_path / "tb", every=4))
    (run,), (folder,) = heard.of("run_started"), (tmp_path / "tb").iterdir()
    assert folder.name.endswith(run.run[:6])
    accumulator, found = scalars(folder)
    sums = points(heard, 4)
    assert len(sums) > 3 and set(found["round/tau"]) == set(sums)
    for step, metrics in sums.items():
        assert found["round/tau"][step] == pytest.approx(metrics.tau, rel=1e-6)
        spent = sum(metrics.seconds.values())
        speed = found["round/tokens_per_second"][step]
        assert speed == pytest.approx(metrics.emitted / spent, rel=1e-5)
        for phase in PHASES:
            seconds = found[f"round/time/{phase}"][step]
            assert seconds == pytest.approx(metrics.seconds[phase], rel=1e-5, abs=1e-12)
    assert sum(found["round/emitted"].values()) == sum(len(a.token_ids) for a in answers)
    for number, answer in enumerate(answers):
        assert found["request/emitted"][number] == len(answer.token_ids)
        for name in RATIOS:
            value = getattr(answer.metrics, name)
            if value is None:
                assert number not in found[f"request/{name}"]
            else:
                assert found[f"request/{name}"][number] == pytest.approx(value, rel=1e-6)
    assert found["run/requests"] == {0: 7.0}
    assert found["run/tau"][0] == pytest.approx(heard.summary.metrics["tau"], rel=1e-6)
    (event,) = accumulator.Tensors("config/text_summary")
    text = event.tensor_proto.string_val[0].decode()
    assert json.loads(text) == run.config


def test_every_run_has_an_event_folder_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    one = observer("tensorboard", folder=tmp_path)
    engine = table_engine(one)
    engine.generate([0])
    engine.generate([1])
    one.close()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tb").touch()
    with pytest.raises(ConfigError, match="observer.tensorboard.folder='.*tb' is not possible: it"):
        observer("tensorboard", folder=tmp_path / "tb")


# --- MLflow ------------------------------------------------------------------------------------


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = pytest.importorskip("mlflow.tracking")
    for name in ("MLFLOW_ALLOW_FILE_STORE", "MLFLOW_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "true")
    return module


def kept(mlflow: Any, uri: str) -> tuple[Any, Any]:
    """The only run in a store, and a client of it."""
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("foredraft")
    (run,) = client.search_runs([experiment.experiment_id])
    return client, run


def check_mlflow(mlflow: Any, uri: str) -> None:
    heard, answers = ran(observer("mlflow", tracking_uri=uri, every=4))
    client, run = kept(mlflow, uri)
    assert run.info.status == "FINISHED"
    assert run.data.params["drafter.name"] == "ngram" and run.data.params["policy.gamma"] == "3"
    assert run.data.params["target.path"] == "null" and run.data.params["sampling.draft"] == "full"
    tags, (record,) = run.data.tags, heard.of("run_started")
    assert tags["foredraft.run"] == record.run and tags["foredraft.verifier"] == "token"
    assert tags["foredraft.lossless"] == "true" and tags["foredraft.ended"] == "done"
    assert tags["foredraft.version.torch"] == record.versions["torch"]

    def history(name: str) -> dict[int, float]:
        return {m.step: m.value for m in client.get_metric_history(run.info.run_id, name)}

    sums = points(heard, 4)
    assert history("round/tau") == {step: metrics.tau for step, metrics in sums.items()}
    lengths = {number: len(answer.token_ids) for number, answer in enumerate(answers)}
    assert history("request/emitted") == lengths
    for number, answer in enumerate(answers):
        assert history("request/accept_rate").get(number) == answer.metrics.accept_rate
    assert run.data.metrics["run/tau"] == heard.summary.metrics["tau"]
    assert run.data.metrics["run/tokens_per_second"] == heard.summary.tokens_per_second


def test_mlflow_reads_what_was_written(mlflow: Any, tmp_path: Path) -> None:
    check_mlflow(mlflow, str(tmp_path / "mlruns"))


@pytest.mark.slow  # making the tables of a new database takes seconds
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")  # its own
def test_mlflow_reads_a_database_too(mlflow: Any, tmp_path: Path) -> None:
    pytest.importorskip("alembic")
    check_mlflow(mlflow, f"sqlite:///{tmp_path}/m.db")


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt, "KILLED"), (ValueError, "FAILED")]
)
def test_mlflow_knows_how_a_run_ended(
    error: type[BaseException], status: str, mlflow: Any, tmp_path: Path
) -> None:
    one = observer("mlflow", tracking_uri=tmp_path / "mlruns")
    with pytest.raises(error), table_engine(one).observed(2):
        raise error("x")
    assert kept(mlflow, str(tmp_path / "mlruns"))[1].info.status == status


def test_a_store_that_cannot_be_is_refused(mlflow: Any) -> None:
    with pytest.raises(ConfigError, match="observer.mlflow.tracking_uri='foo://x' cannot be") as e:
        observer("mlflow", tracking_uri="foo://x")
    assert "\n" not in str(e.value) and ". " not in str(e.value)


# --- Weights & Biases --------------------------------------------------------------------------


class FakeRun:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options, self.summary = options, dict[str, Any]()
        self.history: list[dict[str, float]] = []
        self.axes: dict[str, str] = {}
        self.finished: list[int] = []

    def define_metric(self, name: str, step_metric: str) -> None:
        self.axes[name] = step_metric

    def log(self, values: dict[str, float]) -> None:
        self.history.append(values)

    def finish(self, exit_code: int) -> None:
        self.finished.append(exit_code)


@pytest.fixture
def wandb_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeRun]]:
    """In place of the library, which is large and starts a process."""
    runs: list[FakeRun] = []
    fake: Any = ModuleType("wandb")
    fake.Settings = SimpleNamespace

    def init(**options: Any) -> FakeRun:
        runs.append(FakeRun(options))
        return runs[-1]

    fake.init = init
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    yield runs


def test_wandb_is_told_everything(wandb_runs: list[FakeRun], tmp_path: Path) -> None:
    heard, answers = ran(observer("wandb", folder=tmp_path, every=4, project="p"))
    (run,), (record,) = wandb_runs, heard.of("run_started")
    options = run.options
    assert (options["mode"], options["project"], options["entity"]) == ("offline", "p", None)
    assert options["settings"].console == "off" and options["reinit"] == "create_new"
    assert options["config"]["policy"] == {"name": "fixed", "gamma": 3}
    assert options["config"]["run"] == record.run
    assert run.axes == {"round/*": "round", "request/*": "request"} and run.finished == [0]
    sums = points(heard, 4)
    taus = {line["round"]: line["round/tau"] for line in run.history if "round" in line}
    assert taus == {step: metrics.tau for step, metrics in sums.items()}
    lengths = {x["request"]: x["request/emitted"] for x in run.history if "request" in x}
    assert lengths == {number: len(answer.token_ids) for number, answer in enumerate(answers)}
    assert run.summary["run/ended"] == "done" and run.summary["run/requests"] == 7


def test_wandb_hears_of_a_run_that_failed(wandb_runs: list[FakeRun], tmp_path: Path) -> None:
    one = observer("wandb", folder=tmp_path)
    with pytest.raises(ValueError), table_engine(one).observed(2):
        raise ValueError("x")
    (run,) = wandb_runs
    assert run.finished == [1] and run.summary["run/error"] == "ValueError: x"


def test_one_that_was_dropped_is_finished_as_failed(
    wandb_runs: list[FakeRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("full")

    monkeypatch.setattr(FakeRun, "log", fail)
    one = observer("wandb", folder=tmp_path)
    with pytest.warns(RuntimeWarning, match="observer 'wandb' failed in"):
        table_engine(one).generate([0])
    one.close()
    assert wandb_runs[0].finished == [1]


def offline_records(data: bytes) -> Iterator[bytes]:
    """The records of an offline run: LevelDB's log behind a header of 7 bytes, so blocks of 32 KiB
    that hold pieces with checksum, length and kind (1 whole, 2 first, 3 middle, 4 last)."""
    block, place, held = 1 << 15, 7, b""
    while place + 7 <= len(data):
        if block - place % block < 7:  # no room for a head
            place += block - place % block
            continue
        size, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        held += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):
            yield held
            held = b""


def test_wandb_reads_what_was_written(tmp_path: Path) -> None:
    """Only where the library is installed; it is no part of the extra ``test``."""
    messages: Any = pytest.importorskip("wandb.proto.wandb_internal_pb2")

    heard, answers = ran(observer("wandb", folder=tmp_path, every=4))
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    history, found = [], {}
    for data in offline_records(path.read_bytes()):
        record = messages.Record()
        record.ParseFromString(data)
        if record.HasField("run"):
            found = {item.key: json.loads(item.value_json) for item in record.run.config.update}
        if record.HasField("history"):
            items = record.history.item
            line = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items}
            history.append(line)
    assert found["policy"] == {"name": "fixed", "gamma": 3}
    lengths = {line["request"]: line["request/emitted"] for line in history if "request" in line}
    assert lengths == {number: len(answer.token_ids) for number, answer in enumerate(answers)}
    taus = {line["round"]: line["round/tau"] for line in history if "round" in line}
    assert taus == {step: metrics.tau for step, metrics in points(heard, 4).items()}


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="observer.wandb.folder='.*no' is not possible: there is"):
        observer("wandb", folder=tmp_path / "no")


# --- extras ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "module"),
    [("tensorboard", "torch.utils.tensorboard"), ("mlflow", "mlflow.tracking"), ("wandb", "wandb")],
)
def test_a_missing_library_names_its_extra(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    with pytest.raises(ConfigError, match=rf"pip install 'foredraft\[{name}\]' brings it") as e:
        observer(name)
    assert "\n" not in str(e.value)
