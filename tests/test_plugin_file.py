"""A plugin without a package: one file on the command line, or specs from Python."""

from __future__ import annotations

import json
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from cli_helpers import Cli, make_cli, refused

from foredraft.framework import PluginFault, hookimpl, load, plugins
from foredraft.framework.plugins import register, registry
from foredraft.framework.specs import DrafterSpec, PolicySpec, VerifierSpec

MINE = """
    from __future__ import annotations
    from dataclasses import dataclass, field

    import torch
    from foredraft.framework import DrafterSpec, StepSession, hookimpl

    @dataclass
    class UrnConfig:
        smooth: float = 0.1
        often: list[int] = field(default_factory=list)

    class Urn(StepSession):
        def next_logits(self, drafted):
            vocab = self.context.vocab_size
            rows = [torch.tensor(row).bincount(minlength=vocab) for row in self.context.tokens]
            return (torch.stack(rows) + self.config.smooth).log()

    @hookimpl
    def foredraft_drafters():
        yield DrafterSpec("urn", Urn, UrnConfig, "draws its own tokens", contract=1)
"""
GENERATE = ("generate", "target=table", "prompt=0 1 2", "max_new_tokens=6", "output=json")


pytestmark = pytest.mark.usefixtures("only_builtins")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(textwrap.dedent(MINE))
    return make_cli(capsys)


# --- a file on the command line ----------------------------------------------------------------


def test_a_file_is_listed_by_its_name_for_one_command(cli: Cli) -> None:
    Path("mine.py").write_text(Path("mine.py").read_text() + "print('loaded')\n")
    done = cli("--plugin", "./mine.py", "plugins", "--json")
    assert done.code == 0 and "loaded" in done.err and "loaded" not in done.out
    (part,) = [part for part in json.loads(done.out)["parts"] if part["name"] == "urn"]
    assert part["distribution"] == "mine.py" and part["plugin"] == "mine"
    assert "urn" not in registry().names("drafter"), "it outlived its command"
    assert "urn" in cli("plugins", "--plugin=./mine.py").out
    assert not Path("__pycache__").exists()


@pytest.mark.parametrize("place", [0, 1, len(GENERATE)])
def test_it_may_stand_anywhere_and_shows_in_results(cli: Cli, place: int) -> None:
    words = [*GENERATE, "drafter=urn", "drafter.smooth=0.5", "drafter.often=[1,2]"]
    done = cli(*words[:place], "--plugin", "./mine.py", *words[place:])
    assert done.code == 0, done.err
    (answer,) = done.objects
    assert answer["config"]["drafter"] == {"name": "urn", "smooth": 0.5, "often": [1, 2]}
    assert answer["metrics"]["drafted"] > 0
    refused(cli("--plugin", "./mine.py", *GENERATE, "drafter=urm"), "did you mean 'urn'")
    refused(cli(*GENERATE, "drafter=urn"), "unknown drafter 'urn'")


def test_several_files(cli: Cli) -> None:
    Path("other.py").write_text(Path("mine.py").read_text().replace('"urn"', '"jar"'))
    listed = cli("--plugin", "mine.py", "--plugin=other.py", "plugins").out
    assert "mine.py (a file)" in listed and "other.py (a file)" in listed
    Path("deep").mkdir()
    Path("deep/mine.py").write_text(Path("mine.py").read_text())
    twice = cli("--plugin", "mine.py", "--plugin", "deep/mine.py", "plugins")
    refused(twice, "'deep/mine.py'", "drafter 'urn' is taken by mine.py (a file)")
    assert cli("--plugin", "mine.py", "--plugin", "./mine.py", "plugins").code == 0


def test_a_files_name_shadows_no_module(cli: Cli) -> None:
    Path("json.py").write_text(Path("mine.py").read_text())
    assert cli("--plugin", "json.py", *GENERATE, "drafter=urn").code == 0
    assert sys.modules["json"] is json


def test_help_runs_no_file(cli: Cli) -> None:
    done = cli("--plugin", "no_such_file.py", "--help")
    assert done.code == 0 and "--plugin FILE" in done.out
    assert "drafter.smooth" in cli("--plugin", "mine.py", "generate", "drafter=urn", "--help").out


HOOK = "from foredraft.framework import DrafterSpec, hookimpl\n"
FAULTS = {
    "syntax": ("x = 1\ndef broken(:\n", ("SyntaxError", "line 2")),
    "import": ("\n\nfrom foredraft.framework import Nothing\n", ("ImportError", "(line 3)")),
    "dependency": ("import no_such_package\n", ("no_such_package", "(line 1)")),
    "raising": ("\nraise KeyError('k')\n", ("KeyError: 'k' (line 2)",)),
    "exiting": ("import sys\nsys.exit()\n", ("raised SystemExit (line 2)",)),
    "no hook": ("x = 1\n", ("offers nothing", "@hookimpl", "foredraft_drafters")),
    "no mark": ("def foredraft_drafters(): return []\n", ("not marked with @hookimpl",)),
    "misspelt": (HOOK + "@hookimpl\ndef foredraft_draftres(): return []\n", ("did you mean",)),
    "late": (HOOK + "@hookimpl\ndef foredraft_drafters():\n    yield 1 / 0\n", ("(line 4)",)),
    "clash": (
        textwrap.dedent(MINE).replace('"urn"', '"ngram"'),
        ("'ngram' is taken by foredraft",),
    ),
    "preset": (textwrap.dedent(MINE).replace('"urn"', '"bigram"'), ("preset that ships",)),
    "contract": (textwrap.dedent(MINE).replace("=1)", "=9)"), ("version 9", "has version 1")),
    "null": ("x = '\0'\n", ("SyntaxError", "null bytes")),
}


@pytest.mark.parametrize(("text", "words"), FAULTS.values(), ids=FAULTS)
def test_a_broken_file_is_refused_in_one_sentence(
    cli: Cli, text: str, words: tuple[str, ...]
) -> None:
    Path("bad.py").write_text(text)
    done = cli("--plugin", "bad.py", "plugins")
    refused(done, "the plugin file 'bad.py' cannot be used", *words)
    assert not [name for name in sys.modules if name.endswith("_bad") and "foredraft" in name]
    assert cli("plugins").code == 0


def test_what_is_no_file_is_refused(cli: Cli) -> None:
    refused(cli("--plugin", "./none.py", "plugins"), "'none.py'", "there is no such file")
    refused(cli("--plugin", ".", "plugins"), "it is a folder")
    refused(cli("plugins", "--plugin"), "--plugin needs a Python file")
    refused(cli("--plugin=", "plugins"), "--plugin needs a Python file")


def test_no_config_loads_a_file(cli: Cli) -> None:
    refused(cli(*GENERATE, "plugin=mine.py"), "plugin is not a key")
    Path("conf/experiment").mkdir(parents=True)
    Path("conf/experiment/sly.yaml").write_text("# @package _global_\nplugin: mine.py\n")
    refused(cli(*GENERATE, "--config-dir", "conf", "experiment=sly"), "plugin is not a key")


# --- specs from Python -------------------------------------------------------------------------


@dataclass
class Nothing:
    """Nothing to set."""


def drafter(name: str = "urn", summary: str = "") -> DrafterSpec:
    return DrafterSpec(name, lambda config, target: None, Nothing, summary, contract=1)


def policy(name: str = "urn") -> PolicySpec:
    return PolicySpec(name, lambda config: None, Nothing, contract=1)


def test_a_spec_is_registered_under_its_own_name_and_replaced_by_it() -> None:
    register(drafter(summary="old"))
    register(policy())
    register(drafter(summary="new"))
    offer = registry().find("drafter", "urn")
    assert (offer.summary, str(offer.source)) == ("new", "urn in process")
    assert "urn" in registry().names("policy"), "a policy of that name was replaced too"


def test_several_specs_at_once() -> None:
    register([drafter("a"), policy("b")])
    register(drafter("a", "again"))
    assert registry().find("drafter", "a").summary == "again"
    assert "b" in registry().names("policy")
    register((drafter("c"), drafter("d")), "both")
    register([drafter("c")], "both")
    assert "c" in registry().names("drafter") and "d" not in registry().names("drafter")
    plugins.unregister("both")
    assert "c" not in registry().names("drafter")


@pytest.mark.parametrize("wrong", [3, "echo", SimpleNamespace(), json])
def test_what_offers_nothing_is_refused(wrong: Any) -> None:
    with pytest.raises(PluginFault, match="offers nothing; a plugin has functions marked"):
        register(wrong, "mine")


def test_a_wrong_spec_is_refused_and_what_was_there_stays() -> None:
    register(drafter(summary="old"))
    with pytest.raises(PluginFault, match="'Urn' is not a possible name"):
        register([drafter(summary="new"), drafter("Urn")])
    with pytest.raises(PluginFault, match="3 cannot be registered; it must be a spec"):
        register([drafter(summary="new"), 3])
    assert registry().find("drafter", "urn").summary == "old"


NOTEBOOK = textwrap.dedent(MINE).replace("@hookimpl", "") + textwrap.dedent("""
    spec = DrafterSpec("cell", Urn, UrnConfig, contract=1)

    class Cells:
        @hookimpl
        def foredraft_drafters(self):
            return [DrafterSpec("cells", Urn, UrnConfig, contract=1)]
""")


def test_a_notebooks_own_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cells define lives in ``__main__``, also the type hints that are text there."""
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(NOTEBOOK, main.__dict__)
    register(main.__dict__["spec"])
    register(main.__dict__["Cells"]())
    for name in ("cell", "cells"):
        engine = load("target=table", f"drafter={name}", "drafter.often=[1]", "max_new_tokens=6")
        answer = engine.generate("0 1 2")
        assert answer.metrics.drafted > 0
        plain = load("target=table", "drafter=none", "max_new_tokens=6").generate("0 1 2")
        assert answer.token_ids == plain.token_ids


def test_a_whole_notebook_or_module_is_a_plugin() -> None:
    module = ModuleType("my_module")

    @hookimpl
    def foredraft_verifiers() -> list[VerifierSpec]:
        return [VerifierSpec("mine", lambda config: None, Nothing, contract=1)]

    module.__dict__["foredraft_verifiers"] = foredraft_verifiers
    register(module)
    assert registry().find("verifier", "mine").distribution == "my_module"
