"""The packages in examples/: what they declare, and every command of their pages.

CI builds them and runs all of their tests against the built wheels; see ``.ci/run``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Cli, make_cli

from foredraft.framework import plugins
from foredraft.framework.specs import CONTRACT_VERSION

EXAMPLES = Path(__file__).parent.parent / "examples"
if not EXAMPLES.exists():  # the installed wheel is tested from a folder that holds tests only
    pytest.skip("the examples are not here", allow_module_level=True)
PACKAGES = sorted(path.parent for path in EXAMPLES.glob("*/pyproject.toml"))


def project(package: Path) -> dict[str, Any]:
    """The ``[project]`` table of a package."""
    table: dict[str, Any] = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))
    found: dict[str, Any] = table["project"]
    return found


def module_of(package: Path) -> str:
    return package.name.replace("-", "_")


def commands() -> Iterator[tuple[Path, str]]:
    """Every ``foredraft`` line of the packages' pages that needs no model."""
    for package in PACKAGES:
        for line in re.findall(r"^\$ (foredraft .*)$", (package / "README.md").read_text(), re.M):
            if "target=table" in line or " check " in line or "--help" in line:
                yield package, line


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All example packages as plugins of this process, straight from their folders."""
    monkeypatch.setenv("FOREDRAFT_PLUGINS", "")
    plugins.reset()
    for package in PACKAGES:
        monkeypatch.syspath_prepend(package)
        plugins.register(import_module(module_of(package)), package.name)
    yield
    plugins.reset()
    names = tuple(map(module_of, PACKAGES))
    for name in [name for name in sys.modules if name.partition(".")[0] in names]:
        del sys.modules[name]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], loaded: None) -> Cli:
    return make_cli(capsys)


def test_there_are_two() -> None:
    assert [package.name for package in PACKAGES] == ["foredraft-retrieval", "foredraft-steady"]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_what_a_package_declares(package: Path) -> None:
    table = project(package)
    assert table["name"] == package.name
    assert list(table["entry-points"]["foredraft"].values()) == [module_of(package)]
    assert table["optional-dependencies"]["test"] == ["foredraft[test]"]
    ours = tomllib.loads((EXAMPLES.parent / "pyproject.toml").read_text("utf-8"))["project"]
    assert table["requires-python"] == ours["requires-python"]
    assert table["license"] == ours["license"]
    assert (package / module_of(package) / "py.typed").is_file()


def test_they_are_written_for_this_contract(loaded: None) -> None:
    offers = [plugins.registry().find("drafter", "retrieval")]
    offers.append(plugins.registry().find("policy", "steady"))
    assert [offer.spec.contract for offer in offers] == [CONTRACT_VERSION] * 2
    assert [offer.source.plugin for offer in offers] == [package.name for package in PACKAGES]


@pytest.mark.parametrize(
    ("package", "line"), [*commands()], ids=lambda value: getattr(value, "name", None)
)
def test_the_commands_of_their_pages(
    package: Path, line: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(package)
    words = shlex.split(line)[1:]
    if words[0] == "check":  # all checks run in CI, against the built wheel
        words += ["--only", "config_round_trip"]
    done = cli(*words)
    assert done.code == 0, done.err
    assert done.out


def test_listing_them_imports_no_torch() -> None:
    names = ", ".join(map(module_of, PACKAGES))
    code = f"import sys, {names}; assert not {{'torch', 'numpy'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True, timeout=60)


def test_the_index_against_a_search_through_every_place() -> None:
    """The one file of theirs that takes no time; CI runs all of them."""
    file = EXAMPLES / "foredraft-retrieval" / "tests" / "test_suffixes.py"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)],
        env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\b1\d passed", done.stdout), done.stdout


def environment() -> dict[str, str]:
    """This process's environment, with the packages' folders on the path."""
    paths = [*map(str, PACKAGES), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
