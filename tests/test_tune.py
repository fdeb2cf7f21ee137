"""``foredraft tune``: races with staged times, what can end one, and one with real runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_helpers import Cli, Done, make_cli, refused
from tune_helpers import StagedWorker, write_prompts

from foredraft.framework.bench import hand, tuning_begin
from foredraft.framework.bench.grid import Sweep, read
from foredraft.framework.bench.store import Store
from foredraft.framework.bench.tuning_grid import GAMMAS, with_grid
from foredraft.framework.config import as_dict, compose

TABLE = ("target=table", "max_new_tokens=12", "task=file", "task.file=p.jsonl", "tune.dir=r")
GRID = ("grid.drafter=[prompt_lookup,ngram]", "grid.policy.gamma=[1,3,5]")
BEST = "drafter=ngram,policy.gamma=3"
# Seconds of a token. One cell is clearly the fastest, one nearly as fast as plain decoding.
TIMES = {"plain": 0.010, "gamma=5": 0.020, BEST: 0.006, "drafter=ngram,policy.gamma=1": 0.009}

pytestmark = [pytest.mark.usefixtures("only_builtins"), pytest.mark.xdist_group("bench")]
Stage = Callable[..., StagedWorker]


@lru_cache
def grid_of(words: tuple[str, ...], folder: str | None) -> Sweep:
    return read(words, folder)


def seconds(cell: str) -> float:
    return next((value for key, value in TIMES.items() if key in cell), 0.013)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    write_prompts()
    return make_cli(capsys)


@pytest.fixture(autouse=True)
def composed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most races here are of one grid, and composing it takes longer than to race it."""
    monkeypatch.setattr(tuning_begin, "read", lambda words, folder: grid_of(tuple(words), folder))


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Has the next races run on a worker with staged times."""

    def make(times: Callable[[str], float] = seconds, **how: Any) -> StagedWorker:
        worker = StagedWorker(times, **how)
        monkeypatch.setattr(hand, "Worker", lambda limit: worker)
        return worker

    return make


def answer(folder: str = "r") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "tuning.json").read_text())["answer"]
    return found


def finished(done: Done, code: int = 0) -> None:
    assert done.code == code, done.err


def test_the_fastest_cell_wins_on_units_that_it_was_not_chosen_on(cli: Cli, stage: Stage) -> None:
    worker = stage()
    done = cli("tune", *TABLE, *GRID)
    finished(done)
    found, plan = answer(), Store.open("r").manifest["tune"]
    assert found["speculate"] and found["cell"] == BEST and found["base"] == ["plain"]
    assert found["measured"]["low"] < 10 / 6 < found["measured"]["high"]
    assert found["measured"]["units"] == len(plan["held_out"]) == 24
    assert f"speculate: {BEST} has 1.6" in done.out
    held = {cell for cell, prompt in worker.runs if prompt in plan["held_out"]}
    assert held == {"plain", BEST}
    assert not set(plan["race"]) & set(plan["held_out"])


def test_slow_cells_leave_early_and_are_told_with_their_reasons(cli: Cli, stage: Stage) -> None:
    worker = stage()
    done = cli("tune", *TABLE, *GRID)
    raced = Store.open("r").manifest["tune"]["race"]
    made = {cell: sum(c == cell and p in raced for c, p in worker.runs) for cell, _ in worker.runs}
    assert made["drafter=ngram,policy.gamma=5"] == 6  # units of the first look
    assert all(cell in done.out for cell in made if cell != "plain")
    said = " ".join(done.err.split())  # a line is as long as the terminal is wide
    assert "out: drafter=ngram,policy.gamma=5: 0.3" in said and f"times the speed of {BEST}" in said


def test_the_preset_composes_to_what_won(cli: Cli, stage: Stage) -> None:
    stage()
    finished(cli("tune", *TABLE, *GRID, "preset=mine"))
    preset = Path("r/conf/experiment/mine.yaml")
    config = as_dict(compose(["experiment=mine"], "r/conf"))
    won = next(cell["config"] for cell in Store.open("r").cells if cell["id"] == BEST)
    for kind in ("target", "drafter", "verifier", "policy"):
        assert config[kind] == won[kind]
    heading = preset.read_text().split("defaults:")[0]
    for words in ("1.6", "target:   table", "machine:", "date:", "command:  foredraft tune", BEST):
        assert words in heading
    done = cli("generate", "--config-dir", "r/conf", "experiment=mine", "prompt=0 1 2")
    finished(done)


def test_it_may_say_do_not_speculate_and_the_preset_can_be_used_all_the_same(
    cli: Cli, stage: Stage
) -> None:
    stage(lambda cell: 0.01 if cell == "plain" else 0.0102)
    done = cli("tune", *TABLE, *GRID, "out=blind.yaml")
    finished(done)
    found = answer()
    assert not found["speculate"] and found["cell"] is not None
    assert done.out.splitlines()[-1].startswith("do not speculate: ")
    preset = yaml.safe_load(Path("blind.yaml").read_text())
    assert {"override /drafter": "none"} in preset["defaults"]
    assert preset["policy"] == {"gamma": 0} and "drafter" not in preset
    Path("conf/experiment").mkdir(parents=True)
    Path("blind.yaml").rename("conf/experiment/blind.yaml")
    config = as_dict(compose(["experiment=blind", "sampling.temperature=1"], "conf"))
    assert (config["drafter"]["name"], config["policy"]["gamma"]) == ("none", 0)
    finished(cli("generate", "--config-dir", "conf", "experiment=blind", "prompt=0 1 2"))


def test_when_all_are_slower_nothing_more_is_measured(cli: Cli, stage: Stage) -> None:
    worker = stage(lambda cell: 0.01 if cell == "plain" else 0.03)
    done = cli("tune", *TABLE, *GRID)
    finished(done)
    assert "do not speculate: no cell is left" in done.out
    assert len(worker.runs) == 6 * 7  # one look


def test_a_race_that_is_stopped_goes_on_to_the_same_answer(cli: Cli, stage: Stage) -> None:
    whole = stage()
    finished(cli("tune", *TABLE, *GRID))
    expected, again = answer(), [word.replace("=r", "=again") for word in TABLE]
    made: list[tuple[str, int]] = []
    for interrupt in (3, 50, 20, None):
        worker = stage(interrupt=interrupt)
        words = ("tune.resume=again",) if Path("again").exists() else (*again, *GRID)
        done = cli("tune", *words)
        made += worker.runs
        if interrupt is not None:
            finished(done, 130)
            assert "kept: foredraft tune tune.resume=" in done.err and "again" in done.err
    assert answer("again") == expected
    assert sorted(made) == sorted(whole.runs)
    done = cli("tune", "tune.resume=again", "preset=other")
    finished(done)
    assert Path("again/conf/experiment/other.yaml").exists() and answer("again") == expected
    assert sorted(made) == sorted(whole.runs)


def test_a_cell_that_fails_leaves_the_race_with_its_cause(cli: Cli, stage: Stage) -> None:
    stage(fails=BEST)
    done = cli("tune", *TABLE, *GRID)
    finished(done, 3)
    assert answer()["cell"] == "drafter=ngram,policy.gamma=1"
    assert "failed: the drafter tripped over its own feet" in done.err
    stage(fails="drafter")
    done = cli("tune", *(word.replace("=r", "=all") for word in TABLE), *GRID)
    assert done.code == 3 and "do not speculate: every cell failed" in done.out


def test_a_cell_that_changes_the_output_cannot_win(cli: Cli, stage: Stage) -> None:
    stage(wrong=BEST)
    done = cli("tune", *TABLE, *GRID)
    finished(done)
    assert answer()["cell"] == "drafter=ngram,policy.gamma=1"
    assert "not plain decoding's" in done.err


def test_the_time_ends_a_race(cli: Cli, stage: Stage) -> None:
    """The staged seconds of a run are booked when the race goes on."""
    stage(interrupt=30)
    finished(cli("tune", *TABLE, *GRID), 130)
    worker = stage()
    done = cli("tune", "tune.resume=r", "minutes=0.01")
    finished(done)
    assert "the time was up before the first look" in done.err
    assert not [run for run in worker.runs if run[0] != "plain" and "drafter" not in run[0]]
    store, found = Store.open("r"), answer()
    assert len(list(store.records())) < 24 * 7
    assert found["cell"] is not None and not found["speculate"]
    assert "could not be measured" in found["says"] or found["measured"]["units"] >= 3


def test_too_many_cells_for_the_time_are_halved_until_a_look_is_in_reach(
    cli: Cli, stage: Stage
) -> None:
    """Six cells and plain decoding take .72 s a unit, and the race has 2.7 s for six units."""
    worker = stage()
    done = cli("tune", *TABLE, *GRID, "minutes=0.075")
    finished(done)
    left = [line for line in done.err.splitlines() if "no time for so many" in line]
    assert len(left) == 3 and all("after 1 of 6 units" in line for line in left)
    raced = Store.open("r").manifest["tune"]["race"]
    made = {cell: sum(c == cell and p in raced for c, p in worker.runs) for cell, _ in worker.runs}
    assert sorted(made.values())[:3] == [1, 1, 1] and made[BEST] >= 6 and answer()["cell"] == BEST
    assert "the time was up before the first look" not in done.err
    worker = stage()  # what is read back decides alike
    finished(cli("tune", "tune.resume=r", "minutes=0.075"))
    assert not [run for run in worker.runs if run[1] in raced and made[run[0]] == 1]


def test_units_are_few_enough_to_say_so(cli: Cli) -> None:
    write_prompts(11)
    refused(cli("tune", *TABLE, *GRID), "needs 12 units", "gives 11")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fast",), "does not take --fast"),
        (("minutes=soon",), "minutes=soon"),
        (("minutes=0",), "minutes=0"),
        (("tune.steps=3",), "tune.steps is not a key"),
        (("preset=a-b",), "a preset's name is a word"),
        (("preset=copying",), "ships already"),
        (("out=x.json",), "ends in .yaml"),
        (("preset=a", "out=b.yaml"), "give one of them"),
        (("out=nowhere/b.yaml",), "no folder"),
        (("bench.dir=x",), "tune.dir=DIR"),
        (("bench.minutes=3",), "minutes=N"),
        (("grid.sampling.temperature=[0,1]", "drafter=ngram"), "one target, sampling"),
        (("grid.verifier=[lenient]", "drafter=ngram"), "changes the output"),
        (("bench.baselines=[plain,generate_lookup]", *GRID), "speculates"),
        (("drafter=none", "grid.policy.gamma=[0]"), "no cell that drafts"),
        (("tune.resume=none",), "beside it"),
        (("tune.resume=none", "target.trust_remote_code=true"), "so target=table has no place"),
    ],
)
def test_what_cannot_be_done_is_refused(cli: Cli, words: tuple[str, ...], said: str) -> None:
    refused(cli("tune", *TABLE, *words), said)
    assert not Path("r").exists()


def test_a_folder_that_is_no_race_is_refused(cli: Cli, stage: Stage) -> None:
    refused(cli("tune", "tune.resume=none"), "no folder of a sweep")
    stage()
    finished(cli("tune", *TABLE, *GRID))
    refused(cli("bench", "bench.resume=r"), "the folder of a race", "foredraft tune tune.resume=")
    manifest = json.loads(Path("r/run.json").read_text())
    for change, said in (
        ({"held_out": manifest["tune"]["race"]}, "changed by hand"),
        ({"looks": "often"}, "changed by hand"),
        (None, "not a race"),
    ):
        other = dict(manifest)
        if change is None:
            del other["tune"]
        else:
            other["tune"] = {**manifest["tune"], **change}
        Path("r/run.json").write_text(json.dumps(other))
        refused(cli("tune", "tune.resume=r"), said)


def change(file: str, **values: Any) -> None:
    path = Path(file)
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_the_folder_of_a_race_leads_nowhere_else(cli: Cli, stage: Stage) -> None:
    """It may come from somebody else: neither a name in it nor a link is followed out of it."""
    stage()
    finished(cli("tune", *TABLE, *GRID))
    plan, conf = json.loads(Path("r/run.json").read_text())["tune"], Path("r/conf")
    Path("x").mkdir()
    for name in ("../../../x/y", "/x/y", "a\nb", "copying", "x" * 200):
        change("r/run.json", tune={**plan, "preset": name})
        refused(cli("tune", "tune.resume=r"), "preset=", "run.json is not possible")
    change("r/run.json", tune=plan)
    conf.rename("outside")
    Path("outside/experiment/tuned.yaml").unlink()
    conf.symlink_to(Path("outside").absolute())
    for words in ((), ("out=r/conf/experiment/mine.yaml",)):
        refused(cli("tune", "tune.resume=r", *words), "conf is a link")
    assert not list(Path("x").iterdir()) and not list(Path("outside/experiment").iterdir())
    conf.unlink()
    conf.touch()
    done = cli("tune", "tune.resume=r")
    assert done.code == 2 and "conf/experiment cannot be written: Not a d" in done.err, done.err
    assert "Traceback" not in done.err and BEST in done.out
    Path("r/tuning.json").rename("tuning.json")
    Path("r/tuning.json").symlink_to(Path("tuning.json").absolute())
    refused(cli("export", "r", "to=vllm"), "tuning.json is a link")


def test_no_text_leaves_the_comment_of_a_preset(cli: Cli, stage: Stage) -> None:
    stage()
    finished(cli("tune", *TABLE, *GRID))
    before = yaml.safe_load(Path("r/conf/experiment/tuned.yaml").read_text("utf-8"))
    ends = ("\n", "\r", "\u0085", "\u2028", "\u2029", "\x1b", "\0", "\uffff")
    evil = "".join(f"tune{end}out: /x{ord(end)}" for end in ends)
    change("r/run.json", command=evil, started=evil, commit=evil)
    finished(cli("tune", "tune.resume=r"))
    text = Path("r/conf/experiment/tuned.yaml").read_bytes().decode("utf-8")
    heading = text[: text.index("\ndefaults:")].splitlines()
    assert all(line.startswith("#") for line in heading)
    assert text.count("out: /x") == 3 * len(ends)
    assert yaml.safe_load(text) == before


def test_without_a_grid_the_drafters_without_files_race() -> None:
    words = with_grid(["target=table"])
    axes = {word.partition("=")[0]: word.partition("=")[2] for word in words[1:]}
    assert set(axes) == {"zip.drafter", "zip.policy", "zip.policy.gamma", "zip.verifier"}
    drafters = axes["zip.drafter"].strip("[]").split(",")
    assert set(drafters) == {"prompt_lookup", "ngram", "jacobi", "token_recycling"}
    assert with_grid(["grid.drafter=[ngram]"]) == ["grid.drafter=[ngram]"]
    assert with_grid(["drafter=ngram", "policy=fixed"])[2:] == ["zip.policy.gamma=[1,3]"]
    models = with_grid(["policy=heuristic", "verifier=token"])[2:]
    recycling = {"token_recycling"}  # a tree, which this verifier cannot judge
    assert models == [f"zip.drafter=[{','.join(name for name in GAMMAS if name not in recycling)}]"]


def test_a_race_with_real_runs(cli: Cli) -> None:
    """What is timed depends on the machine; what is run, judged and written does not."""
    write_prompts(12, "a")
    done = cli("tune", *TABLE, "grid.drafter=[prompt_lookup,ngram]", "minutes=1", "bench.repeats=1")
    finished(done)
    store, found = Store.open("r"), answer()
    assert done.out.splitlines()[-1] == found["says"]
    assert Path("r/conf/experiment/tuned.yaml").exists()
    if found["cell"] is not None:
        assert store.verdicts()[found["cell"]]["verdict"] == "same"
        held = {key[0] for key in store.done() if key[1] in store.manifest["tune"]["held_out"]}
        assert held == {"plain", found["cell"]}
    finished(cli("report", "r"))
    done = cli("generate", "--config-dir", "r/conf", "experiment=tuned", "prompt=0 1 2")
    finished(done)


def test_what_the_time_ended_goes_on_with_more_minutes(cli: Cli, stage: Stage) -> None:
    whole = stage()
    finished(cli("tune", *TABLE, *GRID))
    expected, again = answer(), [word.replace("=r", "=again") for word in TABLE]
    made = stage(interrupt=30)
    finished(cli("tune", *again, *GRID), 130)
    killed = stage()
    killed.do_verdict = interrupted  # type: ignore[method-assign]
    finished(cli("tune", "tune.resume=again", "minutes=0.01"), 130)
    stored = json.loads(Path("again/tuning.json").read_text())
    assert killed.runs == [] and stored == {"race": "over", "minutes": 0.01}
    stage()
    done = cli("tune", "tune.resume=again", "minutes=0.01")
    finished(done)
    assert "go on with tune.resume=" in done.err and "more than minutes=0.01" in done.err
    ended = answer("again")
    assert not ended["speculate"]
    worker = stage()  # with as many, nothing is decided anew
    finished(cli("tune", "tune.resume=again", "minutes=0.01"))
    assert worker.runs == [] and answer("again") == ended
    worker = stage()
    finished(cli("tune", "tune.resume=again", "minutes=60"))
    assert answer("again") == expected
    assert sorted(made.runs + worker.runs) == sorted(whole.runs)


def test_that_the_time_ended_a_race_survives_a_kill(cli: Cli, stage: Stage) -> None:
    """What is stored is read again: the clock of a later call alone would let it race on."""
    stage(interrupt=30)
    finished(cli("tune", *TABLE, *GRID), 130)
    Path("r/tuning.json").write_text('{"race": "over", "minutes": 10.0}')
    worker = stage()
    finished(cli("tune", "tune.resume=r"))
    held = Store.open("r").manifest["tune"]["held_out"]
    assert worker.runs and all(prompt in held for _, prompt in worker.runs)
    ended = json.loads(Path("r/tuning.json").read_text())
    assert ended["minutes"] == 10 and ended["answer"]["measured"]["units"] == len(held)


def test_a_kill_before_the_verdict_changes_nothing(cli: Cli, stage: Stage) -> None:
    """The fastest cell is wrong, and the two that it had outrun come back and race on."""

    def times(cell: str) -> float:
        return 0.0088 if "lookup,policy.gamma=1" in cell else seconds(cell)

    stage(times, wrong=BEST)
    finished(cli("tune", *TABLE, *GRID))
    expected, again = answer(), [word.replace("=r", "=again") for word in TABLE]
    worker = stage(times, wrong=BEST)
    worker.do_verdict = interrupted  # type: ignore[method-assign]
    finished(cli("tune", *again, *GRID), 130)
    stage(times, wrong=BEST)
    finished(cli("tune", "tune.resume=again"))
    assert answer("again") == expected
    first, second = (set(Store.open(folder).done()) for folder in ("r", "again"))
    assert first == second


def interrupted(message: dict[str, Any]) -> dict[str, Any]:
    raise KeyboardInterrupt


def test_nobody_speculates_on_an_output_that_could_not_be_judged(cli: Cli, stage: Stage) -> None:
    worker = stage()
    unknown = {"verdict": "unknown", "says": "the process that decodes died"}
    worker.do_verdict = lambda message: unknown  # type: ignore[method-assign]
    done = cli("tune", *TABLE, *GRID)
    finished(done)
    found = answer()
    assert found["cell"] == BEST and not found["speculate"]
    assert found["says"].startswith(f"do not speculate: {BEST} has 1.6")
    assert "plain decoding's: the process that decodes died" in done.out.splitlines()[-1]
    preset = yaml.safe_load(Path("r/conf/experiment/tuned.yaml").read_text())
    assert {"override /drafter": "none"} in preset["defaults"]
    stage()  # a judge that lives
    finished(cli("tune", "tune.resume=r"))
    assert answer()["speculate"]


def test_an_end_that_was_changed_by_hand_is_refused(cli: Cli, stage: Stage) -> None:
    stage()
    finished(cli("tune", *TABLE, *GRID))
    for minutes in ("soon", True, -1, None):
        change("r/tuning.json", minutes=minutes)
        refused(cli("tune", "tune.resume=r"), "tuning.json was changed by hand", "minutes=")


def test_a_race_keeps_the_policy_of_the_words() -> None:
    def rows(*words: str) -> dict[str, str]:
        found = with_grid(["target=table", *words])[1 + len(words) :]
        return {word.partition("=")[0]: word.partition("=")[2] for word in found}

    four = "[prompt_lookup,ngram,jacobi,token_recycling]"
    assert rows("policy=schedule")["zip.drafter"] == four
    assert rows("policy=entropy") == {"zip.drafter": "[ngram]"}  # it asks a law of each token
    assert rows("policy=confidence") == {"zip.drafter": "[ngram]"}
    cells = read(with_grid(["target=table", "policy=schedule"])).cells
    policies = {c.config["policy"]["name"] for c in cells if c.kind == "engine"}
    assert policies == {"schedule"} and sum(c.kind == "engine" for c in cells) == 4


def test_a_value_of_a_verifier_needs_the_verifier(cli: Cli) -> None:
    words = ("target=table", "tune.dir=r", "verifier.lenience=0.5")
    refused(cli("tune", *words), "write verifier=NAME verifier.lenience=0.5")
    assert not Path("r").exists()
