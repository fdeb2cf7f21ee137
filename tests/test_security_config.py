"""Hostile configs: refused in one sentence, before anything in them is loaded, made or read.

Every test gives the attack something to do (create a marker file, show a secret, import a module
that leaves a trace) and then looks for the trace.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from foredraft.framework import plugins
from foredraft.framework.config import as_dict, compose, expand_sweep
from foredraft.framework.errors import ConfigError

SECRET = "a-secret-of-the-environment"


class Scene:
    """A user's config folder, a module that must never be imported, a file that must not appear."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "conf"
        self.marker = root / "marker"
        (self.folder / "experiment").mkdir(parents=True)
        (self.folder / "drafter").mkdir()
        trap = (
            f"from pathlib import Path\nPath({str(self.marker)!r}).touch()\ndef f(*a, **k): pass\n"
        )
        (root / "trap_module.py").write_text(trap)
        (root / "evil.py").write_text(trap)
        (root / "outside.yaml").write_text("# @package _global_\nmax_new_tokens: 77\n")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("MARKER", str(self.marker)))

    def refused(self, *overrides: str, folder: bool = True) -> str:
        with pytest.raises(ConfigError) as caught:
            compose(list(overrides), self.folder if folder else None)
        self.check_clean()
        text = str(caught.value)
        assert "\n" not in text and SECRET not in text
        return text

    def check_clean(self) -> None:
        assert not self.marker.exists()
        assert "trap_module" not in sys.modules and "evil" not in sys.modules


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setenv("FOREDRAFT_PLUGINS", "")
    monkeypatch.setenv("FOREDRAFT_TEST_SECRET", SECRET)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    plugins.reset()
    made = Scene(tmp_path)
    yield made
    made.check_clean()
    plugins.reset()


OVERRIDES = [
    "hydra.run.dir=x",
    "+hydra.callbacks.x._target_=trap_module.f",
    "++hydra.job.chdir=true",
    "~hydra",
    "~hydra.callbacks",
    "hydra/launcher=joblib",
    "+hydra/callbacks=x",
    "hydra@x=y",
    "drafter@hydra=ngram",
    "drafter@x.hydra.y=ngram",
    "hydra={callbacks:{x:{_target_:trap_module.f}}}",
    "hydra.searchpath=[file:///tmp]",
    "hydra.searchpath=[pkg://trap_module]",
    "drafter._target_=trap_module.f",
    "+drafter._target_=trap_module.f",
    "drafter={_target_:trap_module.f}",
    "stop=[{_target_:trap_module.f}]",
    "stop=[{a:{_partial_:true}}]",
    "drafter._recursive_=true",
    "target.model={_convert_:all,_args_:[1]}",
    "drafter.path='${oc.env:FOREDRAFT_TEST_SECRET}'",
    "drafter.path=${oc.env:FOREDRAFT_TEST_SECRET}",
    "drafter.path='x${oc.env:FOREDRAFT_TEST_SECRET}'",
    "drafter.path='${oc.${seed}:FOREDRAFT_TEST_SECRET}'",
    "drafter.path='${oc.decode:x}'",
    "drafter.path='${hydra:runtime.cwd}'",
    "drafter.path='${hydra.job.name}'",
    "stop=['${oc.env:FOREDRAFT_TEST_SECRET}']",
    "drafter.path='${oc.env:A}','${oc.env:B}'",
]


@pytest.mark.parametrize("override", OVERRIDES)
def test_hostile_overrides(scene: Scene, override: str) -> None:
    text = scene.refused("drafter=ngram", override, folder=False)
    assert any(
        word in text for word in ("hydra", "which code to call", "other.key", "cannot be read")
    )
    with pytest.raises(ConfigError):
        expand_sweep([override])


NAMES = [
    "./evil.py", "evil.py", "evil", "os.system", "trap_module", "trap_module.f", "/etc/passwd",
    "../outside", "../../outside", "..", ".", "//etc/passwd", "x/../../outside", "a/b",
    "pkg://trap_module", "file:///etc/passwd", "~/x", "__init__", "ngram.yaml", "'ngram '", "''",
    "{}", "[]", "[ngram]", "ngram;x", "${oc.env:HOME}", "ngram\n", "NGRAM",
]  # fmt: skip


@pytest.mark.parametrize("group", ["drafter", "experiment"])
def test_names_that_are_paths_or_code(scene: Scene, group: str) -> None:
    for name in NAMES:
        if (group, name) != ("drafter", "ngram\n"):  # a line's end is not part of the name
            text = scene.refused(f"{group}={name}")
            assert "unknown" in text or "cannot be read" in text or "other.key" in text, (
                name,
                text,
            )


FILES = {
    "target": ("drafter: {_target_: trap_module.f}", "_target_"),
    "target deep": ("stop:\n  - a: [{b: {_target_: trap_module.f}}]", "_target_"),
    "target escaped": ('drafter: {"\\x5ftarget_": trap_module.f}', "_target_"),
    "partial": ("drafter: {_partial_: true}", "_partial_"),
    "hydra key": ("hydra:\n  callbacks:\n    x: {_target_: trap_module.f}", "hydra"),
    "hydra run dir": ("hydra: {run: {dir: MARKER}}", "hydra"),
    "hydra nested": ("drafter: {hydra: {a: 1}}", "hydra"),
    "launcher": ("defaults:\n  - override /hydra/launcher: joblib", "hydra"),
    "launcher spaced": ("defaults:\n  - override  /hydra/launcher: joblib", "hydra"),
    "callbacks": ("defaults:\n  - /hydra/callbacks@hydra.callbacks.x: y", "hydra"),
    "package": ("defaults:\n  - /drafter@hydra.sweeper: ngram", "hydra"),
    "default outside": ("defaults:\n  - ../../outside", "outside"),
    "default absolute": ("defaults:\n  - //etc/x", "etc"),
    "default by env": ("defaults:\n  - /drafter: ${oc.env:FOREDRAFT_TEST_SECRET}", "other.key"),
    "env": ("max_new_tokens: ${oc.env:FOREDRAFT_TEST_SECRET}", "other.key"),
    "env inside": ('stop: ["x ${oc.env:FOREDRAFT_TEST_SECRET} y"]', "other.key"),
    "env nested": ("seed: 3\nstop: ['${oc.${a}:FOREDRAFT_TEST_SECRET}']", "other.key"),
    "env as key": ("stop:\n  - ${oc.env:FOREDRAFT_TEST_SECRET}: 1", "cannot hold"),
    "resolver": ("stop: ['${oc.decode:x}']", "other.key"),
    "tag": ("stop: !!python/object/apply:os.system ['touch MARKER']", "tag"),
    "tag new": ("stop: !!python/object/new:trap_module.f [x]", "tag"),
    "tag module": ("stop: !!python/module:trap_module ''", "tag"),
    "tag own": ("stop: !evil x", "tag"),
    "tag key": ("!!python/name:trap_module.f x: 3", "plain word"),
    "bomb": ("a: &a [x, x]\nb: &b [*a, *a]\nstop: [*b, *b]", "alias"),
    "merge": ("a: &a {x: 1}\nb: {<<: *a}", "alias"),
    "deep": ("stop: " + "[" * 60 + "]" * 60, "levels"),
    "very deep": ("stop: " + "[" * 50_000, "levels"),
    "large": ("stop: [" + "x, " * 100_000 + "]", "bytes"),
    "two documents": ("seed: 1\n---\nseed: 2", "YAML"),
    "list": ("- seed", "key: value"),
    "writes a file": ("out: MARKER", "only an override may set it"),
    "reads a file": ("prompts: /etc/passwd", "only an override may set it"),
    "remote code": (
        "defaults:\n  - override /target: causal_lm\ntarget: {trust_remote_code: true}",
        "only an override may set it",
    ),
    "part by path": ("drafter: {name: ../../outside}", "unknown drafter"),
    "part by module": ("drafter: {name: trap_module}", "unknown drafter"),
}


@pytest.mark.parametrize("text, message", FILES.values(), ids=FILES)
def test_hostile_files(scene: Scene, text: str, message: str) -> None:
    scene.write("experiment/mine.yaml", f"# @package _global_\n{text}\n")
    assert message in scene.refused("experiment=mine")


def test_a_hostile_file_is_refused_although_nothing_names_it(scene: Scene) -> None:
    scene.write("some/where/else.yaml", "x: {_target_: trap_module.f}\n")
    assert "'some/where/else.yaml' in the config folder" in scene.refused()
    with pytest.raises(ConfigError, match="_target_"):
        expand_sweep(["seed=1,2"], scene.folder)


@pytest.mark.parametrize(
    "header", ["hydra", "hydra.callbacks", "_global_.hydra", "_group_.hydra.x"]
)
def test_a_file_cannot_put_its_keys_into_hydra(scene: Scene, header: str) -> None:
    scene.write("experiment/mine.yaml", f"\n#   @package {header}\nx: 1\n")
    assert "hydra" in scene.refused("experiment=mine")


@pytest.mark.parametrize("name", ["hydra/launcher/x.yaml", "hydra.yaml", "a/hydra/x.yaml"])
def test_a_folder_cannot_bring_hydra_configs(scene: Scene, name: str) -> None:
    scene.write(name, "x: 1\n")
    assert "hydra" in scene.refused()


def test_links_out_of_the_folder_are_refused(scene: Scene) -> None:
    link = scene.folder / "experiment/mine.yaml"
    link.symlink_to(scene.folder.parent / "outside.yaml")
    assert "a link that leaves the folder" in scene.refused("experiment=mine")
    link.unlink()
    (scene.folder / "more").symlink_to("/etc")
    assert "a link that leaves the folder" in scene.refused()


def test_a_link_to_itself_is_refused(scene: Scene) -> None:
    (scene.folder / "experiment/mine.yaml").symlink_to("mine.yaml")
    assert "must be a file" in scene.refused("experiment=mine")


def test_a_link_inside_the_folder_is_fine(scene: Scene) -> None:
    scene.write("store/mine.yaml", "# @package _global_\nseed: 5\n")
    (scene.folder / "experiment/mine.yaml").symlink_to("../store/mine.yaml")
    assert as_dict(compose(["experiment=mine"], scene.folder))["seed"] == 5


def test_odd_files_are_refused_without_hanging(scene: Scene) -> None:
    import os

    os.mkfifo(scene.folder / "pipe.yaml")
    assert "must be a file" in scene.refused()
    (scene.folder / "pipe.yaml").unlink()
    scene.write("experiment/mine.yml", "seed: 1\n")
    assert "must end in .yaml" in scene.refused()
    (scene.folder / "experiment/mine.yml").unlink()
    (scene.folder / "experiment/mine.yaml").write_bytes(b"\xff\xfeh\x00y\x00d\x00r\x00a\x00")
    assert "not a readable YAML file" in scene.refused("experiment=mine")


def test_a_whole_disk_is_not_scanned(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    from foredraft.framework.config import safety

    monkeypatch.setattr(safety, "MAX_ENTRIES", 20)
    for index in range(30):
        scene.write(f"many/{index}.txt", "")
    assert "more than 20 entries" in scene.refused()


def test_remote_code_by_hand_stays_possible(scene: Scene) -> None:
    given = ["target=causal_lm", "target.model=a/b", "target.trust_remote_code=true"]
    assert as_dict(compose(given))["target"]["trust_remote_code"] is True


def test_plain_references_stay_possible(scene: Scene) -> None:
    scene.write(
        "experiment/mine.yaml", "# @package _global_\nseed: 3\npolicy: {gamma: '${seed}'}\n"
    )
    assert as_dict(compose(["experiment=mine"], scene.folder))["policy"]["gamma"] == 3
