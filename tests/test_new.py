"""``foredraft new``: the packages it writes pass everything as they stand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_helpers import Cli, Done, make_cli, refused

from foredraft.framework import plugins
from foredraft.framework.cli import new
from foredraft.framework.cli.new import KINDS, LONGEST, USE, names, rendered

NAMES = {
    "drafter": "my_first",
    "verifier": "a" * (LONGEST - 2) + "_2",
    "policy": "step",
}
FOLDERS = {kind: f"foredraft-{name.replace('_', '-')}" for kind, name in NAMES.items()}
# The quickest checks that go through everything the package brings; the rest is slow.
QUICK = {
    "drafter": ("config_round_trip", "light_import", "declared_kind", "reported_law"),
    "verifier": ("config_round_trip", "light_import", "joint_law_of_chains"),
    "policy": ("config_round_trip", "light_import", "row_fates", "repeatable"),
}


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return make_cli(capsys)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One package of each kind, as written."""
    folder = tmp_path_factory.mktemp("packages")
    for kind, name in NAMES.items():
        new.new([kind, name, "--dir", str(folder)])
    return folder


@pytest.fixture(scope="module")
def site(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed them."""
    site = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    where = ["--no-deps", "--no-build-isolation", "--target", str(site)]
    folders = [str(packages / folder) for folder in FOLDERS.values()]
    subprocess.run([*pip, *where, *folders], check=True, capture_output=True, timeout=300)
    return site


def run(site: Path, folder: Path, *argv: str) -> Done:
    """A module of Python's path, run in a package with all packages installed."""
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(
        [sys.executable, "-m", *argv],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    return Done(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("FOREDRAFT_PLUGINS", ",".join(FOLDERS.values()))
    plugins.reset()
    yield
    plugins.reset()
    for name in [name for name in sys.modules if name.startswith("foredraft_")]:
        del sys.modules[name]


# --- what is written ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_files(packages: Path, kind: str) -> None:
    folder, package = packages / FOLDERS[kind], f"foredraft_{NAMES[kind]}"
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    code = {f"{package}/__init__.py", f"{package}/{kind}.py", f"{package}/py.typed"}
    assert files == {"pyproject.toml", "README.md", "tests/test_conformance.py", *code}
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == FOLDERS[kind]
    assert project["entry-points"]["foredraft"] == {NAMES[kind]: package}
    assert "import torch" not in (folder / package / "__init__.py").read_text()
    assert "YOUR MATHS GOES HERE" in (folder / package / f"{kind}.py").read_text()
    readme = (folder / "README.md").read_text()
    commands = readme.split("```sh\n")[1].split("```")[0].splitlines()
    assert len(commands) == 4 and f"foredraft check {kind}={NAMES[kind]}" in commands
    assert not any("{{" in path.read_text() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", ["x", NAMES["verifier"], "step", "tensor", "drafter_spec"])
@pytest.mark.parametrize("kind", KINDS)
def test_ruff_has_nothing_to_say(tmp_path: Path, kind: str, name: str) -> None:
    """Also of names that are longer than any line, and of those that imported names resemble."""
    pytest.importorskip("ruff")
    new.write(tmp_path / "package", rendered(names(kind, name)))
    ruff = [sys.executable, "-m", "ruff"]
    for words in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        ended = subprocess.run([*ruff, *words, "."], cwd=tmp_path / "package", capture_output=True)
        assert ended.returncode == 0, ended.stdout.decode() + ended.stderr.decode()


def test_the_next_steps_are_printed(cli: Cli) -> None:
    Path("a folder").mkdir()
    done = cli("new", "policy", "calm", "--dir", "a folder")
    assert done.code == 0 and done.err == ""
    assert "cd 'a folder/foredraft-calm'" in done.out
    for word in ("pip install -e", "foredraft check policy=calm", "pytest", "foredraft generate"):
        assert word in done.out
    assert "foredraft_calm/policy.py" in done.out
    assert sorted(path.name for path in Path("a folder").iterdir()) == ["foredraft-calm"]
    # Not private to its author, as folders for temporary files are.
    assert Path("a folder/foredraft-calm").stat().st_mode == Path("a folder").stat().st_mode


# --- what it does ------------------------------------------------------------------------------


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_listed_and_checked(cli: Cli, kind: str) -> None:
    listed = json.loads(cli("plugins", "--json").out)
    assert listed["broken"] == []
    (row,) = [row for row in listed["parts"] if row["name"] == NAMES[kind]]
    assert (row["kind"], row["distribution"], row["version"]) == (kind, FOLDERS[kind], "0.1.0")
    done = cli("check", f"{kind}={NAMES[kind]}", "--json", "--only", *QUICK[kind])
    report = json.loads(done.out)
    assert done.code == 0 and report["passed"] == len(QUICK[kind]), done.out


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("kind", KINDS)
def test_it_decodes_without_loss(cli: Cli, kind: str) -> None:
    """The command of its README, for a target without a model."""
    words = USE[kind].format(name=NAMES[kind]).split()
    common = ("target=table", "prompt=0 1 2 0 1", "max_new_tokens=9", "output=json")
    done = cli("generate", *words, *common)
    assert done.code == 0, done.err
    (answer,) = done.objects
    assert answer["lossless"] and answer["metrics"]["drafted"] > 0
    assert answer["config"][kind]["name"] == NAMES[kind]
    if kind != "verifier":  # its command samples
        (plain,) = cli("generate", "drafter=none", *common).objects
        assert answer["token_ids"] == plain["token_ids"]


@pytest.mark.usefixtures("installed")
def test_its_settings_are_shown_and_checked(cli: Cli) -> None:
    shown = cli("generate", "drafter=my_first", "policy=step", "--help").out
    assert "drafter.window" in shown and "how many of the newest tokens" in shown
    common = ("generate", "target=table", "prompt=0")
    refused(cli(*common, "drafter=my_first", "drafter.smooth=0"), "smooth=0.0 must be above 0")
    refused(cli(*common, "policy=step", "policy.least=2"), "least=2.0 in [0, 1]")


@pytest.mark.usefixtures("installed")
def test_what_is_installed_is_not_written_again(cli: Cli) -> None:
    refused(cli("new", "policy", "step"), "'step' is taken by foredraft-step 0.1.0")
    refused(cli("new", "drafter", "step"), "taken by the installed package foredraft_step")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_all_of_its_own_tests_pass(site: Path, packages: Path, kind: str) -> None:
    done = run(
        site, packages / FOLDERS[kind], "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"
    )
    assert done.code == 0 and " passed" in done.out and "failed" not in done.out, done.out


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_its_types_are_strict(
    packages: Path, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pytest.importorskip("mypy")
    import foredraft.framework

    cache = tmp_path_factory.getbasetemp() / "mypy"  # shared: torch is read once
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(cache)],
        cwd=packages / FOLDERS[kind],
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": str(Path(foredraft.framework.__file__).parents[2])},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


# --- what is refused ---------------------------------------------------------------------------

REFUSED = {
    "capitals": ("Mine", "'Mine' is not a possible name"),
    "hyphen": ("my-own", "not a possible name"),
    "digit first": ("2nd", "not a possible name"),
    "underscores": ("my__own", "single underscores"),
    "last": ("mine_", "not a possible name"),
    "path": ("../mine", "not a possible name"),
    "python word": ("lambda", "no word of Python"),
    "yaml word": ("off", "no word of Python or YAML"),
    "long": ("x" * (LONGEST + 1), f"at most {LONGEST}"),
    "built in": ("ngram", "'ngram' is taken by foredraft"),
    "preset": ("bigram", "'bigram' is taken by a preset"),
    "empty": ("", "not a possible name"),
}


@pytest.mark.parametrize(("name", "words"), REFUSED.values(), ids=REFUSED)
def test_a_name_that_cannot_be_is_refused(cli: Cli, name: str, words: str) -> None:
    refused(cli("new", "drafter", name), words)
    assert list(Path().iterdir()) == []


def test_a_name_of_another_kind_is_free(cli: Cli) -> None:
    assert cli("new", "policy", "ngram").code == 0


def test_an_existing_folder_is_left_alone(cli: Cli) -> None:
    Path("foredraft-mine").mkdir()
    refused(cli("new", "drafter", "mine"), "foredraft-mine is there already")
    assert list(Path("foredraft-mine").iterdir()) == []
    Path("foredraft-dead").symlink_to("nowhere")
    refused(cli("new", "drafter", "dead"), "foredraft-dead is there already")


def test_other_bad_input(cli: Cli) -> None:
    refused(cli("new"), "kind")
    refused(cli("new", "target", "mine"), "target", "drafter")
    refused(cli("new", "drafter", "mine", "--dir", "nowhere"), "--dir nowhere is no folder")
    assert cli("new", "--help").code == 0


def test_nothing_is_left_half_written(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, written = Path.write_text, []

    def failing(path: Path, text: str, encoding: str) -> int:
        written.append(path)
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        return whole(path, text, encoding)

    monkeypatch.setattr(Path, "write_text", failing)
    refused(cli("new", "drafter", "mine"), "foredraft-mine", "No space left on device")
    assert len(written) == 3 and list(Path().iterdir()) == []


def test_a_template_with_an_unknown_word_fails() -> None:
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError):
        rendered({"kind": "drafter", "package": "foredraft_mine"})
