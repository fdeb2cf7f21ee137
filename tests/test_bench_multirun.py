"""``foredraft bench -m``: a sweep in jobs, through launchers of Hydra.

Most of it decodes nothing: a stand-in answers for the process that decodes, so that a job takes
milliseconds and can be killed at any run. One sweep through joblib decodes for real.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_helpers import Cli, make_cli, refused

from foredraft.framework.bench import folder as folders
from foredraft.framework.bench.axes import split
from foredraft.framework.bench.disk import Unwritable
from foredraft.framework.bench.hand import Failed, Worker
from foredraft.framework.bench.launching import job, places
from foredraft.framework.bench.launching.gathering import settle
from foredraft.framework.bench.launching.launch import OPEN, Launch, begun
from foredraft.framework.bench.launching.launchers import settled
from foredraft.framework.bench.launching.places import Place, pinned
from foredraft.framework.bench.launching.shares import by_unit
from foredraft.framework.bench.launching.words import Chosen, taken
from foredraft.framework.bench.machine import versions
from foredraft.framework.bench.plan import Unit
from foredraft.framework.bench.store import Store
from foredraft.framework.bench.worker import Desk
from foredraft.framework.cli.main import main
from foredraft.framework.errors import ConfigError, InputError

TABLE = ("target=table", "max_new_tokens=12", "task=file", "task.file=p.jsonl", "bench.repeats=2")
GRID = ("grid.drafter=[prompt_lookup,ngram]", "grid.policy.gamma=[1,3]")
BASIC = ("-m", "hydra/launcher=basic", "bench.jobs=2")
RUNS = 6 * 2 * 6  # cells, repeats, units

pytestmark = [pytest.mark.usefixtures("only_builtins"), pytest.mark.xdist_group("bench")]
Message = dict[str, Any]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    write_prompts(tmp_path)
    return make_cli(capsys)


def write_prompts(folder: Path) -> None:
    texts = ["0 1 2", "2 1", "3 1", "0 3", "1 1", "2 2"]
    lines = [{"prompt": text, "group": "ab"[i % 2]} for i, text in enumerate(texts)]
    (folder / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


class StandIn:
    """Answers for the process that decodes: ids that depend on the cell and the prompt alone."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.before_run: Callable[[Message, int], None] = lambda message, count: None

    def __call__(self, worker: Worker, message: Message) -> Message:
        what = message["do"]
        self.asked[what] += 1
        if what == "about":
            return {"is": what, "threads": 1, "device": "cpu"}
        if what == "run":
            self.before_run(message, self.asked[what])
            rows = [self.row(message["cell"], prompt) for prompt in message["prompts"]]
            times = {"seconds": 0.2, "prefill": 0.1, "started": time.time(), "contended": False}
            return {"is": what, **times, "rows": rows}
        answers: Message = {"verdict": {"verdict": "same", "says": "so"}, "trace": {"answers": []}}
        return {"is": what, **answers.get(what, {})}

    @staticmethod
    def row(cell: str, prompt: int) -> Message:
        return {"prompt": prompt, "ids": [prompt, len(cell)], "finish": "length"}


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()
    monkeypatch.setattr(Worker, "ask", lambda worker, message: made(worker, message))
    for name in ("bench.paging.summary", "cli.sweep_table.table", "cli.report.written"):
        monkeypatch.setattr(f"foredraft.framework.{name}", lambda *words: None)
    return made


@pytest.fixture(scope="module")
def begun_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of six cells that was stopped before its first run."""
    folder, made = tmp_path_factory.mktemp("begun"), StandIn()
    write_prompts(folder)

    def stop(message: Message, count: int) -> None:
        raise KeyboardInterrupt

    made.before_run = stop
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("FOREDRAFT_PLUGINS", "")
        patch.setattr(Worker, "ask", lambda worker, message: made(worker, message))
        assert main(["bench", *TABLE, *GRID, "bench.dir=r"]) == 130
    return folder / "r"


@pytest.fixture
def fresh(cli: Cli, stand_in: StandIn, begun_once: Path, tmp_path: Path) -> Path:
    """A copy of it, as ``r`` in the current folder."""
    shutil.copytree(begun_once, tmp_path / "r")
    return tmp_path / "r"


def kept(folder: str) -> dict[tuple[str, int, int], Any]:
    """What every run said, counted, and its place in the order, but not how long it took."""
    found = {}
    for record in Store.open(folder).records():
        key = record["cell"], record["unit"], record["repeat"]
        assert key not in found
        found[key] = record["order"], record["group"], record["rows"]
    return found


def jobs_noted(folder: str) -> list[tuple[str, int, int]]:
    lines = Path(folder, "jobs.jsonl").read_text().splitlines()
    return [(one["wave"], one["job"], one["runs"]) for one in map(json.loads, lines)]


def expected(cells: list[str], units: int = 6) -> set[tuple[str, int, int]]:
    return {(cell, unit, repeat) for cell in cells for unit in range(units) for repeat in (0, 1)}


def test_jobs_make_what_one_process_makes(cli: Cli, fresh: Path) -> None:
    shutil.copytree(fresh, "one")
    assert cli("bench", "bench.resume=one").code == 0
    done = cli("bench", *BASIC, "bench.resume=r")
    assert done.code == 0, done.err
    one, many = Store.open("one"), Store.open("r")
    assert kept("r") == kept("one") and kept("r").keys() == expected(one.ids)
    assert many.verdicts() == one.verdicts() and len(one.verdicts()) == 5
    assert many.traces() == one.traces() and len(one.traces()) == 4
    measured = [("measure", number, RUNS // 2) for number in range(2)]
    assert jobs_noted("r") == [*measured, *(("judge", number, 0) for number in range(2))]
    assert not (fresh / "jobs").exists()
    assert not any(record["contended"] for record in many.records())


def test_each_job_measures_all_cells_on_its_units(
    cli: Cli, fresh: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_job: list[set[tuple[str, int]]] = []
    real = Place.__init__

    def noting(place: Place, *words: Any) -> None:
        by_job.append(set())
        real(place, *words)

    def note(message: Message, count: int) -> None:
        by_job[-1].add((message["cell"], *message["prompts"]))

    monkeypatch.setattr(Place, "__init__", noting)
    stand_in.before_run = note
    assert cli("bench", *BASIC, "bench.resume=r").code == 0
    for made in by_job[:2]:
        assert len(made) == 6 * 3 and len({prompt for _, prompt in made}) == 3
    assert len(set().union(*by_job[:2])) == 6 * 6


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of fork beside a thread
def test_what_is_killed_at_any_run_goes_on_and_nothing_runs_twice(
    cli: Cli, fresh: Path, stand_in: StandIn
) -> None:
    before = 0
    for at in (1, 12, 38):
        child = os.fork()
        if not child:
            stand_in.before_run = lambda message, count, at=at: os._exit(9) if count == at else None  # type: ignore[misc]
            os._exit(main(["bench", *BASIC, "bench.resume=r"]))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        before += at - 1
        lines = [path.read_bytes() for path in fresh.glob("**/records/*.jsonl")]
        assert sum(data.count(b"\n") for data in lines) == before
    assert (fresh / "jobs").exists()
    assert (
        cli("bench", *BASIC, "bench.resume=r").code == 0
    )  # launches what is left, which is little
    assert kept("r").keys() == expected(Store.open("r").ids) and not (fresh / "jobs").exists()
    assert stand_in.asked["run"] == RUNS - before
    for (cell, _, _), (_, _, rows) in kept("r").items():
        assert rows == [StandIn.row(cell, row["prompt"]) for row in rows]


def test_what_jobs_made_is_taken_in_without_a_launcher_too(
    cli: Cli, fresh: Path, stand_in: StandIn
) -> None:
    child = os.fork()
    if not child:
        stand_in.before_run = lambda message, count: os._exit(9) if count == 40 else None
        os._exit(main(["bench", *BASIC, "bench.resume=r"]))
    os.waitpid(child, 0)
    assert len(kept("r")) == 0
    assert cli("bench", "bench.resume=r").code == 0
    assert kept("r").keys() == expected(Store.open("r").ids)
    assert stand_in.asked["run"] == RUNS - 39


def test_a_resumed_sweep_launches_only_jobs_with_something_left(
    cli: Cli, fresh: Path, stand_in: StandIn
) -> None:
    def interrupt(message: Message, count: int) -> None:
        if count == RUNS // 2 + 5:  # in job 1
            raise KeyboardInterrupt

    stand_in.before_run = interrupt
    done = cli("bench", *BASIC, "bench.resume=r")
    assert done.code == 130 and "stopped; what was done is kept" in done.err
    assert len(kept("r")) == RUNS // 2 + 4 and not (fresh / "jobs").exists()
    assert cli("bench", *BASIC, "bench.resume=r").code == 0
    launched = [("measure", 1, RUNS // 2 - 4), ("judge", 0, 0), ("judge", 1, 0)]
    assert jobs_noted("r")[2:] == launched


def test_a_changed_sweep_is_refused_and_the_command_kept(cli: Cli, stand_in: StandIn) -> None:
    commas = "drafter=prompt_lookup,ngram"
    assert cli("bench", *BASIC, *TABLE, commas, "bench.dir=r").code == 0
    command = Store.open("r").manifest["command"]
    assert "-m hydra/launcher=basic bench.jobs=2" in command
    changed = cli("bench", *BASIC, *TABLE, "drafter=ngram", "bench.resume=r")
    assert changed.code == 2 and "no longer among the cells" in changed.err


def test_a_cell_that_fails_leaves_the_others(cli: Cli, fresh: Path, stand_in: StandIn) -> None:
    def fail(message: Message, count: int) -> None:
        if message["cell"] == "drafter=ngram,policy.gamma=3":
            raise Failed("raised", "it tripped")

    stand_in.before_run = fail
    done = cli("bench", *BASIC, "bench.resume=r")
    assert done.code == 3 and "drafter=ngram,policy.gamma=3 failed: it tripped" in done.err
    assert set(Store.open("r").failures()) == {"drafter=ngram,policy.gamma=3"}
    assert len(kept("r")) == RUNS * 5 // 6


def test_a_sweep_can_end_at_the_first_failure_of_any_job(
    cli: Cli, fresh: Path, stand_in: StandIn
) -> None:
    def fail(message: Message, count: int) -> None:
        if count == 3:
            raise Failed("raised", "it tripped")

    manifest = json.loads((fresh / "run.json").read_text())
    manifest["options"]["on_error"] = "stop"
    (fresh / "run.json").write_text(json.dumps(manifest))
    stand_in.before_run = fail
    done = cli("bench", *BASIC, "bench.resume=r")
    assert done.code == 2 and "it tripped" in done.err.splitlines()[-1]
    assert len(kept("r")) == 2


def test_a_job_that_breaks_is_named_and_the_rest_kept(
    cli: Cli, fresh: Path, stand_in: StandIn
) -> None:
    def stumble(message: Message, count: int) -> None:
        if count == 3:
            raise ValueError("who would\nhave thought")

    stand_in.before_run = stumble
    done = cli("bench", *BASIC, "bench.resume=r")
    assert done.code == 3 and "job 0 broke off: ValueError: who would have thought" in done.err
    assert "Traceback" not in done.err and "bench.resume=" in done.err
    assert len(kept("r")) == 2 + RUNS // 2


def test_times_beside_another_job_are_marked(
    cli: Cli, fresh: Path, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([True, False, False, *[True] * 1000])  # at the end of one run, before the next
    monkeypatch.setattr(Place, "alone", lambda place: next(looks))
    done = cli("bench", *BASIC, "bench.resume=r")
    marked = [record["contended"] for record in Store.open("r").records()]
    assert done.code == 0 and sum(marked) == 2


def test_a_place_tells_who_else_is_there(tmp_path: Path) -> None:
    first, second = Place(tmp_path, 2), Place(tmp_path, 2)
    assert (first.number, second.number) == (0, 1)
    assert not first.alone() and not second.alone()
    first.leave()
    assert second.alone()
    third = Place(tmp_path, 2)
    assert third.number == 0 and not second.alone()
    third.leave()
    elsewhere = Place(tmp_path, 2)
    elsewhere.mark = "another machine"
    assert elsewhere.alone() and platform_name() not in first.mark


def platform_name() -> str:
    import platform

    return platform.node() or "no name"


def test_cores_are_shared_out_and_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound: list[Any] = []
    monkeypatch.setattr(places, "usable", lambda: [0, 2, 4, 6, 8])
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: bound.append(cores))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    first, second = Place(tmp_path, 2), Place(tmp_path, 2)
    with pinned(second, 2):
        assert os.environ["OMP_NUM_THREADS"] == "2" and bound == [[4, 6]]
    assert "OMP_NUM_THREADS" not in os.environ and bound[1:] == [[0, 2, 4, 6, 8]]
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    with pinned(second, 2):  # more than there is for two: not bound
        assert os.environ["OMP_NUM_THREADS"] == "4" and len(bound) == 2
    assert os.environ["OMP_NUM_THREADS"] == "4" and first.number == 0


def test_a_job_ends_when_its_launch_does(fresh: Path) -> None:
    with begun(fresh, Launch("measure", 1, 1)) as folder:
        assert json.loads((folder / OPEN).read_text())["wave"] == "measure"
    said = job.run(SimpleNamespace(launch=folder, job=0, parent=0))
    assert said["kind"] == "broken" and f"{folder.name} was ended" in said["says"]
    assert not (folder / "0").exists()
    said = job.run(SimpleNamespace(launch=folder.with_name("elsewhere"), job=0, parent=0))
    assert "all machines share" in said["says"]


def test_a_job_keeps_to_what_was_said_when_it_was_launched(fresh: Path, stand_in: StandIn) -> None:
    def fail(message: Message, count: int) -> None:
        raise Failed("raised", "it fell")

    stand_in.before_run = fail
    for on_error, kind in (("stop", "stopped"), ("continue", "")):  # the sweep itself goes on
        limits = {"minutes": 1.0, "limit_s": 5.0, "on_error": on_error}
        with begun(fresh, Launch("measure", 1, 1, limits=limits)) as folder:
            said = job.run(SimpleNamespace(launch=folder, job=0, parent=0))
        assert said["kind"] == kind


def test_a_job_with_other_versions_is_refused(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = versions()
    place = "foredraft.framework.bench.launching.job.versions"
    monkeypatch.setattr(place, lambda: {**real, "torch": "0.4"})
    with begun(fresh, Launch("measure", 1, 1)) as folder:
        said = job.run(SimpleNamespace(launch=folder, job=0, parent=0))["says"]
    assert f"torch is 0.4, but the sweep began with {real['torch']}" in said


def test_a_job_of_an_earlier_launch_that_still_runs_is_waited_for(fresh: Path) -> None:
    with begun(fresh, Launch("measure", 1, 1)) as folder:
        (folder / "0").mkdir()
        held = folders.lock(folder / "0")
        remarks: list[str] = []
        with Store.open("r", write=True) as store:
            with pytest.raises(InputError, match="1 jobs of an earlier launch still write"):
                settle(store, 0.2, remarks.append)
            assert "they end after their run" in remarks[0] and not (folder / OPEN).exists()
            held.release()
            settle(store, 0.2)
        assert not (fresh / "jobs").exists()


def launched_before(folder: Path) -> None:
    """What an earlier launch may leave: a job without a run, what the launcher wrote, a note."""
    for part in ("places", "launcher", "0"):
        (folder / "jobs" / "0a" / part).mkdir(parents=True)
        (folder / "jobs" / "0a" / part / "text").write_text("mine")
    (folder / "jobs" / "0a" / OPEN).write_text("{}\n")
    (folder / "jobs.jsonl").touch()


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("at", ["jobs", "jobs/0a", "jobs/0a/0", "jobs.jsonl"])
def test_a_resumed_sweep_takes_nothing_away_through_a_link(
    fresh: Path, tmp_path: Path, at: str
) -> None:
    launched_before(fresh)
    outside = tmp_path / "outside"
    (fresh / at).rename(outside)
    (fresh / at).symlink_to(outside)
    before = tree(outside)
    with Store.open("r", write=True) as store:
        with pytest.raises(InputError, match="is a link; nothing is read or written"):
            settle(store, 0.2)
        if at == "jobs":
            with pytest.raises(InputError, match="is a link"), begun(fresh, Launch("judge", 1, 1)):
                pass
    assert tree(outside) == before and (fresh / at).is_symlink()


def test_only_launches_are_taken_away(fresh: Path) -> None:
    launched_before(fresh)
    (fresh / "jobs" / "0a" / "\u00b2").mkdir()  # a digit that is no number
    (fresh / "jobs" / "0a" / "1").touch()
    (fresh / "jobs" / "mine" / "0").mkdir(parents=True)
    (fresh / "jobs" / "notes.txt").write_text("mine")
    with Store.open("r", write=True) as store:
        settle(store, 0.2)
    assert tree(fresh / "jobs") == ["mine", "mine/0", "notes.txt"]


def test_a_job_that_cannot_write_names_the_folder_of_its_sweep(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, value: Message) -> None:
        raise Unwritable(f"{path} cannot be written: No space left on device; make room.")

    sweep = Store.open(fresh)
    said = rf"and go on with bench\.resume={re.escape(str(sweep.folder))}\.$"
    with job.Share.begun(sweep, tmp_path / "0", {}) as share:
        monkeypatch.setattr("foredraft.framework.bench.store.append_line", full)
        with pytest.raises(Unwritable, match=said):
            share.fail(sweep.ids[0], "it tripped", "raised")


def test_units_are_shared_out_evenly() -> None:
    units = [Unit(i, "abcdef"[i % 6], (i,), 1) for i in range(24)]
    units += [Unit(24 + i, "ab"[i % 2], (2 * i, 2 * i + 1), 2) for i in range(6)]
    for jobs in (1, 2, 3, 4, 5, 7):
        owners = by_unit(units, jobs)
        for size, groups in ((1, "abcdef"), (2, "ab")):
            for group in groups:
                mine = [u.index for u in units if u.group == group and u.batch_size == size]
                counts = Counter(owners[index] for index in mine)
                assert max(counts.values()) - min(counts[job] for job in range(jobs)) <= 1
    whole = Counter(by_unit(units[:24], 2).values())
    assert whole == {0: 12, 1: 12}


def test_lists_in_commas_are_axes_with_the_same_types() -> None:
    words, chosen = taken(["policy.gamma=1,3", "seed=range(0,2)", "max_new_tokens=12"], True)
    assert words == ["grid.policy.gamma=[1,3]", "grid.seed=[0,1]", "max_new_tokens=12"]
    assert chosen is None
    key, values = "verifier.threshold", "1e-4,inf,'3',true,1.0,3"
    (axis,), _ = taken([f"{key}={values}"], True)
    found = split([axis]).axes[key].values
    assert repr(found) == "[0.0001, inf, '3', True, 1.0, 3]"
    assert repr(split([f"grid.{key}=[{values}]"]).axes[key].values) == repr(found)
    assert taken([f"{key}={values}"], False)[0] == [f"{key}={values}"]
    several = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "bench.jobs=4", *GRID]
    assert taken(several, True) == (list(GRID), Chosen("joblib", [several[1]], 4))


def test_the_commands_of_the_page_can_be_read() -> None:
    page = Path(__file__).parents[1] / "docs" / "launchers.md"
    lines = [text for text in page.read_text("utf-8").splitlines() if text.startswith("foredraft ")]
    names = set()
    for line in lines:
        _, _, _, *words = shlex.split(line)
        rest, chosen = taken(words, True)
        assert chosen is not None and not any("hydra" in word for word in rest)
        assert split(rest).axes or rest == ["bench.resume=DIR"]
        names.add(chosen.name)
    assert len(lines) == 4 and names == {"joblib", "ray", "submitit_slurm"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("hydra/launcher=joblib", *GRID), "'hydra/launcher=joblib' needs -m"),
        (("bench.jobs=2", *GRID), "'bench.jobs=2' needs -m"),
        (("-m", "bench.jobs=0"), "bench.jobs=0"),
        (("-m", "bench.jobs=1.5"), "bench.jobs=1.5"),
        (("-m", "bench.jobs=2", "bench.jobs=2"), "both given"),
        (("-m", "hydra/launcher=basik"), "did you mean 'basic'"),
        (("-m", "hydra/launcher=basic,joblib"), "one launcher"),
        (("-m", "hydra/launcher=basic", "hydra/launcher=joblib"), "give it once"),
        (("-m", "hydra.launcher.n_job=2"), "it has: no settings"),
        (("-m", "hydra.launcher._target_=os.system"), "hydra/launcher=NAME"),
        (("-m", "hydra.launcher.x=${oc.env:HOME}"), "nothing that reads the environment"),
        (("-m", "hydra.sweep.dir=x", *GRID), "refused"),
        (("-m", "grid.hydra/launcher=[basic]"), "hydra"),
        (("-m", "bench.repeats=1,2"), "belongs to the whole sweep"),
        (("-m", "drafter=ngran,none"), "did you mean 'ngram'"),
    ],
)
def test_what_cannot_be_done_is_refused(cli: Cli, words: tuple[str, ...], said: str) -> None:
    refused(cli("bench", *words), said)
    assert not Path("outputs").exists()


@pytest.mark.parametrize("text", ["hydra:\n  launcher:\n    n_jobs: 2", "bench:\n  jobs: 2"])
def test_a_launcher_in_a_file_is_refused(cli: Cli, text: str) -> None:
    Path("mine", "experiment").mkdir(parents=True)
    Path("mine", "experiment", "x.yaml").write_text(f"# @package _global_\n{text}\n")
    words = ("-m", "hydra/launcher=basic", "experiment=x", "--config-dir", "mine")
    done = cli("bench", *words, *TABLE)
    assert done.code == 2 and ("hydra" in done.err or "jobs" in done.err), done.err


def test_a_launcher_that_is_not_installed_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from foredraft.framework.bench.launching import launchers

    monkeypatch.setitem(launchers.EXTRAS, "abacus", "abacus")
    with pytest.raises(ConfigError, match=r"pip install 'foredraft\[abacus\]'.*basic"):
        launchers.settled(Chosen("abacus"))


@pytest.mark.parametrize(
    ("count", "jobs", "found"), [(2, None, 2), (2, 5, 2), (8, 3, 3), (-1, None, 4), (-2, None, 3)]
)
def test_joblib_says_how_many_jobs_are_at_work(
    count: int, jobs: int | None, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    monkeypatch.setattr("foredraft.framework.bench.launching.launchers.usable", lambda: [0] * 4)
    one = settled(Chosen("joblib", [f"hydra.launcher.n_jobs={count}"], jobs))
    assert (one.jobs, one.at_once) == (jobs or found, found)


def test_two_joblib_workers_decode_the_same(
    cli: Cli, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    words = (*TABLE[:-1], "drafter=ngram", "sampling.temperature=1", "bench.repeats=1")
    words += ("bench.baselines=[plain]", "bench.audit=2", "bench.dir=two")
    joblib = ("-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    done = cli("bench", *joblib, *words)  # joblib's processes know nothing of a stand-in
    assert done.code == 0, done.err
    noted = [(wave, number) for wave, number, _ in jobs_noted("two")]
    assert noted == [("measure", 0), ("measure", 1), ("judge", 1)]
    shutil.copytree("two", "one")
    for path in [*Path("one").glob("records/*"), *Path("one").glob("*/*.json")]:
        path.unlink()
    desk = Desk()  # decodes here
    monkeypatch.setattr(Worker, "open", lambda worker, message: desk.answer(message))
    monkeypatch.setattr(Worker, "ask", lambda worker, message: desk.answer(message))
    assert cli("bench", "bench.resume=one").code == 0
    assert kept("two") == kept("one") and len(kept("one")) == 2 * 6
    assert Store.open("two").verdicts() == Store.open("one").verdicts() != {}
    # Two jobs on one machine: no speed-ups, unless one ended before the other began.
    assert any(record["contended"] for record in Store.open("two").records())
