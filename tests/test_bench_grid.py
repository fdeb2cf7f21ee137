"""The words of a sweep: its cells, its baselines, and the order in which everything runs."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from foredraft.framework.bench import axes, plan
from foredraft.framework.bench.cells import MOST, Cell, new_id
from foredraft.framework.bench.composer import composer, one_word
from foredraft.framework.bench.exclude import mark
from foredraft.framework.bench.grid import Sweep, compose_cell, read
from foredraft.framework.bench.options import BenchOptions
from foredraft.framework.bench.tasks import BenchPrompt
from foredraft.framework.config import compose, to_objects
from foredraft.framework.config.overrides import parse
from foredraft.framework.errors import ConfigError

pytestmark = pytest.mark.usefixtures("only_builtins")
TABLE = "target=table"
SECRET = "a-secret-of-the-environment"


def refusal(*words: str, folder: Path | None = None) -> str:
    """The one sentence that refuses a sweep of these words."""
    with pytest.raises(ConfigError) as caught:
        read([TABLE, *words], folder)
    text = str(caught.value)
    assert "\n" not in text and text.endswith(".") and "Traceback" not in text
    return text


def check_overrides(sweep: Sweep, folder: Path | None = None) -> None:
    """Each cell's overrides compose to its config."""
    with composer(folder) as composed:
        for cell in sweep.cells:
            assert composed.config(cell.overrides) == cell.config


def engines(sweep: Sweep) -> list[Cell]:
    return [cell for cell in sweep.cells if cell.kind == "engine"]


def by_id(sweep: Sweep) -> dict[str, Cell]:
    return {cell.id: cell for cell in sweep.cells}


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return folder


# --- products, steps, exclusions -----------------------------------------------------------------


def test_the_grid_of_the_readme() -> None:
    """Cells without drafts are baselines, each setting once, whatever lengths they were given."""
    sweep = read(
        ["grid.drafter=[none,prompt_lookup,ngram]", "grid.policy.gamma=[1,3,5]",
         "grid.sampling.temperature=[0,1]"]
    )  # fmt: skip
    assert [cell.id for cell in sweep.cells if cell.kind != "engine"] == [
        "plain,sampling.temperature=0", "plain,sampling.temperature=0,again",
        "plain,sampling.temperature=1", "plain,sampling.temperature=1,again",
        "generate,sampling.temperature=0",
    ]  # fmt: skip
    wanted = [
        {"drafter": d, "policy.gamma": g, "sampling.temperature": t}
        for d in ("prompt_lookup", "ngram") for g in (1, 3, 5) for t in (0, 1)
    ]  # fmt: skip
    cells = engines(sweep)
    assert [cell.choices for cell in cells] == wanted and len(by_id(sweep)) == len(sweep.cells)
    assert cells[0].id == "drafter=prompt_lookup,policy.gamma=1,sampling.temperature=0"
    for cell in cells:
        assert cell.config["drafter"]["name"] == cell.choices["drafter"] and cell.lossless
        assert cell.config["policy"]["gamma"] == cell.choices["policy.gamma"]
        temperature = cell.choices["sampling.temperature"]
        assert cell.config["sampling"]["temperature"] == temperature
        assert cell.baseline == f"plain,sampling.temperature={temperature}"
    assert sweep.remarks == [
        "generate is left out beside plain,sampling.temperature=1: it is compared at "
        "sampling.temperature=0 only."
    ]


def test_a_plain_cell_is_the_setting_without_drafts() -> None:
    sweep = read([TABLE, "grid.drafter=[ngram]", "drafter.order=2", "policy.gamma=5", "seed=4"])
    plain, again, cell = sweep.cells
    assert (plain.id, again.id, cell.id) == ("plain", "plain,again", "drafter=ngram")
    assert (plain.baseline, again.baseline, cell.baseline) == ("", "plain", "plain")
    assert plain.config == again.config and (plain.kind, again.kind) == ("plain", "plain")
    names = {kind: plain.config[kind]["name"] for kind in ("drafter", "verifier", "policy")}
    assert names == {"drafter": "none", "verifier": "token", "policy": "fixed"}
    changed = {key for key in cell.config if cell.config[key] != plain.config[key]}
    assert plain.config["policy"]["gamma"] == 0 and changed == {"drafter", "policy"}
    assert compose_cell(cell.overrides) == cell.config
    check_overrides(sweep)


def test_no_axis_is_one_cell() -> None:
    sweep = read([TABLE])
    assert [cell.id for cell in sweep.cells] == ["plain", "plain,again", "drafter=prompt_lookup"]
    assert engines(sweep)[0].choices == {} and sweep.axes == {}


def test_a_grid_without_drafts_is_a_baseline_alone() -> None:
    sweep = read([TABLE, "grid.drafter=[none]", "bench.baselines=[plain]"])
    assert [cell.id for cell in sweep.cells] == ["plain"]


def test_three_drafters_with_three_lengths_in_step_are_three_cells() -> None:
    sweep = read([TABLE, "zip.drafter=[ngram,prompt_lookup,ngram]", "zip.policy.gamma=[1,3,3]"])
    pairs = [(cell.choices["drafter"], cell.choices["policy.gamma"]) for cell in engines(sweep)]
    assert pairs == [("ngram", 1), ("prompt_lookup", 3), ("ngram", 3)]


def test_steps_are_multiplied_with_the_other_axes() -> None:
    found = axes.split(["zip.drafter=[a,b]", "grid.seed=[1,2]", "zip.policy.gamma=[3,4]"])
    combos = axes.combinations(found.axes)
    assert [list(combo.values()) for combo in combos] == [
        ["a", 1, 3], ["b", 1, 4], ["a", 2, 3], ["b", 2, 4],
    ]  # fmt: skip
    assert list(combos[0]) == ["drafter", "seed", "policy.gamma"]


def test_exclusions_match_on_all_keys_and_any_listed_value() -> None:
    grid = ["grid.drafter=[ngram,prompt_lookup]", "grid.policy.gamma=[1,3,5]"]
    sweep = read(
        [TABLE, *grid, "exclude=[{drafter: ngram, policy.gamma: [3,5]}, {policy.gamma: 1}, "
         "{drafter: ngram, policy.gamma: 7}]"]
    )  # fmt: skip
    assert [cell.id for cell in engines(sweep)] == [
        "drafter=prompt_lookup,policy.gamma=3", "drafter=prompt_lookup,policy.gamma=5",
    ]  # fmt: skip
    assert sweep.remarks[0] == "exclude={'drafter': 'ngram', 'policy.gamma': 7} matches no cell."


def test_a_key_of_one_option_says_nothing_about_the_others() -> None:
    """On an axis and as a fixed word; a key that no option has is refused."""
    sweep = read([TABLE, "grid.drafter=[none,prompt_lookup,ngram]", "grid.drafter.order=[1,2]"])
    assert [cell.id for cell in engines(sweep)] == [
        "drafter=prompt_lookup", "drafter=ngram,drafter.order=1", "drafter=ngram,drafter.order=2",
    ]  # fmt: skip
    fixed = read([TABLE, "grid.drafter=[prompt_lookup,ngram]", "drafter.order=2"])
    first, second = engines(fixed)
    assert "order" not in first.config["drafter"] and second.config["drafter"]["order"] == 2
    check_overrides(sweep)
    check_overrides(fixed)
    text = refusal("grid.drafter=[prompt_lookup,ngram]", "drafter.max_ngarm=2")
    assert "the cell drafter=prompt_lookup is not possible: drafter.max_ngarm" in text
    assert "did you mean 'max_ngram'" in text


def test_values_keep_their_type_on_the_way() -> None:
    values: list[Any] = ["a b", "it's", "3", 3, 1e-4, math.inf, True, "true", None, [1, "2"], "a,b"]
    for value in [*values, "", {"a": [1]}, "${seed}x", "x=y", "#", "é\u2028", -0.5]:
        if value != "${seed}x":
            read_back = parse(one_word("stop", value)).value()
            assert read_back == value and type(read_back) is type(value)
    sweep = read([TABLE, "grid.stop=[[a],['b, c','3']]"])
    assert [cell.config["stop"] for cell in engines(sweep)] == [["a"], ["b, c", "3"]]


def test_equal_values_are_known_by_meaning() -> None:
    assert mark(1) == mark(1.0) != mark(True) and mark("1") != mark(1)
    assert mark([1.0, {"a": 2.0}]) == mark([1, {"a": 2}]) and mark(None) != mark("null")


# --- baselines -----------------------------------------------------------------------------------


def test_what_does_not_matter_to_plain_decoding_shares_a_baseline() -> None:
    sweep = read(
        [TABLE, "sampling.temperature=1", "grid.sampling.draft=[full,none]",
         "grid.verifier=[token,block]", "grid.runtime.times=[cached,refresh]",
         "bench.baselines=[plain]", "drafter=ngram"]
    )  # fmt: skip
    assert [cell.id for cell in sweep.cells if cell.kind == "plain"] == ["plain"]
    assert len(engines(sweep)) == 8 and {cell.baseline for cell in engines(sweep)} == {"plain"}


def test_what_matters_has_a_baseline_of_its_own() -> None:
    varied = ["grid.target.seed=[0,1]", "grid.runtime.batch_size=[1,2]", "grid.seed=[0,1]"]
    sweep = read([TABLE, *varied, "grid.max_new_tokens=[8,9]", "bench.baselines=[plain]"])
    plains = [cell for cell in sweep.cells if cell.kind == "plain"]
    assert len(plains) == len(engines(sweep)) == 16
    for cell in engines(sweep):
        base = by_id(sweep)[cell.baseline]
        for key in ("target", "sampling", "runtime", "seed", "max_new_tokens"):
            assert base.config[key] == cell.config[key]


def test_shared_noise_keeps_its_own_plain_text() -> None:
    """Only there are tokens equal: the rule draws by position, the others by round."""
    grid = ["grid.verifier=[token,coupled]", "drafter=ngram", "bench.baselines=[plain]"]
    sampled = read([TABLE, *grid, "sampling.temperature=1"])
    assert [cell.baseline for cell in engines(sampled)] == ["plain", "plain,verifier=coupled"]
    assert by_id(sampled)["plain,verifier=coupled"].config["verifier"]["name"] == "coupled"
    greedy = read([TABLE, *grid])
    assert {cell.baseline for cell in engines(greedy)} == {"plain"}


def test_an_experiment_with_keys_of_its_drafter_has_a_baseline_that_composes() -> None:
    """``drafter.max_ngram`` of the experiment is no key of ``drafter=none``."""
    sweep = read([TABLE, "experiment=copying", "grid.sampling.temperature=[0,1]"])
    check_overrides(sweep)
    assert engines(sweep)[0].config["drafter"]["max_ngram"] == 4
    assert by_id(sweep)["plain,sampling.temperature=1"].config["sampling"]["temperature"] == 1.0


def test_generate_is_a_baseline_where_it_can_do_the_same() -> None:
    """The first row is possible; each of the others varies one thing that is not."""
    rows = {
        "runtime.batch_size": ("1", "2", "1", "1", "1", "1"),
        "sampling.temperature": ("0", "0", "1", "0", "0", "0"),
        "stop": ("[]", "[]", "[]", "[a]", "[]", "[]"),
        "sampling.presence_penalty": ("0", "0", "0", "0", "1", "0"),
        "max_new_tokens": ("8", "8", "8", "8", "8", "null"),
    }
    words = [f"zip.{key}=[{','.join(values)}]" for key, values in rows.items()]
    words = ["target=smollm2", "bench.baselines=[plain,generate,generate_lookup]", *words]
    sweep = read(words)
    made = [cell for cell in sweep.cells if cell.kind.startswith("generate")]
    assert [cell.kind for cell in made] == ["generate", "generate_lookup"]
    first = engines(sweep)[0].baseline
    assert {cell.baseline for cell in made} == {first}
    assert made[0].config == by_id(sweep)[first].config
    assert len(sweep.remarks) == 8 and len(engines(sweep)) == 6


def test_generate_is_for_models_of_transformers() -> None:
    text = "generate is left out beside plain: target=table is no model of transformers."
    assert text in read([TABLE]).remarks


def test_assisted_generate_needs_its_assistant() -> None:
    listed = "bench.baselines=[plain,generate_assisted]"
    sweep = read([listed, "bench.assistant=some/model"])
    assert [cell.id for cell in sweep.cells][:2] == ["plain", "generate_assisted"]
    assert "needs bench.assistant=MODEL" in refusal(listed)
    assert "has no effect unless" in refusal("bench.assistant=some/model")


def test_a_lossy_verifier_is_marked() -> None:
    sweep = read(
        [TABLE, "grid.verifier=[token,typical]", "drafter=ngram", "sampling.temperature=1"]
    )
    assert {c.choices["verifier"]: c.lossless for c in engines(sweep)} == {
        "token": True, "typical": False,
    }  # fmt: skip


# --- names ---------------------------------------------------------------------------------------


def test_ids_are_file_names_and_unique_without_regard_to_case() -> None:
    taken: set[str] = set()
    for value in ("a", "A", "/a", "../a", "a:b", "a*b", "a b", "x" * 500, "y" * 500, "", ["é"]):
        name = new_id("engine", {"drafter.path": value}, taken)
        assert name.lower() not in taken and len(name) <= MOST
        assert not set(name) & set("/\\:*?\"<>| '") and name.isascii()
        assert name[0].isalnum() and name[-1] not in ". "
        taken.add(name.lower())
    again = new_id("plain", {"drafter.path": "x" * 500}, taken, "again")
    assert again.startswith("plain,") and again.endswith(",again") and len(again) <= MOST


# --- refusals ------------------------------------------------------------------------------------

WRONG = {
    "grid.drafter=ngram": "grid.drafter=ngram is no list; write grid.drafter=[ngram].",
    "grid.drafter=ngram,none": "is no list; write grid.drafter=[ngram,none].",
    "drafter=ngram,none": "lists several values; write grid.drafter=[ngram,none].",
    "grid.policy.gamma=range(1,4)": "write grid.policy.gamma=[...], with every value in it",
    "grid.drafter=[]": "grid.drafter=[] is empty",
    "grid=[1]": "names no key; write grid.KEY=[a,b]",
    "gird.drafter=[ngram]": "gird is not a key; did you mean 'grid'",
    "grid.polcy.gamma=[1]": "polcy is not a key; did you mean 'policy'",
    "grid.policy.gama=[1,2]": "the cell policy.gama=1 is not possible: policy.gama is not a key of "
    "policy 'fixed'; did you mean 'gamma'",
    "grid.max_new_token=[1]": "did you mean 'max_new_tokens'",
    "grid.drafter=[ngarm]": "unknown drafter 'ngarm'; did you mean 'ngram'",
    "grid.drafter=[null]": "unknown drafter 'null'",
    "grid.drafter=[{name: ngram}]": "unknown drafter",
    "grid.policy.gamma=[1,1.0]": "grid.policy.gamma lists 1 twice",
    "grid.policy.gamma=['3']": "the cell policy.gamma='3' is not possible: policy.gamma='3'",
    "grid.seed=[1,null]": "must be repeatable",
    "grid.bench.repeats=[1,2]": "bench belongs to the whole sweep, not to a cell",
    "grid.task=[own]": "task belongs to the whole sweep",
    "grid.exclude=[a]": "exclude belongs to the whole sweep",
    "zip.grid.drafter=[ngram]": "grid belongs to the whole sweep",
    "prompt=hello": "prompts come from task=own",
    "grid.prompts=[a.jsonl]": "prompts come from task=own",
    "out=x.jsonl": "bench.dir=DIR",
    "samples=3": "bench.repeats=N",
    "observers=[jsonl]": "records of its own",
    "exclude=[{drafer: ngram}]": "exclude names 'drafer', which is no axis; axes: none",
    "exclude={drafter: ngram}": "it lists what to leave out",
    "exclude=[{}]": "it lists what to leave out",
    "bench.repeat=2": "bench.repeat is not a key of bench; did you mean 'repeats'",
    "bench.repeats=0": "bench.repeats=0 is not possible; it must be a whole number from 1",
    "bench.minutes=0": "bench.minutes=0.0 is not possible",
    "bench.on_error=stopp": "did you mean 'stop'",
    "bench.baselines=[again]": "it must list plain",
    "bench.baselines=[plain,plain]": "once at most",
    "bench.baselines=[plain,generat]": "did you mean 'generate'",
    "bench.dir=''": "must be a folder or null",
    "task=fiel": "unknown task 'fiel'; did you mean 'file'",
    "task.group=[code]": "task.group is not a key of task; did you mean 'groups'",
    "task.file=x.jsonl": "has no effect with task=own; write task=file",
    "drafter=ngarm": "did you mean 'ngram'",
    "hydra.run.dir=x": "hydra",
    "grid.hydra.run.dir=[x]": "hydra",
    "grid.drafter.name=[ngram]": "choose a drafter by 'drafter=...'",
    "+grid.drafter=[ngram]": "write 'key=value'",
    "grid.drafter": "it must be 'key=value'",
}


@pytest.mark.parametrize("word, message", WRONG.items())
def test_a_wrong_word_is_refused_with_what_is_possible(word: str, message: str) -> None:
    assert message in refusal(word)


TOGETHER = {
    ("policy.gamma=3", "grid.policy.gamma=[1]"): "fixed by 'policy.gamma=3' and varied by grid",
    ("grid.seed=[1]", "zip.seed=[1]"): "seed is both in grid and in zip",
    ("grid.seed=[1]", "grid.seed=[2]"): "seed is twice in grid",
    ("zip.drafter=[ngram]", "zip.seed=[1,2]"): "zip.drafter has 1, zip.seed has 2",
    ("zip.drafter=[ngram,bigram,ngram]", "zip.seed=[1,1,1]"): "hold drafter='ngram', seed=1 twice",
    ("exclude=[{seed: 1}]", "exclude=[{seed: 2}]"): "exclude= is given twice",
    ("grid.seed=[1,2]", "exclude=[{seed: [1,2]}]"): "exclude leaves no cell",
    ("grid.seed=[1,2]", "exclude=[{sed: 1}]"): "did you mean 'seed'? axes: seed",
    ("grid.verifier=[greedy]", "sampling.temperature=1"): "the cell verifier=greedy is not possible",
    ("bench.dir=a", "bench.resume=b"): "drop one",
    ("grid.sampling=[standard,creative]", "grid.sampling.temperature=[0.8]",
     "grid.sampling.top_p=[0.95]"): "are the same setting; leave one out",
}  # fmt: skip


@pytest.mark.parametrize("words, message", TOGETHER.items(), ids=str)
def test_words_that_cannot_be_together(words: tuple[str, ...], message: str) -> None:
    assert message in refusal(*words)


def test_a_grid_that_is_too_large_is_refused_before_it_is_made() -> None:
    many = f"[{','.join(map(str, range(101)))}]"
    text = refusal(f"grid.seed={many}", f"grid.policy.gamma={many}")
    assert text == "the grid has 10201 cells; at most 10000 are possible."


HOSTILE = [
    "grid.drafter=['${oc.env:FOREDRAFT_TEST_SECRET}']",
    "grid.drafter=[${oc.env:FOREDRAFT_TEST_SECRET}]",
    "zip.stop=[['x ${oc.env:FOREDRAFT_TEST_SECRET}']]",
    "grid.seed=['${seed}']",
    "grid.drafter=[{_target_: os.system}]",
    "grid.drafter._target_=[os.system]",
    "exclude=[{drafter: '${oc.env:FOREDRAFT_TEST_SECRET}'}]",
    "exclude=[{_target_: os.system}]",
    "bench={_target_: os.system}",
    "bench.dir='${oc.env:FOREDRAFT_TEST_SECRET}'",
    "task.file='${oc.env:FOREDRAFT_TEST_SECRET}'",
    "task=../../etc/passwd",
    "task._target_=os.system",
    "grid.drafter=['../evil']",
    "grid.drafter=['os.system']",
]


@pytest.mark.parametrize("word", HOSTILE)
def test_hostile_words_are_refused(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREDRAFT_TEST_SECRET", SECRET)
    assert SECRET not in refusal(word)


# --- sweeps in files -----------------------------------------------------------------------------

SWEEP = """# @package _global_
defaults:
  - override /target: table
bench:
  repeats: 2
task:
  groups: [code, qa]
grid:
  drafter: [none, ngram]
  policy.gamma: [1, 3]
  sampling: {temperature: [0, 1]}
exclude:
  - {policy.gamma: 3, sampling.temperature: 1}
"""


def test_an_experiment_holds_a_sweep_and_words_replace_what_it_says(tmp_path: Path) -> None:
    written(tmp_path, "experiment/mine.yaml", SWEEP)
    sweep = read(["experiment=mine"], tmp_path)
    assert (sweep.options.repeats, sweep.task.groups) == (2, ["code", "qa"])
    assert [cell.id for cell in engines(sweep)] == [
        "drafter=ngram,policy.gamma=1,sampling.temperature=0",
        "drafter=ngram,policy.gamma=1,sampling.temperature=1",
        "drafter=ngram,policy.gamma=3,sampling.temperature=0",
    ]
    check_overrides(sweep, tmp_path)
    words = ["experiment=mine", "bench.repeats=5", "grid.policy.gamma=[2]", "exclude=[]"]
    changed = read(words, tmp_path)
    assert changed.options.repeats == 5
    assert [cell.choices["policy.gamma"] for cell in engines(changed)] == [2, 2]
    with pytest.raises(ConfigError, match="drafter is fixed by 'drafter=ngram' and varied by grid"):
        read(["experiment=mine", "drafter=ngram"], tmp_path)


def test_a_sweep_is_for_bench_alone(tmp_path: Path) -> None:
    written(tmp_path, "experiment/mine.yaml", SWEEP)
    refused = [["experiment=mine"], ["grid.seed=[1]"], ["task=own"], ["bench.repeats=2"]]
    for words in [*refused, ["zip.seed=[1]"], ["exclude=[{seed: 1}]"]]:
        with pytest.raises(ConfigError, match="is not a key; it belongs to foredraft bench"):
            compose(words, tmp_path)
    assert to_objects(compose([TABLE])).run.seed == 0


def test_an_experiment_can_choose_a_task_of_the_users_own(tmp_path: Path) -> None:
    written(tmp_path, "task/mine.yaml", "defaults: [own, _self_]\ngroups: [math]\n")
    chosen = "# @package _global_\ndefaults:\n  - override /task: mine\n"
    written(tmp_path, "experiment/mine.yaml", chosen)
    for words in (["task=mine"], ["experiment=mine"]):
        assert read([TABLE, *words], tmp_path).task.groups == ["math"]
    assert read([TABLE, "experiment=mine", "task=own"], tmp_path).task.groups == []


def test_experiments_can_be_an_axis_unless_they_are_sweeps(tmp_path: Path) -> None:
    written(tmp_path, "experiment/mine.yaml", SWEEP)
    sweep = read([TABLE, "grid.experiment=[null,copying]"], tmp_path)
    assert [cell.config["policy"]["gamma"] for cell in engines(sweep)] == [4, 8]
    assert [cell.id for cell in engines(sweep)] == ["experiment=null", "experiment=copying"]
    assert {cell.baseline for cell in engines(sweep)} == {"plain"}
    text = refusal("grid.experiment=[null,mine]", folder=tmp_path)
    assert "experiment=mine is a sweep itself" in text


BAD_FILES = {
    "grid: [1]": "grid=[1] is not possible; it holds 'KEY: [a, b]' lines",
    "grid: {drafter: ngram}": "grid.drafter=ngram is no list; write grid.drafter=[ngram]",
    "grid: {drafter: []}": "grid.drafter=[] is empty",
    "grid: {policy: {gamma: [1, 1]}}": "grid.policy.gamma lists 1 twice",
    "grid: {seed: [1]}\nzip: {seed: [1]}": "both in grid and in zip",
    "exclude: 3": "it lists what to leave out",
    "bench: {repeat: 3}": "did you mean 'repeats'",
    "bench: {repeats: '3'}": "bench.repeats='3' is not possible",
    "bench: 3": "bench=3 is not possible; it must be a group of keys",
    "bench: {dir: /tmp/x}": "bench.dir='/tmp/x' is set by a config file; only an override",
    "bench: {resume: /tmp/x}": "only an override may set it",
    "task: {source: file, file: /etc/passwd}": "only an override may set it",
    "grid: {target.trust_remote_code: [true]}": "only an override may set it",
    "grid: {grammar: [/etc/passwd.json]}": "only an override may set it",
    "grid: {drafter.drafters: [[{name: causal_lm, trust_remote_code: true}]]}": "only an override",
    "grid: {out: [/tmp/x]}": "is set by a config file",
    "grid: {drafter: [{_target_: os.system}]}": "which code to call",
    "grid: {drafter: ['${oc.env:FOREDRAFT_TEST_SECRET}']}": "other.key",
    "grid: {hydra.run.dir: [x]}": "hydra",
    "zip: {drafter._target_: [x]}": "which code to call",
    "exclude: [{_target_: x}]": "which code to call",
    "samples: 3": "bench.repeats=N runs every prompt N times",
}


@pytest.mark.parametrize("text, message", BAD_FILES.items())
def test_files_are_checked_like_words(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREDRAFT_TEST_SECRET", SECRET)
    written(tmp_path, "experiment/mine.yaml", f"# @package _global_\n{text}\n")
    refused = refusal("experiment=mine", folder=tmp_path)
    assert message in refused and SECRET not in refused


def test_a_task_of_a_file_cannot_name_what_is_read(tmp_path: Path) -> None:
    written(tmp_path, "task/mine.yaml", "defaults: [file, _self_]\nfile: /etc/passwd\n")
    assert "only an override may set it" in refusal("task=mine", folder=tmp_path)


# --- what runs when ------------------------------------------------------------------------------


def prompts(**groups: int) -> list[BenchPrompt]:
    names = [name for name, count in groups.items() for _ in range(count)]
    return [BenchPrompt(i, i, name, "prompt", "x") for i, name in enumerate(names)]


def cells(*sizes: int) -> list[Cell]:
    return [
        Cell(f"c{i}", {}, [], {"runtime": {"batch_size": size}}, "engine", "", True)
        for i, size in enumerate(sizes)
    ]


def test_units_hold_one_group_each_and_groups_take_turns() -> None:
    found = plan.units(prompts(a=3, b=5), 2)
    assert [(u.index, u.group, u.prompts) for u in found] == [
        (0, "a", (0, 1)), (1, "b", (3, 4)), (2, "a", (2,)), (3, "b", (5, 6)), (4, "b", (7,)),
    ]  # fmt: skip
    assert [unit.prompts for unit in plan.units(prompts(a=3), 1)] == [(0,), (1,), (2,)]
    assert plan.units([], 2) == []


def test_cells_of_another_batch_size_have_units_of_their_own() -> None:
    found = plan.units_for(prompts(a=4), cells(1, 4, 1))
    assert [(u.index, u.prompts, u.batch_size) for u in found] == [
        (0, (0,), 1), (1, (1,), 1), (2, (2,), 1), (3, (3,), 1), (4, (0, 1, 2, 3), 4),
    ]  # fmt: skip
    runs = plan.order(cells(1, 4, 1), found, BenchOptions(repeats=2))
    assert Counter(run.cell for run in runs) == {"c0": 8, "c1": 2, "c2": 8}
    assert all((run.unit == 4) == (run.cell == "c1") for run in runs)


def test_every_run_is_planned_once_and_a_cut_treats_cells_alike() -> None:
    some, units = cells(1, 1, 1, 1, 1), plan.units(prompts(a=4, b=4), 1)
    runs = plan.order(some, units, BenchOptions(repeats=3))
    assert [run.order for run in runs] == list(range(5 * 8 * 3))
    assert len({(run.cell, run.unit, run.repeat) for run in runs}) == len(runs)
    for cut in range(0, len(runs) + 1, 5):
        counts = Counter(run.cell for run in runs[:cut])
        assert len(set(counts.values())) <= 1
    assert [run.repeat for run in runs] == sorted(run.repeat for run in runs)
    assert {run.unit for run in runs[:10]} == {0, 1}  # one of each group comes first


def test_the_order_is_shuffled_by_the_seed_and_nothing_else() -> None:
    some, units = cells(*[1] * 6), plan.units(prompts(a=6), 1)
    first = plan.order(some, units, BenchOptions(repeats=4))
    assert first == plan.order(some, units, BenchOptions(repeats=4))
    assert first != plan.order(some, units, BenchOptions(repeats=4, seed=1))
    # A longer sweep begins as the shorter one.
    assert plan.order(some, units, BenchOptions(repeats=9))[: len(first)] == first
    orders = {tuple(r.cell for r in first[i : i + 6]) for i in range(0, len(first), 6)}
    assert len(orders) > 15
    # Each cell comes first, second and so on about equally often.
    long = plan.order(some, units, BenchOptions(repeats=100))
    places = Counter((run.cell, run.order % 6) for run in long)
    assert len(places) == 36 and max(abs(count - 100) for count in places.values()) < 45


def test_huge_seeds_are_possible() -> None:
    assert plan.order(cells(1), plan.units(prompts(a=1), 1), BenchOptions(seed=(1 << 63) - 1))


def test_few_answers_are_taken_down_and_cells_take_turns_in_the_groups() -> None:
    units = plan.units_for(prompts(a=4, b=4), cells(1, 4))
    few = plan.looked_at(cells(1, 1, 1, 1), units, repeats=1)
    assert few == {"c0": [0], "c1": [4], "c2": [4], "c3": [0]}
    many = plan.looked_at(cells(1, 4), units, repeats=25)  # 200 runs, and 50
    assert many == {"c0": [0, 4], "c1": [4]}
