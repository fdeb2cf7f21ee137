"""Step times: measured on the real target, once, and kept by what they depend on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import make_engine, target_of

from foredraft.drafters.none import NoDrafter
from foredraft.framework import load
from foredraft.framework.cli.main import main
from foredraft.framework.errors import InputError
from foredraft.framework.interfaces import GammaPolicy, PolicySession
from foredraft.framework.targets.table import TableTarget
from foredraft.framework.testing.tables import TableDrafter
from foredraft.framework.times import profiles
from foredraft.framework.times.profiles import REFRESH, Profile, machine
from foredraft.framework.times.profiling import Plan, measure
from foredraft.framework.times.steps import StepTimes
from foredraft.framework.times.table import BatchTimes, TimeTable

PLAN = Plan((4, 16), (1, 2, 5), (1, 3), repeats=2, seconds=20)
TABLE = ("target=table", "drafter=ngram", "policy.gamma=2", "max_new_tokens=4")


def table_target(**changes: Any) -> TableTarget:
    laws = torch.rand(9, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = TableTarget(laws / laws.sum(1, keepdim=True), 1)
    for name, value in changes.items():
        setattr(target, name, value)
    return target


class Asks(GammaPolicy):
    """Fetches the times, as policies do, and keeps them."""

    def start(self, context: Any) -> PolicySession:
        self.times: StepTimes = context.times()
        return _AsksSession(context)


class _AsksSession(PolicySession):
    def gammas(self) -> list[int]:
        return [0] * self.context.rows


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[int]]:
    """Batch sizes that were measured, by a stand-in that takes no time."""
    sizes: list[int] = []

    def stand_in(target: Any, drafter: Any, batch: int, plan: Any) -> BatchTimes:
        sizes.append(batch)
        return BatchTimes(batch, (8,), (1, 2), ((float(batch), batch + 1.0),), (1,), (0.1,))

    monkeypatch.setenv("FOREDRAFT_CACHE", str(tmp_path))
    monkeypatch.setattr(profiles, "measure", stand_in)
    yield sizes


# --- measuring ---------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 3])
def test_a_model_is_measured_at_every_width_context_and_gamma(batch: int) -> None:
    target = target_of("llama")
    state = torch.get_rng_state()
    found = measure(target, NoDrafter(), batch, PLAN)
    assert (found.batch, found.contexts, found.widths) == (batch, (4, 16), (1, 2, 5))
    assert all(0 < seconds < 1 for line in found.target for seconds in line)
    assert found.gammas == (1, 3) and all(0 < seconds < 1 for seconds in found.draft)
    assert torch.equal(state, torch.get_rng_state())


def test_drafting_that_takes_longer_is_found_to() -> None:
    class Slow(TableDrafter):
        def start(self, context: Any) -> Any:
            session = super().start(context)
            inner = session.next_logits

            def slowly(drafted: Any) -> Any:
                import time

                time.sleep(0.02)
                return inner(drafted)

            session.next_logits = slowly  # type: ignore[method-assign]
            return session

    target = table_target()
    found = measure(target, Slow(target), 2, PLAN)
    assert 0.02 <= found.draft[0] < 0.055
    assert 0.06 <= found.draft[1] < 0.2


def test_what_has_no_room_is_left_out() -> None:
    found = measure(
        table_target(max_context=8), NoDrafter(), 1, Plan((64, 512), (1, 4, 9), (1, 8), 1)
    )
    assert found.widths == (1, 4)
    assert found.contexts == (4,)
    assert found.gammas == (1,)


def test_an_answer_that_ends_at_once_does_not_end_the_measuring() -> None:
    target = table_target(eos_ids=frozenset(range(8)))
    found = measure(target, TableDrafter(target), 2, PLAN)
    assert found.gammas[:1] == (1,)


def test_without_time_everything_is_still_measured_once() -> None:
    found = measure(table_target(), NoDrafter(), 1, Plan((4, 16), (1, 2), (1, 2), 50, seconds=0.0))
    assert found.contexts == (4,) and found.gammas == (1, 2)


# --- kept --------------------------------------------------------------------------------------


def test_a_hit_measures_nothing_and_refresh_does(measured: list[int], tmp_path: Path) -> None:
    about, target = {"target": "t"}, table_target()
    first = Profile(target, NoDrafter(), about)
    assert first(1).target(1, [2], 8).tolist() == [2]
    first(1)
    assert measured == [1]
    assert Profile(target, NoDrafter(), about)(4).sizes[1].batch == 4
    assert measured == [1, 4]  # 1 was on disk
    Profile(target, NoDrafter(), about, REFRESH)(4)
    assert measured == [1, 4, 1, 4]
    kept = [TimeTable.load(path).about for path in (tmp_path / "times").iterdir()]
    assert len(kept) == 2
    assert all({"target", "device", "threads", "versions", "when"} <= set(one) for one in kept)


def test_another_target_dtype_or_number_of_threads_is_another_key(
    measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    Profile(target_of("llama"), NoDrafter(), {"target": "t"})(1)
    Profile(target_of("llama"), NoDrafter(), {"target": "t", "drafter": {"order": 2}})(1)
    Profile(target_of("llama"), NoDrafter(), {"target": "u"})(1)
    Profile(target_of("llama", dtype=torch.float32), NoDrafter(), {"target": "t"})(1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    Profile(target_of("llama"), NoDrafter(), {"target": "t"})(1)
    assert len(measured) == 5
    Profile(target_of("llama"), NoDrafter(), {"target": "t"})(1)
    assert len(measured) == 5


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "foredraft times 1"}'])
def test_a_damaged_file_in_the_cache_is_measured_anew(
    content: str, measured: list[int], tmp_path: Path
) -> None:
    Profile(table_target(), NoDrafter(), {})(1)
    (path,) = (tmp_path / "times").iterdir()
    path.write_text(content, "utf-8")
    Profile(table_target(), NoDrafter(), {})(1)
    assert measured == [1, 1]
    Profile(table_target(), NoDrafter(), {})(1)  # mended
    assert measured == [1, 1]


def test_a_file_about_something_else_under_the_name_is_not_believed(
    measured: list[int], tmp_path: Path
) -> None:
    Profile(table_target(), NoDrafter(), {})(1)
    (path,) = (tmp_path / "times").iterdir()
    values = json.loads(path.read_text("utf-8"))
    values["about"]["device"] = "another"
    path.write_text(json.dumps(values), "utf-8")
    Profile(table_target(), NoDrafter(), {})(1)
    assert measured == [1, 1]


def test_a_cache_that_cannot_be_written_is_a_warning(
    measured: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    monkeypatch.setenv("FOREDRAFT_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="step times are not kept"):
        assert Profile(table_target(), NoDrafter(), {})(1).sizes[0].batch == 1


def test_nothing_without_a_name_goes_to_disk(measured: list[int], tmp_path: Path) -> None:
    profile = Profile(table_target(), NoDrafter())
    profile(2)
    profile(2)
    assert measured == [1, 2]
    assert list(tmp_path.iterdir()) == []


def test_what_times_depend_on_is_said() -> None:
    found = machine(target_of("llama"))
    assert found["dtype"] == "float64" and found["threads"] == torch.get_num_threads()
    assert found["device"] and found["versions"]["torch"]
    assert machine(table_target())["dtype"] is None


# --- in an engine ------------------------------------------------------------------------------


def test_an_engine_of_objects_measures_once_and_only_if_asked(measured: list[int]) -> None:
    make_engine(table_target(), max_new_tokens=3).generate([1])
    assert measured == []
    policy = Asks()
    engine = make_engine(table_target(), gamma=policy, max_new_tokens=3)
    engine.generate([1])
    engine.generate([1])
    assert measured == [1]
    assert policy.times.target(1, [2], 0).tolist() == [2]
    engine.generate_many([[1], [2], [3]])
    assert measured == [1, 3]


def test_the_config_says_where_times_come_from(
    measured: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = load(*TABLE)
    assert engine.parts.times is not None
    engine.parts.times(2)
    load(*TABLE).parts.times(2)  # type: ignore[misc]
    assert measured == [1, 2]
    load(*TABLE, "runtime.times=refresh").parts.times(1)  # type: ignore[misc]
    assert measured == [1, 2, 1]
    load(*TABLE, "target.seed=3").parts.times(1)  # type: ignore[misc]
    assert measured == [1, 2, 1, 1]


def test_a_file_is_taken_as_it_is(measured: list[int], tmp_path: Path) -> None:
    path = tmp_path / "frozen.json"
    TimeTable([BatchTimes(1, (8,), (1,), ((7.0,),))]).save(path)
    engine = load(*TABLE, f"runtime.times={path}")
    assert engine.parts.times is not None
    assert engine.parts.times(64).target(64, [9], 0).tolist() == [7]
    assert measured == []
    assert engine.config["runtime"]["times"] == str(path)


@pytest.mark.parametrize("content", [None, "{}"])
def test_a_file_that_is_no_table_is_refused_when_built(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    if content is not None:
        path.write_text(content, "utf-8")
    with pytest.raises(InputError, match="cannot be read" if content is None else "no table"):
        load(*TABLE, f"runtime.times={path}")


def test_measuring_is_not_part_of_the_answers_time() -> None:
    engine = make_engine(target_of("llama"), gamma=Asks(), max_new_tokens=2)
    engine.parts.times.plan = PLAN  # type: ignore[union-attr]
    answer = engine.generate([1, 2, 3])
    alone = make_engine(target_of("llama"), gamma=0, max_new_tokens=2).generate([1, 2, 3])
    assert answer.token_ids == alone.token_ids
    assert sum(answer.metrics.seconds.values()) < 0.5


# --- the command -------------------------------------------------------------------------------

QUICK = ["contexts=4", "widths=1,2", "gammas=1,2", "repeats=1", "seconds=1"]


def test_the_command_writes_what_a_run_can_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "times.json"
    words = ["times", "target=table", "drafter=ngram", f"out={out}", "batch=4,1", *QUICK]
    assert main(words) == 0
    table, text = TimeTable.load(out), capsys.readouterr().out
    assert [size.batch for size in table.sizes] == [1, 4]
    assert table.about["target"]["name"] == "table" and table.about["drafter"]["name"] == "ngram"
    assert "milliseconds, 4 rows" in text and "width 2" in text and f"runtime.times={out}" in text
    run = ["generate", "target=table", "drafter=ngram", f"runtime.times={out}", "policy=goodput"]
    assert main([*run, "prompt=0 1 2", "max_new_tokens=5"]) == 0


REFUSED = {
    "foredraft times needs out=FILE": [],
    "does not take 'policy=fixed'": ["policy=fixed"],
    "does not take 'outt=x'; did you mean 'out'": ["outt=x"],
    "batch=0 is not possible": ["batch=0"],
    "batch='x' is not possible": ["batch=x"],
    "repeats='1.5' is not possible": ["repeats=1.5"],
    "batch= needs one value": ["batch=1", "batch=2"],
    "out=no/where.json cannot be written": ["out=no/where.json"],
}


@pytest.mark.parametrize("message", REFUSED)
def test_the_command_refuses_in_a_sentence(
    message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["times", *REFUSED[message]]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
