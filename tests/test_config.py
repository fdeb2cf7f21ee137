"""Configs: composed from names and values, read once into typed objects, swept, built."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from enum import Enum
from importlib import resources
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from foredraft.framework.bench.grid import read
from foredraft.framework.config import as_dict, compose, expand_sweep, part, to_objects
from foredraft.framework.config.build import build
from foredraft.framework.config.overrides import parse
from foredraft.framework.errors import ConfigError, PluginFault
from foredraft.framework.params import SamplingParams
from foredraft.framework.plugins import hookimpl, register, registry
from foredraft.framework.plugins.registry import CHOSEN
from foredraft.framework.specs import DrafterSpec, PolicySpec, TargetSpec, VerifierSpec

CONF = Path(str(resources.files("foredraft.conf")))
SHIPPED = sorted(p.relative_to(CONF).with_suffix("") for p in CONF.rglob("*.yaml"))


class Mode(Enum):
    FAST = 1
    SLOW = 2


@dataclass(frozen=True)
class Inner:
    width: int = 2


@dataclass(frozen=True)
class AllConfig:
    """Frozen, and one field of every type that a config may hold."""

    count: int = 1
    threshold: float = 0.5
    word: str = "a"
    flag: bool = False
    maybe: int | None = None
    mode: Mode = Mode.FAST
    path: Path = Path("x")
    items: list[int] = field(default_factory=list)
    pair: tuple[int, ...] = (1, 2)
    table: dict[str, float] = field(default_factory=dict)
    numbered: dict[int, float] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)
    anything: Any = None

    def __post_init__(self) -> None:
        if self.count > 100:
            raise ValueError("count is\ntoo large")


@dataclass
class Nothing:
    pass


def made_of(kind: str) -> Any:
    """A factory that gives an empty object of the right class."""

    def factory(config: Any, target: Any = None) -> Any:
        from foredraft.framework import interfaces

        base = getattr(interfaces, kind)
        names = dict.fromkeys(base.__abstractmethods__, lambda self: None)
        made = type("Made", (base,), names)()
        made.config, made.given = config, target
        return made

    return factory


def failing(config: Any, target: Any = None) -> Any:
    raise OSError("no such\nmodel")


@hookimpl
def foredraft_drafters() -> list[DrafterSpec]:
    return [
        DrafterSpec("every", made_of("Drafter"), AllConfig, contract=1),
        DrafterSpec("failing", failing, Nothing, contract=1),
        DrafterSpec("wrong", lambda config, target: 3, Nothing, contract=1),
    ]


@hookimpl
def foredraft_targets() -> list[TargetSpec]:
    return [TargetSpec("fake", made_of("Target"), Nothing, contract=1)]


@hookimpl
def foredraft_verifiers() -> list[VerifierSpec]:
    return [VerifierSpec("exact", made_of("Verifier"), Nothing, greedy_only=True, contract=1)]


@hookimpl
def foredraft_policies() -> list[PolicySpec]:
    return [PolicySpec("own", made_of("GammaPolicy"), Nothing, contract=1)]


@pytest.fixture(autouse=True)
def fakes(only_builtins: None) -> None:
    hooks = (foredraft_drafters, foredraft_targets, foredraft_verifiers, foredraft_policies)
    register(SimpleNamespace(**{hook.__name__: hook for hook in hooks}), "fakes")


def refusal(*overrides: str, folder: Path | None = None) -> str:
    """The one sentence that refuses these overrides."""
    with pytest.raises(ConfigError) as caught:
        compose(list(overrides), folder)
    text = str(caught.value)
    assert "\n" not in text and text.endswith(".") and "Traceback" not in text
    return text


# --- what ships ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [p for p in SHIPPED if len(p.parts) > 1], ids=str)
def test_every_shipped_yaml_composes(name: Path) -> None:
    group, option = name.parts[0], "/".join(name.parts[1:])
    text = CONF.joinpath(f"{name}.yaml").read_text("utf-8")
    if "\ngrid:" in text:  # a whole sweep, which bench alone takes
        assert read([f"{group}={option}"]).axes
    else:
        assert to_objects(compose([f"{group}={option}"]))


def test_defaults_compose_without_a_word() -> None:
    parts = to_objects(compose())
    names = [getattr(parts, kind).spec.name for kind in CHOSEN]
    assert names == ["smollm2", "prompt_lookup", "token", "fixed"]
    assert (parts.run.max_new_tokens, parts.run.seed, parts.sampling.temperature) == (128, 0, 0.0)
    assert len(SHIPPED) >= 7


def test_every_registered_name_composes_to_its_own_class() -> None:
    """One of each kind at a time: what goes with what is looked at when an engine is built."""
    names = {kind: registry().names(kind) for kind in CHOSEN}
    names["target"].remove("causal_lm")  # has no default for its model
    for chosen in zip_longest(*names.values()):
        wanted = {kind: name for kind, name in zip(CHOSEN, chosen, strict=True) if name}
        parts = to_objects(compose([f"{kind}={name}" for kind, name in wanted.items()]))
        for kind, name in wanted.items():
            part_of = getattr(parts, kind)
            assert part_of.spec.name == name and type(part_of.config) is part_of.spec.config


def test_presets_differ_from_what_they_extend() -> None:
    assert to_objects(compose(["drafter=unigram"])).drafter.config.order == 1
    assert to_objects(compose(["drafter=bigram"])).drafter.config.order == 2
    assert to_objects(compose(["experiment=copying"])).policy.config.gamma == 8
    # An override beats the experiment that it comes with.
    assert to_objects(compose(["experiment=copying", "policy.gamma=2"])).policy.config.gamma == 2


def test_experiments_begin_with_the_command_that_runs_them() -> None:
    for path in (CONF / "experiment").glob("*.yaml"):
        package, command = path.read_text().splitlines()[:2]
        assert package == "# @package _global_"
        assert command.startswith("# foredraft ") and f"experiment={path.stem}" in command


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["-1", "1.9", "True", "'3'", '"3"', "null", "1000000", "x", "[1]"]
)
def test_impossible_lengths_name_the_key_and_the_value(value: str) -> None:
    """Nothing is rounded or converted on the way to a whole number."""
    text = refusal(f"policy.gamma={value}")
    shown = value.replace('"', "'") if value != "x" else "'x'"
    assert text.startswith(f"policy.gamma={shown} is not possible") and "whole number" in text


def test_gamma_zero_is_plain_decoding() -> None:
    assert to_objects(compose(["policy.gamma=0"])).policy.config.gamma == 0


def test_every_type_is_read_and_none_is_converted() -> None:
    overrides = [
        "drafter=every", "drafter.threshold=2", "drafter.word=b", "drafter.flag=true",
        "drafter.maybe=4", "drafter.mode=SLOW", "drafter.path=a/b", "drafter.items=[3,4]",
        "drafter.pair=[5]", "drafter.table={a:1}", "drafter.numbered={7:1}", "drafter.inner.width=9",
        "drafter.anything='3'",
    ]  # fmt: skip
    config = to_objects(compose(overrides)).drafter.config
    assert config == AllConfig(
        1,
        2.0,
        "b",
        True,
        4,
        Mode.SLOW,
        Path("a/b"),
        [3, 4],
        (5,),
        {"a": 1.0},
        {7: 1.0},
        Inner(9),
        "3",
    )
    assert type(config.threshold) is float and type(config.table["a"]) is float


WRONG = {
    "drafter.threshold='0.5'": "a number",
    "drafter.threshold=true": "a number",
    "drafter.word=3": r"text \(in quotes it would be text\)",
    "drafter.flag=1": "true or false",
    "drafter.flag='true'": "true or false",
    "drafter.maybe=x": "a whole number or null",
    "drafter.mode=MIDDLE": "one of FAST, SLOW",
    "drafter.items=[1,2.5]": "a list",
    "drafter.items=3": "a list",
    "drafter.table={a:b}": "a group of keys",
    "drafter.numbered={a:1}": "a group of keys",
    "drafter.numbered={1.0:1}": "a group of keys",
    "drafter.inner=3": "a group of keys",
    "drafter.inner.width=1.0": "a whole number",
    "drafter.count=101": "count is too large",
    "sampling.top_k=1.0": "a whole number",
    "runtime.batch_size=0": "a whole number from 1",
    "max_new_tokens=0": "a whole number from 1",
    "max_new_tokens='9'": "a whole number or null",
    "seed=-1": "a whole number from 0",
    "output=xml": "one of text, json",
    "stop=a": "a list",
    "stop=['']": "at least one character",
    "chat=null": "true or false",
}


def test_a_wrong_value_is_refused_with_what_is_possible() -> None:
    base = as_dict(compose(["drafter=every"]))
    for override, possible in WRONG.items():
        parsed = parse(override)
        changed = json.loads(json.dumps(base))
        *groups, key = parsed.key_or_group.split(".")
        node = changed
        for group in groups:
            node = node[group]
        node[key] = parsed.value()
        with pytest.raises(ConfigError, match=possible) as caught:
            to_objects(changed)
        assert parsed.key_or_group in str(caught.value) or "count" in override


@pytest.mark.parametrize("text, value", [("1e-4", 1e-4), ("inf", math.inf), ("2E3", 2000.0)])
def test_floats_are_floats_on_every_path(text: str, value: float, tmp_path: Path) -> None:
    """Override, file, sweep, and the saved config when it is read back."""
    (tmp_path / "experiment").mkdir()
    chosen = "# @package _global_\ndefaults:\n  - override /drafter: every\n"
    lines = f"{chosen}drafter:\n  threshold: {text}\n"
    (tmp_path / "experiment/mine.yaml").write_text(lines)
    (swept,) = expand_sweep(["drafter=every", f"drafter.threshold=choice({text})"])
    runs = [
        compose(["drafter=every", f"drafter.threshold={text}"]),
        compose(["experiment=mine"], tmp_path),
        compose(swept),
    ]
    for config in runs:
        saved = json.loads(json.dumps(as_dict(config)))
        for parts in (to_objects(config), to_objects(saved)):
            assert type(parts.drafter.config.threshold) is float
            assert parts.drafter.config.threshold == value


def test_saved_configs_round_trip_and_are_equal_when_they_mean_the_same() -> None:
    first = as_dict(compose(["drafter=every", "drafter.threshold=1", "drafter.mode=SLOW"]))
    second = as_dict(compose(["drafter=every", "drafter.threshold=1.0", "drafter.mode=SLOW"]))
    assert first == second == as_dict(json.loads(json.dumps(first)))
    assert to_objects(first).drafter.config.mode is Mode.SLOW


def controls(config: Any) -> dict[str, Any]:
    """What a config says of sampling, without the defaults."""
    found = dataclasses.asdict(to_objects(config).sampling)
    return {key: value for key, value in found.items() if value != DEFAULTS[key]}


DEFAULTS = dataclasses.asdict(SamplingParams())
CONTROLS = {
    "typical_p=.5": 0.5, "repetition_penalty=1.3": 1.3, "presence_penalty=-2": -2.0,
    "frequency_penalty=1e-3": 1e-3, "min_new_tokens=4": 4, "draft=none": "none",
    "logit_bias={5: 2.0}": {5: 2.0}, "logit_bias={5:-3,17:-inf}": {5: -3.0, 17: -math.inf},
    "bad_words=[[1,2],[3]]": [[1, 2], [3]],
}  # fmt: skip


@pytest.mark.parametrize("override, value", CONTROLS.items())
def test_every_control_is_read_from_an_override(override: str, value: object) -> None:
    """And comes back from the saved config, whose keys are text."""
    config = compose([f"sampling.{override}"])
    wanted = {override.partition("=")[0]: value}
    assert controls(config) == wanted == controls(json.loads(json.dumps(as_dict(config))))


@pytest.mark.parametrize("override", CONTROLS)
def test_a_sweep_keeps_every_control(override: str) -> None:
    key, _, value = override.partition("=")
    ((first,), _) = expand_sweep([f"sampling.{key}={value},null"])
    assert controls(compose([first])) == {key: CONTROLS[override]}


def test_biases_and_bad_words_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "sampling").mkdir()
    lines = 'logit_bias:\n  5: 2\n  "6": -.inf\nbad_words:\n  - [1, 2]\n  - [3]\n'
    (tmp_path / "sampling/mine.yaml").write_text(f"defaults: [standard, _self_]\n{lines}")
    found = {"logit_bias": {5: 2.0, 6: -math.inf}, "bad_words": [[1, 2], [3]]}
    assert controls(compose(["sampling=mine"], tmp_path)) == found
    more = compose(
        ["sampling=mine", "sampling.logit_bias={7: 1}", "sampling.bad_words=[]"], tmp_path
    )
    assert controls(more) == {"logit_bias": {5: 2.0, 6: -math.inf, 7: 1.0}}


WRONG_CONTROLS = {
    "logit_bias=3": "a bias for each token id",
    "logit_bias={a: 1}": "a bias for each token id",
    "logit_bias={-5: 1}": "-5 is no token id",
    "logit_bias={5.0: 1}": "a bias for each token id",
    "logit_bias={true: 1}": "a bias for each token id",
    "logit_bias={5: x}": "a bias for each token id",
    "logit_bias={5: nan}": "a number or -inf",
    "logit_bias={5: inf}": "a number or -inf",
    "logit_bias=[5]": "cannot be composed",
    "logit_bias=null": "a bias for each token id",
    "bad_words=hello": "each a list of token ids (text is not possible)",
    "bad_words=[hello]": "each a list of token ids (text is not possible)",
    "bad_words=[1,2]": "each a list of token ids",
    "bad_words=[[1.0]]": "each a list of token ids",
    "bad_words=[[-1]]": "each a list of token ids",
    "bad_words=[[]]": "at least one token id",
    "min_new_tokens=1.0": "a whole number",
    "typical_p=0": "a number above 0 and up to 1",
    "repetition_penalty=0": "a number above 0",
    "presence_penalty=inf": "a number, 0 for off",
    "frequency_penalty=true": "a number",
    f"frequency_penalty=1{'0' * 400}": "a number",
    "draft=ful": "did you mean 'full'",
    "draft=3": "one of full, temperature, none",
}


@pytest.mark.parametrize("override, message", WRONG_CONTROLS.items())
def test_a_wrong_control_is_refused(override: str, message: str) -> None:
    text = refusal(f"sampling.{override}")
    assert message in text and f"sampling.{override.partition('=')[0]}" in text


def test_references_to_other_keys_are_typed_too() -> None:
    assert to_objects(compose(["seed=7", "policy.gamma=${seed}"])).policy.config.gamma == 7
    assert "policy.gamma=null" in refusal("seed=null", "policy.gamma=${seed}")
    assert "'sed' not found" in refusal("policy.gamma=${sed}")
    assert "cannot be composed" in refusal("seed=${seed}")


# --- names ---------------------------------------------------------------------------------------

MISSPELT = {
    "max_new_token=3": "max_new_token is not a key; did you mean 'max_new_tokens'",
    "polcy.gamma=2": "polcy is not a key; did you mean 'policy'",
    "drafter.max_ngarm=3": "not a key of drafter 'prompt_lookup'; did you mean 'max_ngram'",
    "sampling.temprature=1": "not a key of sampling; did you mean 'temperature'",
    "drafter.order=3": "it is one of drafter 'ngram'",
    "drafter=ngarm": "unknown drafter 'ngarm'; did you mean 'ngram'",
    "sampling=creatve": "unknown sampling 'creatve'; did you mean 'creative'",
    "experiment=coping": "unknown experiment 'coping'; did you mean 'copying'",
    "drafter=null": "unknown drafter 'null'",
    "drafter=[ngram,none]": "unknown drafter",
    "drafter=3": "unknown drafter '3'",
    "drafter.name=ngram": "choose a drafter by 'drafter=...'",
    "policy.gamma=1,2": "add -m to run each",
    "+seed=3": "write 'key=value'",
    "~policy": "write 'key=value'",
    "drafter@other=ngram": "write 'key=value'",
    "gamma": "it must be 'key=value'",
    "stop=[it's]": "with quotes",
    "seed.x=3": "seed={'x': 3} is not possible; it must be a whole number",
}


@pytest.mark.parametrize("override, message", MISSPELT.items())
def test_a_misspelt_name_is_refused_with_what_was_meant(override: str, message: str) -> None:
    assert message in refusal(override)


def test_a_folder_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "experiment/sub").mkdir(parents=True)
    (tmp_path / "drafter").mkdir()
    (tmp_path / "local").mkdir()
    (tmp_path / "drafter/mine.yaml").write_text("defaults: [ngram, _self_]\norder: 4\n")
    (tmp_path / "local/default.yaml").write_text("# @package _global_\nseed: 5\n")
    lines = "# @package _global_\ndefaults:\n  - override /drafter: mine\nmax_new_tokens: 9\n"
    (tmp_path / "experiment/sub/mine.yaml").write_text(lines)
    parts = to_objects(compose(["experiment=sub/mine"], tmp_path))
    assert parts.drafter.config.order == 4
    assert (parts.run.max_new_tokens, parts.run.seed) == (9, 5)
    assert expand_sweep(["drafter=glob(mi*)"], tmp_path) == [["drafter=mine"]]


BAD_FILES = {
    "order: '3'": "drafter.order='3' is not possible; it must be a whole number",
    "order: 1.9": "drafter.order=1.9",
    "order: true": "drafter.order=True",
    "order:": "drafter.order=null",
    "ordr: 2": "drafter.ordr is not a key of drafter 'ngram'; did you mean 'order'",
    "defaults: [ngarm]": "Could not load 'drafter/ngarm'; did you mean 'ngram'",
    "a: b: c": "not a readable YAML file",
    "- 3": "must hold 'key: value' lines",
}


@pytest.mark.parametrize("line, message", BAD_FILES.items())
def test_files_are_checked_like_overrides(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "drafter").mkdir()
    head = "" if line.startswith(("defaults", "- ")) else "defaults: [ngram, _self_]\n"
    (tmp_path / "drafter/mine.yaml").write_text(f"{head}{line}\n")
    assert message in refusal("drafter=mine", folder=tmp_path)


def test_a_file_cannot_have_the_name_of_a_config_that_exists(tmp_path: Path) -> None:
    (tmp_path / "drafter").mkdir()
    for name in ("drafter/ngram.yaml", "drafter/bigram.yaml", "config.yaml"):
        (tmp_path / name).write_text("order: 2\n")
        assert "has the name of a config that exists already" in refusal(folder=tmp_path)
        (tmp_path / name).unlink()
    assert "is not a folder" in refusal(folder=tmp_path / "absent")


# --- sweeps --------------------------------------------------------------------------------------


def test_sweeps_are_products_in_order() -> None:
    runs = expand_sweep(["drafter=none,ngram", "seed=range(0,2)", "policy.gamma=4"])
    assert runs == [
        [f"drafter={d}", f"seed={s}", "policy.gamma=4"] for d in ("none", "ngram") for s in (0, 1)
    ]
    assert expand_sweep(["seed=3"]) == [["seed=3"]] and expand_sweep([]) == [[]]


def test_sweeps_keep_the_type_of_each_value() -> None:
    assert expand_sweep(["policy.gamma=choice('3',4)"]) == [
        ["policy.gamma='3'"],
        ["policy.gamma=4"],
    ]
    assert expand_sweep(["stop=[a],['b,c']"]) == [["stop=[a]"], ["stop=['b,c']"]]
    assert expand_sweep(["seed=1,null"]) == [["seed=1"], ["seed=null"]]


def test_a_key_of_one_swept_option_says_how_for_the_other() -> None:
    """Numbers of the wrong kind."""
    first, second = expand_sweep(["drafter=ngram,prompt_lookup", "drafter.order=2"])
    assert to_objects(compose(first)).drafter.config.order == 2
    assert "it is one of drafter 'ngram'" in refusal(*second)


@pytest.mark.parametrize(
    "override, message",
    [
        ("seed=interval(0,1)", "no end of values"),
        ("seed=range(0,1000000000)", "more than 10000 values"),
        ("drafter=glob(q*z)", "matches nothing; known: "),
        ("seed=glob(*)", "glob() is for target"),
        ("hydra/launcher=a,b", "hydra"),
    ],
)
def test_sweeps_that_cannot_be(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        expand_sweep([override])
    assert message in str(caught.value)


def test_a_product_that_is_too_large() -> None:
    with pytest.raises(ConfigError, match="more than 10000 runs"):
        expand_sweep(["seed=range(0,200)", "max_new_tokens=range(1,200)"])


# --- nested parts, building ----------------------------------------------------------------------


def test_a_nested_part_goes_through_the_same_checks() -> None:
    nested = part("drafter", {"name": "ngram", "order": 2}, "drafter.parts.0")
    assert nested.config.order == 2
    with pytest.raises(ConfigError, match="drafter.parts.0.order='2' is not possible"):
        part("drafter", {"name": "ngram", "order": "2"}, "drafter.parts.0")
    with pytest.raises(ConfigError, match="unknown drafter 'os.system'"):
        part("drafter", {"name": "os.system"})
    with pytest.raises(ConfigError, match="names no drafter"):
        part("drafter", {"order": 2})


FAKES = ["target=fake", "drafter=every", "verifier=exact", "policy=own"]


def test_build_hands_each_factory_its_own_config() -> None:
    built: Any = build(compose([*FAKES, "drafter.count=3"]))
    assert built.drafter.config == AllConfig(count=3)
    assert built.drafter.given is built.target
    assert built.sampling.greedy and built.parts.run.seed == 0
    again: Any = build(compose(FAKES), target=built.target)
    assert again.target is built.target and again.drafter.given is built.target


def test_a_greedy_only_verifier_with_a_temperature_is_refused() -> None:
    with pytest.raises(ConfigError, match="temperature=0 and it is 0.7; use .*verifier=token"):
        build(compose([*FAKES, "sampling.temperature=0.7"]))


def test_a_sampling_range_is_checked_before_anything_is_built() -> None:
    with pytest.raises(ConfigError, match="sampling.top_p=2.0 is not possible"):
        build(compose(["target=fake", "drafter=failing", "sampling.top_p=2"]))


def test_a_factory_that_fails_names_its_plugin() -> None:
    with pytest.raises(PluginFault, match="'failing' of fakes .* OSError: no such model"):
        build(compose(["target=fake", "drafter=failing"]))
    with pytest.raises(PluginFault, match="'wrong' of fakes .* gave a int; it must give a Drafter"):
        build(compose(["target=fake", "drafter=wrong"]))


# --- guests in somebody else's Hydra -------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_the_hydra_of_a_notebook_is_left_as_it_was(tmp_path: Path) -> None:
    import hydra

    (tmp_path / "theirs.yaml").write_text("x: 1\n")
    ConfigStore.instance().store("theirs", {"drafter": "own"}, "drafter")
    with hydra.initialize_config_dir(str(tmp_path)):  # their own choice of version_base: none
        base = hydra.version.getbase()
        running, repo = GlobalHydra.instance().hydra, ConfigStore.instance().repo
        assert "theirs" not in refusal("drafter=x")
        compose(["drafter=ngram"])
        assert GlobalHydra.instance().hydra is running
        assert ConfigStore.instance().repo is repo and "ngram.yaml" not in repo["drafter"]
        assert hydra.compose("theirs") == {"x": 1}
        assert hydra.version.getbase() is base
    del ConfigStore.instance().repo["drafter"]
    assert not GlobalHydra.instance().is_initialized()


def test_what_compose_gives_is_an_ordinary_config() -> None:
    config = compose(["drafter=ngram"])
    assert OmegaConf.is_config(config) and "hydra" not in config
    assert config.drafter.name == "ngram"
