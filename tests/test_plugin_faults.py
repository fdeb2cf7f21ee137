"""Faulty distributions beside a healthy one: each is reported by name with its cause, and everything
else works. The distributions are real ones, as an installer leaves them behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pluggy
import pytest

from foredraft.framework import errors
from foredraft.framework.plugins import registry

HEALTHY = """\
from dataclasses import dataclass

from foredraft.framework import DraftKind, DrafterSpec, PolicySpec, VerifierSpec, hookimpl


@dataclass
class Config:
    distance: int = 2


def build(config, target):
    from foredraft.framework import Drafter, TokenSession

    class Session(TokenSession):
        def continuation(self, row, gamma):
            return self.context.tokens[row][-config.distance :][:gamma]

    class Built(Drafter):
        kind = DraftKind("deterministic")

        def start(self, context):
            return Session(context)

    return Built()


def spec(name, **changes):
    options = {"kind": DraftKind("deterministic"), "contract": 1, **changes}
    return DrafterSpec(name, build, Config, "for a test", **options)


"""
HOOK = '@hookimpl\ndef foredraft_drafters():\n    return [spec("NAME")]\n'
# Distribution: its module, and what its row in the listing has to say. NAME becomes its own name.
FAULTS = {
    "import_error": (
        "from foredraft.framework import NoSuchName\n",
        r"loading it raised ImportError: cannot import name 'NoSuchName'",
    ),
    "missing_dependency": (
        "import package_that_is_missing\n",
        r"ModuleNotFoundError: No module named 'package_that_is_missing'",
    ),
    "syntax_error": ("x = 1\ndef broken(:\n", r"SyntaxError: .*line 2"),
    "missing_module": (None, r"ModuleNotFoundError: No module named 'missing_module'"),
    "unknown_hook": (
        HOOK.replace("drafters", "samplers"),
        r"it implements foredraft_samplers, which is not a hook; .*hooks: .*foredraft_drafters",
    ),
    "misspelt_hook": (
        HOOK.replace("drafters", "draftres"),
        r"foredraft_draftres, which is not a hook; did you mean 'foredraft_drafters'",
    ),
    "unmarked_hook": (HOOK.replace("@hookimpl\n", ""), r"foredraft_drafters is not marked with"),
    "extra_argument": (
        HOOK.replace("()", "(target)"),
        r"foredraft_drafters has the argument 'target'; the hook has: none",
    ),
    "defaulted_argument": (
        HOOK.replace("()", "(target=None)"),
        r"foredraft_drafters has the argument 'target'; the hook has: none",
    ),
    "too_new": (
        HOOK.replace('"NAME"', '"NAME", contract=2'),
        r"version 2 of the plugin contract and this Foredraft has version 1 .*update Foredraft",
    ),
    "too_old": (
        HOOK.replace('"NAME"', '"NAME", contract=0'),
        r"version 0 of the plugin contract and this Foredraft has version 1 .*update the plugin",
    ),
    "no_version": (
        HOOK.replace("spec(", "DrafterSpec(").replace('"NAME"', '"NAME", build, Config'),
        r"TypeError: .*missing 1 required keyword-only argument: 'contract'",
    ),
    "raising_hook": (
        HOOK.replace("return", "raise RuntimeError('no licence')\n    return"),
        r"RuntimeError: no licence",
    ),
    "exiting": ("import sys\nsys.exit('goodbye')\n", r"SystemExit: goodbye"),
    "exiting_hook": (
        HOOK.replace("return", "raise SystemExit\n    return"),
        r"raised SystemExit\.",
    ),
    "wrong_return": (
        HOOK.replace('[spec("NAME")]', '{"drafter": build}'),
        r"foredraft_drafters gave a str; it must give DrafterSpec records",
    ),
    "no_iterable": (
        HOOK.replace('[spec("NAME")]', 'spec("NAME")'),
        r"foredraft_drafters returned DrafterSpec.*; it must return an iterable",
    ),
    "other_spec": (
        HOOK.replace('spec("NAME")', 'PolicySpec("NAME", build, Config, contract=1)'),
        r"foredraft_drafters gave a PolicySpec; it must give DrafterSpec records",
    ),
}
LOUD = "import sys\nprint('printed at import')\nprint('and to stderr', file=sys.stderr)\n"
GOOD = {
    "healthy": HOOK,
    "loud": LOUD + HOOK,
    "first": HOOK.replace("NAME", "twice"),
    "second": HOOK.replace("NAME", "twice"),
}


def install(site: Path, name: str, source: str | None) -> None:
    """What an installer leaves behind: a module and the metadata of its distribution."""
    if source is not None:
        text = source if source.startswith(("x =", "import package")) else HEALTHY + source
        (site / f"{name}.py").write_text(text.replace("NAME", name))
    info = site / f"{name}_dist-1.5.dist-info"
    info.mkdir()
    dashed = name.replace("_", "-") + "-dist"
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dashed}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[foredraft]\n{name}_point = {name}\n")


# Each line of standard output: a command's code, standard output, standard error, heavy modules.
RUN = """
import contextlib, io, json, os, sys
from foredraft.framework.cli.main import main

HEAVY = ["torch", "transformers", "numpy", "hydra", "jinja2"]
COMMON = ["generate", "target=table", "prompt=0 1 2 0 1", "max_new_tokens=8", "output=json"]

def run(*argv, **environment):
    os.environ.update(environment)
    if "foredraft.framework.plugins" in sys.modules:
        sys.modules["foredraft.framework.plugins"].reset()
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(argv))
    heavy = [name for name in HEAVY if name in sys.modules]
    print(json.dumps([code, out.getvalue(), err.getvalue(), heavy]))
    for name in environment:
        del os.environ[name]

HEAVY += ["omegaconf", "pluggy", "rich"]
run("--help")
del HEAVY[-3:]
run("plugins", "--json")
run("plugins")
run("plugins", "--json", FOREDRAFT_PLUGINS="healthy-dist, too_new_point")
run("plugins", "--json", FOREDRAFT_BLOCK_PLUGINS="Healthy.Dist,second_point")
run(*COMMON, "drafter=healthy")
run(*COMMON, "drafter=ngram")
run(*COMMON, "drafter=missing_dependency")
run(*COMMON, "drafter=twice")
run(*COMMON, "drafter=twice", FOREDRAFT_BLOCK_PLUGINS="second")
run(*COMMON, "drafter=twice", FOREDRAFT_BLOCK_PLUGINS="second_dist")
"""
COMMANDS = (
    "help", "listed", "shown", "only", "blocked", "healthy", "builtin", "missing", "twice", "still_twice",
    "once",
)  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every command of ``RUN``, in one process, since each start costs a second."""
    site = tmp_path_factory.mktemp("site")
    for name, (source, _) in FAULTS.items():
        install(site, name, source)
    for name, source in GOOD.items():
        install(site, name, source)
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {key: value for key, value in os.environ.items() if "FOREDRAFT_" not in key}
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN],
        capture_output=True,
        text=True,
        timeout=300,
        env={**environment, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert ended.returncode == 0, ended.stderr
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    return dict(zip(COMMANDS, lines, strict=True))


def causes(result: list[Any]) -> dict[str, str]:
    code, out, err, _ = result
    assert code == 0, err
    return {row["distribution"]: row["cause"] for row in json.loads(out)["broken"]}


def names(result: list[Any], kind: str = "drafter") -> set[str]:
    return {row["name"] for row in json.loads(result[1])["parts"] if row["kind"] == kind}


@pytest.mark.parametrize("name", FAULTS)
def test_each_is_reported_by_name_with_its_cause(done: dict[str, Any], name: str) -> None:
    cause = causes(done["listed"])[f"{name.replace('_', '-')}-dist"]
    assert re.search(FAULTS[name][1], cause), cause
    (line,) = [line for line in done["shown"][1].splitlines() if f"'{name}_point'" in line]
    assert line.startswith("broken: ") and f"{name.replace('_', '-')}-dist 1.5" in line
    assert re.search(FAULTS[name][1], line), line
    assert name not in names(done["listed"])


def test_nobody_else_is_stopped(done: dict[str, Any]) -> None:
    assert len(causes(done["listed"])) == len(FAULTS)
    assert {"healthy", "loud", "ngram", "prompt_lookup", "none"} <= names(done["listed"])
    for kind in ("target", "verifier", "policy"):
        assert names(done["listed"], kind) == set(registry().names(kind))
    for name in ("healthy", "builtin"):
        code, out, err, _ = done[name]
        assert code == 0, err
        answer = json.loads(out)
        assert len(answer["token_ids"]) == 8 and answer["metrics"]["drafted"] > 0
    assert json.loads(done["healthy"][1])["config"]["drafter"] == {"name": "healthy", "distance": 2}


def test_help_and_listing_import_nothing_heavy(done: dict[str, Any]) -> None:
    assert done["help"][3] == done["listed"][3] == done["shown"][3] == []
    assert {"torch", "hydra"} <= set(done["healthy"][3]), "they were not looked for"


def test_what_they_print_is_no_result(done: dict[str, Any]) -> None:
    assert "printed at import" in done["listed"][2] and "and to stderr" in done["listed"][2]
    assert all("printed" not in out for _, out, _, _ in done.values())


def test_a_missing_name_is_explained_by_what_is_broken(done: dict[str, Any]) -> None:
    code, out, err, _ = done["missing"]
    assert (code, out) == (2, "")
    assert "unknown drafter 'missing_dependency'" in err and "package_that_is_missing" in err
    assert "'missing_dependency_point' of missing-dependency-dist 1.5" in err


def test_a_name_of_two_packages_names_both(done: dict[str, Any]) -> None:
    code, out, err, _ = done["twice"]
    assert (code, out) == (2, "") and "drafter 'twice' is offered by first-dist 1.5" in err
    assert "second-dist 1.5" in err and "FOREDRAFT_BLOCK_PLUGINS" in err
    rows = [row for row in json.loads(done["listed"][1])["parts"] if row["name"] == "twice"]
    assert [row["distribution"] for row in rows] == ["first-dist", "second-dist"]
    assert all("offered by" in row["fault"] for row in rows)
    assert done["still_twice"][0] == 2, "a part of a name blocked the plugin"
    assert done["once"][0] == 0, done["once"][2]


def test_variables_load_only_some_or_block_some(done: dict[str, Any]) -> None:
    assert causes(done["only"]).keys() == {"too-new-dist"}
    ours = set(registry().names("drafter"))
    assert names(done["only"]) == ours | {"healthy"}
    blocked = causes(done["blocked"])
    for name in ("healthy-dist", "second-dist"):
        assert blocked[name] == "it is named in FOREDRAFT_BLOCK_PLUGINS."
    assert names(done["blocked"]) == ours | {"loud", "twice"}
    assert len(blocked) == len(FAULTS) + 2


# --- pluggy's own names ------------------------------------------------------------------------


def test_no_private_name_of_pluggy_is_used() -> None:
    """Hosts that used one broke when it went away."""
    private = {
        name
        for owner in (pluggy, pluggy.PluginManager("x"), pluggy.PluginManager("x").hook)
        for name in dir(owner)
        if name.startswith("_") and not name.endswith("__")
    }
    assert "_hookexec" in private, "the list is empty of what it is for"
    used = re.compile(rf"\b(?:{'|'.join(sorted(private))})\b|pluggy\._|from pluggy import _")
    folder = Path(errors.__file__).parent
    for path in [*folder.rglob("*.py"), *folder.parent.glob("[dv]*ers/*.py")]:
        if "pluggy" in (text := path.read_text("utf-8")):
            assert not used.search(text), path
