"""The documentation says what the code does: links, signatures, tables of keys, and every example run."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from cli_helpers import Cli, make_cli

from foredraft.framework import plugins
from foredraft.framework.bench.grid import read
from foredraft.framework.cli.arguments import parse
from foredraft.framework.cli.generate import plan
from foredraft.framework.cli.generate_help import _default
from foredraft.framework.cli.main import COMMANDS
from foredraft.framework.config import RunConfig, RuntimeConfig, SamplingParams
from foredraft.framework.fetch import FOLDER, cache_folder, is_whole
from foredraft.framework.plugins import Hooks
from foredraft.framework.plugins.registry import CHOSEN, KINDS, Offer, Registry
from foredraft.framework.testing.kit import checks_of
from foredraft.framework.testing.tiny_tokenizer import save_tiny
from foredraft.framework.training.objectives import LOSSES
from foredraft.framework.training.options import TrainOptions

ROOT = Path(__file__).parent.parent
README, DOCS = ROOT / "README.md", ROOT / "docs"
if not README.exists():  # the installed wheel is tested from a folder that holds tests only
    pytest.skip("the documentation is not here", allow_module_level=True)
PAGES = [README, *sorted(DOCS.glob("*.md"))]
TUTORIAL = DOCS / "write-a-drafter.md"
MODEL_DRAFTERS = (
    "drafter=quantized", "drafter=early_exit", "drafter=smollm2", "experiment=self_draft", "experiment=ablation"
)  # fmt: skip


def builtin_registry() -> Registry:
    """What ships, whatever else is installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOREDRAFT_PLUGINS", "")
        plugins.reset()
        found = plugins.registry()
    plugins.reset()
    return found


BUILTIN = builtin_registry()


pytestmark = pytest.mark.usefixtures("only_builtins")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return make_cli(capsys)


def need_model() -> None:
    if not is_whole(cache_folder() / FOLDER):
        pytest.skip("the model has not been fetched")


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of a page in these languages."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [text for language, text in found if language in languages]


def commands(page: Path) -> list[str]:
    """Every `foredraft ...` line of a page's shell blocks."""
    lines = [line for text in blocks(page, "console", "sh") for line in text.splitlines()]
    bare = [line.removeprefix("$ ") for line in lines]
    return [line for line in bare if line.startswith("foredraft ")]


def sections(page: Path) -> dict[str, str]:
    """The text under each heading, by the heading without its marks."""
    parts = re.split(r"^#+ +(.*)$", page.read_text("utf-8"), flags=re.MULTILINE)
    return {parts[i].replace("`", ""): parts[i + 1] for i in range(1, len(parts), 2)}


def rows(text: str) -> list[list[str]]:
    """The cells of every table line."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


# --- links -------------------------------------------------------------------------------------


def anchor(heading: str) -> str:
    """A heading's anchor as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return kept.replace(" ", "-")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        path, _, fragment = link.partition("#")
        other = (page.parent / path).resolve() if path else page
        assert other.exists(), f"{page.name}: {link}"
        assert other.is_relative_to(ROOT.resolve()), f"{page.name}: {link} leaves the repository"
        if fragment:
            assert fragment in map(anchor, sections(other)), f"{page.name}: {link}"


def test_every_page_is_linked_from_the_readme() -> None:
    text = README.read_text("utf-8")
    assert [page.name for page in PAGES[1:] if f"(docs/{page.name}" not in text] == []


def test_every_source_file_has_its_place_in_the_structure() -> None:
    text = (DOCS / "structure.md").read_text("utf-8")
    for path in sorted((ROOT / "framework").glob("*.py")):
        name = f"framework/{path.name}"
        assert name in text or path.name.startswith(("__", "config_")), name
    for name in re.findall(r"`((?:framework|drafters|verifiers|conf)/[\w/.]+)`", text):
        assert (ROOT / name).exists(), name


def test_what_the_round_names_is_in_the_code() -> None:
    files = [path.read_text("utf-8") for path in (ROOT / "framework").glob("*.py")]
    steps = sections(DOCS / "structure.md")["One round"]
    for name in re.findall(r"`(_?[a-zA-Z]+(?:\.\w+)?)`", steps):
        for part in name.split("."):
            defined = rf"(?:def |class |self\.){part}\b"
            found = any(re.search(defined, text) for text in files)
            assert found or (ROOT / f"framework/{part}.py").exists(), name


# --- hooks -------------------------------------------------------------------------------------


def signature(name: str) -> str:
    found = inspect.signature(getattr(Hooks, name))
    arguments = ", ".join(str(p) for key, p in found.parameters.items() if key != "self")
    return f"{name}({arguments}) -> {found.return_annotation}"


def test_every_hook_has_a_heading_with_its_signature() -> None:
    names = [name for name in vars(Hooks) if name.startswith("foredraft_")]
    headings = [h for h in sections(DOCS / "hooks.md") if h.startswith("foredraft_")]
    assert headings == [signature(name) for name in names] and names


@pytest.mark.parametrize("heading", [h for h in sections(DOCS / "hooks.md") if "_" in h])
def test_every_example_of_a_hook_is_a_plugin(heading: str) -> None:
    name = heading.partition("(")[0]
    (example,) = re.findall(r"```python\n(.*?)```", sections(DOCS / "hooks.md")[heading], re.DOTALL)
    module = ModuleType("example")
    sys.modules["example"] = module  # a dataclass looks its module up
    try:
        exec(example, vars(module))
        if name == "foredraft_config_packages":
            assert module.foredraft_config_packages() == ["pkg://echo_draft.conf"]
            return
        before = len(plugins.registry().offers())
        plugins.register(module, "example")
        assert len(plugins.registry().offers()) == before + 1
    finally:
        del sys.modules["example"]


# --- tables ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_part_has_a_row_in_the_readme(kind: str) -> None:
    """And no row is of a part that there is not."""
    offers = {offer.name: offer for offer in BUILTIN.offers(kind)}
    tables = re.findall(r"(?:^\|.*\n)+", README.read_text("utf-8"), re.MULTILINE)
    (table,) = [rows(table) for table in tables if table.startswith(f"| {kind} |")]
    listed = {row[0].strip("`"): row for row in table[2:]}
    assert listed.keys() == offers.keys()
    for name, row in listed.items():
        assert kind != "verifier" or row[-1] == ("yes" if offers[name].lossless else "no")
        if kind == "drafter":
            law = "none" if name == "none" else "dense"
            deterministic = getattr(offers[name].spec, "deterministic", False) and name != "none"
            assert row[3] == ("point mass" if deterministic else law)


def keys_of(schema: type, prefix: str) -> list[list[str]]:
    fields = dataclasses.fields(schema)
    return [[f"`{prefix}{field.name}`", f"`{_default(field)}`"] for field in fields]


@pytest.mark.parametrize("offer", BUILTIN.offers(), ids=lambda o: f"{o.kind}={o.name}")
def test_every_key_is_listed_with_its_default(offer: Offer) -> None:
    heading, prefix = f"{offer.kind}={offer.name}", f"{offer.kind}."
    if offer.kind == "observer":
        heading, prefix = f"observers=[{offer.name}]", f"observer.{offer.name}."
    text = sections(DOCS / "config.md")[heading]
    assert [row[:2] for row in rows(text)[2:]] == keys_of(offer.spec.config, prefix)


@pytest.mark.parametrize(
    ("heading", "schema", "prefix"),
    [
        ("sampling", SamplingParams, "sampling."),
        ("runtime", RuntimeConfig, "runtime."),
        ("Keys at the top", RunConfig, ""),
    ],
)
def test_every_other_key_is_listed_too(heading: str, schema: type, prefix: str) -> None:
    text = sections(DOCS / "config.md")[heading]
    assert [row[:2] for row in rows(text)[2:]] == keys_of(schema, prefix)


def test_every_key_and_loss_of_a_training_is_listed() -> None:
    text = sections(DOCS / "train.md")
    assert [row[:2] for row in rows(text["Keys"])[2:]] == keys_of(TrainOptions, "train.")
    losses = rows(text["What is minimised"])[2:]
    assert {row[0].strip("`") for row in losses} == set(LOSSES)


def test_groups_presets_and_experiments_are_listed() -> None:
    listed = {row[0].strip("`"): row for row in rows(sections(DOCS / "config.md")["Groups"])[2:]}
    presets = sections(DOCS / "config.md")["Presets and experiments"]
    for kind in CHOSEN:
        assert set(BUILTIN.names(kind)) <= set(re.findall(r"`(\w+)`", listed[kind][2]))
    for path in (ROOT / "conf").glob("*/*.yaml"):
        if path.parent.name == "experiment":
            assert f"`{path.stem}`" in listed["experiment"][2], path
        elif path.parent.name != "local":
            assert re.search(rf"`(\w+=)?{path.stem}`", presets), path
    chosen = re.findall(r"^  - (\w+): (\w+)", (ROOT / "conf/config.yaml").read_text(), re.MULTILINE)
    for group, name in chosen:
        if name != "null":
            assert listed[group][3] == f"`{name}`"


def test_the_copied_experiment_is_the_shipped_one() -> None:
    (shown,) = [text for text in blocks(DOCS / "config.md", "yaml") if "copying" in text]
    shipped = (ROOT / "conf/experiment/copying.yaml").read_text()
    strip = [
        line for line in shipped.splitlines() if not line.startswith(("# foredraft", "# A", "#\n"))
    ]
    assert shown.splitlines()[1:] == [line for line in strip if line != "#"]


def test_every_environment_variable_is_listed() -> None:
    sources = [path for name in ("framework", "drafters") for path in (ROOT / name).rglob("*.py")]
    found = {
        n for p in sources for n in re.findall(r"\bFOREDRAFT_[A-Z_0-9]+", p.read_text("utf-8"))
    }
    listed = sections(DOCS / "config.md")["Environment"]
    assert {name for name in found if f"`{name}`" not in listed} == set()


def test_every_metric_and_key_of_an_answer_is_defined(cli: Cli) -> None:
    scores = ("logprobs=raw", "prompt_logprobs=true")
    done = cli("generate", "target=table", "prompt=0 1", "max_new_tokens=4", "output=json", *scores)
    answer: dict[str, Any] = done.objects[0]
    text = (DOCS / "metrics.md").read_text("utf-8")
    for name in [*answer, *answer["metrics"], *answer["metrics"]["time"]]:
        assert f"`{name}`" in text, name


# --- commands ----------------------------------------------------------------------------------

EXAMPLES = [
    pytest.param(page, line, id=f"{page.stem}:{number}")
    for page in PAGES
    if page != TUTORIAL
    for number, line in enumerate(commands(page))
]


def unquoted(line: str) -> list[str]:
    return shlex.split(line)[1:]


# Files that other commands write, and what writes them on a table.
WRITTEN = {
    "counts.ngram": "fit target=table text=corpus.txt out=counts.ngram",
    "answers.jsonl": "generate -m target=table drafter=none,ngram max_new_tokens=8 out=answers.jsonl "
    "prompts=questions.jsonl",
    "traces.npz": "record target=table drafter=ngram max_new_tokens=24 out=traces.npz prompts=questions.jsonl",
    "times.json": "times target=table drafter=ngram out=times.json",
}
# Commands that load a target.
TARGETED = ("generate", "record", "score")
# A sweep of the model cut down to one cell.
ONE_CELL = (
    "grid.drafter=[quantized]", "grid.policy.gamma=[2]", "grid.sampling.temperature=[0]",
    "task.groups=[math]", "task.per_group=1", "bench.repeats=1",
)  # fmt: skip
# Folders of sweeps that other commands read.
SWEEPS = ("first", "second")
SHORT = (
    "target=table",
    "max_new_tokens=4",
    "bench.repeats=1",
    "task=file",
    "task.file=questions.jsonl",
)

# Drafters whose folders are trained, and what makes such a folder quickly.
TRAINED = {
    "drafter=medusa": ["train.shape.heads=2"],
    "drafter=eagle": ["train.shape.steps=2"],
    "drafter=eagle2": ["train.shape.steps=2"],
    "drafter=early_exit": ["train.shape.exits=[1,2]", "train.shape.rank=4"],
    "drafter=layer_skip": ["evaluations=2", "texts=4"],
}


def of_training(words: list[str]) -> bool:
    """Whether a command trains, or reads what was trained."""
    reads = words[0] == "fit" or any(word.startswith("drafter.path=") for word in words)
    return words[0] == "train" or (reads and any(word in TRAINED for word in words))


def on_a_tiny_model(words: list[str]) -> list[str]:
    """The same command on a model of four layers, and short."""
    save_tiny("tiny", context=512, layers=4, dtype=torch.float32)
    Path("tasks.jsonl").write_text("".join(f'{{"prompt": "say {i}"}}\n' for i in range(6)))
    kept = [word for word in words if not word.startswith(("target", "task"))]
    short = ["target=causal_lm", "target.model=tiny", "max_new_tokens=4"]
    if words[0] in ("train", "fit"):
        short += ["task=file", "task.file=tasks.jsonl"]
        short += ["train.steps=2"] if words[0] == "train" else []
    return [*kept, *short]


def train_first(words: list[str], cli: Cli) -> None:
    """What a command reads by ``drafter.path``."""
    drafter = next((word for word in words if word in TRAINED), "")
    for word in words:
        if word.startswith("drafter.path="):
            command = "fit" if drafter == "drafter=layer_skip" else "train"
            made = [
                command,
                drafter.rstrip("2"),
                f"out={word.partition('=')[2]}",
                *TRAINED[drafter],
            ]
            done = cli(*on_a_tiny_model(made))
            assert done.code == 0, done.err


# A race of one cell, and its prompts: half of them are held out.
RACE = "race"
ONE_RACER = ("drafter=prompt_lookup", "policy=heuristic")


def racing(words: list[str]) -> list[str]:
    """The words of a race, short and on a table."""
    lines = "".join(f'{{"prompt": "{i % 4} {i // 4} 1"}}\n' for i in range(12))
    Path("prompts.jsonl").write_text(lines)
    table = [word.replace("questions", "prompts") for word in SHORT]
    return [*words, *table, *(() if any("grid." in word for word in words) else ONE_RACER)]


def write_files(line: str, cli: Cli) -> None:
    """The files that a command reads."""
    if re.search(rf"(resume=| ){RACE}\b", line):
        assert cli("tune", *racing([f"tune.dir={RACE}"])).code == 0
    Path("questions.jsonl").write_text('{"prompt": "0 1 2"}\n')
    Path("corpus.txt").write_text("0 1 2")
    for name in SWEEPS:
        if re.search(rf"(resume=| ){name}\b", line):
            words = [
                "grid.drafter=[prompt_lookup,ngram]",
                "grid.policy.gamma=[1,3]",
                f"bench.dir={name}",
                *SHORT,
            ]
            assert cli("bench", *words).code == 0
    for name, command in WRITTEN.items():
        if f"={name}" in line and f"out={name}" not in line:
            assert cli(*unquoted(f"foredraft {command}")).code == 0


def on_a_table(words: list[str]) -> list[str]:
    """The same command on a target without a model, and short."""
    kept = [word for word in words if not word.startswith(("target", "prompt=", "max_new_tokens"))]
    if not any(word.startswith(("prompts=", "answers=")) for word in kept):
        kept.append("prompt=0 1 2")
    return [*kept, "target=table", "max_new_tokens=4"]


@pytest.mark.parametrize(("page", "line"), EXAMPLES)
def test_every_command_can_be_read(page: Path, line: str) -> None:
    name, *rest = unquoted(line)
    if name == "generate":
        arguments = parse(rest)
        assert arguments.help or plan(arguments)
    elif name == "demo":
        from foredraft.framework.cli.demo import _parser

        _parser().parse_args(rest)
    elif name == "bench" and not any("resume=" in word for word in rest):
        assert read(rest).cells
    else:
        assert name == "--plugin" or name in COMMANDS


@pytest.mark.parametrize(("page", "line"), EXAMPLES)
def test_every_command_runs_on_a_table(page: Path, line: str, cli: Cli) -> None:
    words = unquoted(line)
    of_a_model = any(word.startswith(MODEL_DRAFTERS) for word in words)
    if words[0] in ("demo", "fetch") or (of_a_model and not of_training(words)):
        pytest.skip("needs a model")
    write_files(line, cli)
    if "target=pycode" in words:  # it comes along
        done = cli(*words)
        assert done.code == 0, done.err
        return
    if of_training(words):
        train_first(words, cli)
        done = cli(*on_a_tiny_model(words))
        assert done.code == 0, done.err
        return
    if words[0] in ("fit", "times") and "policy=specdecpp" not in words:
        words = [word for word in words if not word.startswith("target")]
        words.append("target=table")
    if words[0] == "check" and not any(word.startswith("--") for word in words):
        words += ["--only", "light_import", "rollback"]  # test_kit_drafters.py runs them all
    if words[0] == "bench" and not any("resume=" in word for word in words):
        words += SHORT
    if words[0] == "tune" and not any("resume=" in word for word in words):
        words = racing(words)
    done = cli(*(on_a_table(words) if words[0] in TARGETED else words))
    assert done.code == 0, done.err


def on_the_model() -> list[Any]:
    """The first command, and those that no table can stand in for."""
    lines = {str(case.values[1]): case for case in EXAMPLES}
    first = next(line for line in lines if line.startswith("foredraft generate"))
    wanted = ("foredraft fetch", first, *MODEL_DRAFTERS)
    return [
        case
        for line, case in lines.items()
        if any(word in line for word in wanted) and not of_training(unquoted(line))
    ]


@pytest.mark.model
@pytest.mark.parametrize(("page", "line"), on_the_model())
def test_commands_that_need_the_model_run_on_it(page: Path, line: str, cli: Cli) -> None:
    need_model()
    words = [word for word in unquoted(line) if not word.startswith("target")]
    write_files(line, cli)
    if words[0] == "bench":
        words += ONE_CELL
    done = cli(
        *words, *(["max_new_tokens=3"] if words[0] in ("generate", "score", "bench") else [])
    )
    assert done.code == 0, done.err


def test_every_benchmark_is_listed_and_its_options_are_there() -> None:
    lines = [line for text in blocks(DOCS / "benchmarks.md", "sh") for line in text.splitlines()]
    folder, shown = ROOT / "benchmarks", set()
    for line in lines:
        _, script, *options = shlex.split(line)
        source = (ROOT / script).read_text("utf-8")
        words = [word for word in options if word.startswith("--") or word == options[0]]
        assert [word for word in words if f'"{word}"' not in source] == [], line
        shown.add(ROOT / script)
    assert shown == {path for path in folder.glob("*.py") if path.name != "common.py"}


# --- Python ------------------------------------------------------------------------------------


def run_block(source: str) -> None:
    module = ModuleType("example")
    sys.modules["example"] = module
    try:
        exec(compile(source, "example", "exec"), vars(module))
    finally:
        del sys.modules["example"]


@pytest.mark.model
def test_the_first_example_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    need_model()
    source, expected = blocks(README, "python")[0], blocks(README, "text")[0]
    run_block(source)
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    "page",
    [DOCS / name for name in ("algorithms.md", "observers.md", "replay.md")],
    ids=lambda p: p.stem,
)
def test_the_examples_of_a_page_run(page: Path) -> None:
    assert blocks(page, "python")
    for source in blocks(page, "python"):
        run_block(source)


def test_the_trainee_that_is_shown_can_be_trained_and_drafts(cli: Cli) -> None:
    (source,) = blocks(DOCS / "train.md", "python")
    module = ModuleType("example")
    sys.modules["example"] = module
    try:
        exec(compile(source, "example", "exec"), vars(module))
        words = on_a_tiny_model(["train", "drafter=next", "out=o"])
        assert cli(*words).code == 0
        words = on_a_tiny_model(
            ["generate", "prompt=say 3", "output=json", "sampling.temperature=1"]
        )
        done = cli(*words, "drafter=next", "drafter.path=o")
        assert done.code == 0 and done.objects[0]["metrics"]["drafted"] > 0, done.err
    finally:
        del sys.modules["example"]


def test_the_other_examples_of_the_readme_run(capsys: pytest.CaptureFixture[str]) -> None:
    others = blocks(README, "python")[1:]
    assert others and all("target=table" in source for source in others)
    for source in others:
        run_block(source)
    assert len(capsys.readouterr().out.split()) == 12


# --- the tutorial ------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The tutorial's package as an installer would leave it: its modules and its metadata."""
    for text in blocks(TUTORIAL, "toml", "python", "yaml"):
        name = text.splitlines()[0].removeprefix("# ").removesuffix(" (continued)")
        path = tmp_path / name
        assert path.is_relative_to(tmp_path / "echo-draft") or name == "mine.py", name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((path.read_text() + "\n\n" if path.exists() else "") + text)
    root = tmp_path / "echo-draft"
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    info = root / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    name, version = project["name"], project["version"]
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    points = project["entry-points"]["foredraft"].items()
    lines = "".join(f"{name} = {value}\n" for name, value in points)
    (info / "entry_points.txt").write_text(f"[foredraft]\n{lines}")
    monkeypatch.syspath_prepend(str(root))
    monkeypatch.setenv("FOREDRAFT_PLUGINS", "echo-draft")
    before = set(sys.modules)
    yield root
    for module in set(sys.modules) - before:
        if module.partition(".")[0] == "echo_draft":
            del sys.modules[module]


def test_the_tutorial_makes_a_drafter_that_works_by_name(package: Path, cli: Cli) -> None:
    lines = [line for line in commands(TUTORIAL) if " check " not in line]
    assert len(lines) == 9
    outputs = {line: cli(*unquoted(line)) for line in lines}
    for line, done in outputs.items():
        assert done.code == 0, f"{line}: {done.err}"
    listed = outputs["foredraft plugins"].out
    assert "echo-draft 0.1.0" in listed and "recent" in listed and "broken" not in listed
    assert "how many tokens back the copy begins" in outputs[lines[-1]].out
    chosen = [json.loads(line)["config"] for line in Path("sweep.jsonl").read_text().splitlines()]
    names = [(config["drafter"]["name"], config["policy"]["gamma"]) for config in chosen]
    assert names == [(name, gamma) for name in ("echo", "recent", "none") for gamma in (2, 4)]
    done = cli("generate", "target=table", "drafter=echo_far", "prompt=0", "output=json")
    assert done.objects[0]["config"]["drafter"] == {"name": "echo", "distance": 64}


def test_what_the_tutorial_says_is_refused_is_refused(package: Path, cli: Cli) -> None:
    for value, word in (("1.5", "whole number"), ("0", "must be at least 1")):
        done = cli(
            "generate", "target=table", "drafter=echo", f"drafter.distance={value}", "prompt=0"
        )
        assert done.code == 2 and word in done.err


@pytest.mark.parametrize("line", [line for line in commands(TUTORIAL) if " check " in line])
def test_the_tutorials_parts_pass_their_checks(line: str, package: Path, cli: Cli) -> None:
    done = cli(*unquoted(line))
    assert done.code == 0, done.out + done.err


def calls(source: str) -> list[Callable[[], None]]:
    """The tests of a file of tests, once for each parameter."""
    module: dict[str, Any] = {}
    exec(compile(source, "example", "exec"), module)
    found: list[Callable[[], None]] = []
    for name, test in module.items():
        if name.startswith("test_"):
            (marks,) = [mark.args for mark in getattr(test, "pytestmark", [])] or [("", [None])]
            values = [getattr(value, "values", (value,))[0] for value in marks[1]]
            found += [partial(test, *([] if value is None else [value])) for value in values]
    return found


def test_the_tutorials_own_tests_pass(package: Path) -> None:
    tests = calls((package / "tests/test_match.py").read_text())
    assert len(tests) == 2
    for test in tests:
        test()


def test_the_tutorials_tests_are_one_case_per_check(package: Path) -> None:
    """The checks themselves are those that the commands run; here the cheapest case of each."""
    tests = calls((package / "tests/test_echo_draft.py").read_text())
    kinds = [checks_of(kind) for kind in ("drafter", "verifier", "policy")]
    assert len(tests) == 3 * len(kinds[0]) + 1
    for position in range(0, 3 * len(kinds[0]), len(kinds[0])):
        tests[position]()


def test_the_tutorials_rule_is_offered_and_judges_no_trees(package: Path, cli: Cli) -> None:
    words = ["generate", "target=table", "verifier=match", "prompt=0 1", "max_new_tokens=2"]
    assert cli(*words, "drafter=recent", "output=json").objects[0]["lossless"]
    refused = cli(*words, "drafter=follower", "drafter.nodes=4")
    assert refused.code == 2 and "verifier=recursive" in refused.err


def test_the_example_sessions_are_short() -> None:
    text = TUTORIAL.read_text("utf-8")
    bodies = re.findall(
        r"^(class \w+\((?:Token|Step|Policy)Session\):\n(?: .*\n|\n(?= ))*)", text, re.MULTILINE
    )
    assert len(bodies) == 4
    assert all(len([x for x in body.splitlines() if x.strip()]) < 15 for body in bodies)


def test_pages_stay_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) < 240
    for page in PAGES:
        assert max(map(len, page.read_text("utf-8").splitlines())) <= 260, page.name


def test_what_readers_are_shown_to_import_is_promised() -> None:
    """In the docs, the templates of `foredraft new` and the examples."""
    files = [
        *PAGES,
        *(ROOT / "framework/scaffold").rglob("*.j2"),
        *(ROOT / "examples").rglob("*.py"),
    ]
    promised = (DOCS / "promises.md").read_text("utf-8")
    for path in files:
        for module in re.findall(
            r"^from foredraft\.([\w.]+) import", path.read_text("utf-8"), re.M
        ):
            name = module.removeprefix("framework.").removeprefix("testing.")
            known = module in ("framework", "framework.testing") or re.search(
                rf"[`.]{name}[`.]", promised
            )
            assert known, f"{path.name}: {module}"
