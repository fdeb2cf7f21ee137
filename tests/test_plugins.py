"""Plugins: found by entry point, checked one by one, never able to stop each other."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from foredraft.framework import plugins
from foredraft.framework.errors import ConfigError, PluginFault
from foredraft.framework.plugins import hookimpl, register, registry
from foredraft.framework.specs import DrafterSpec, PolicySpec, VerifierSpec


@dataclass
class EchoConfig:
    distance: int = 8


def build(config: Any, target: Any = None) -> Any:
    raise AssertionError("listing must not build")


def drafter(name: Any = "echo", **changes: Any) -> DrafterSpec:
    return DrafterSpec(
        **{"name": name, "factory": build, "config": EchoConfig, "contract": 1, **changes}
    )


def offering(*specs: Any) -> SimpleNamespace:
    @hookimpl
    def foredraft_drafters() -> list[Any]:
        return list(specs)

    return SimpleNamespace(foredraft_drafters=foredraft_drafters)


pytestmark = pytest.mark.usefixtures("only_builtins")


def install(site: Path, name: str, source: str, version: str = "1.0") -> None:
    """What an installer leaves behind: a module and the metadata of its distribution."""
    (site / f"{name}.py").write_text(textwrap.dedent(source))
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[foredraft]\n{name}_point = {name}\n")


PLUGIN = """
    from dataclasses import dataclass
    from foredraft.framework.plugins import hookimpl
    from foredraft.framework.specs import DrafterSpec

    @dataclass
    class Config:
        distance: int = 8

    @hookimpl
    def foredraft_drafters():
        yield DrafterSpec("{name}", lambda config, target: None, Config, "a test", contract=1)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed distributions, forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("FOREDRAFT_PLUGINS")
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def causes() -> dict[str, str]:
    return {fault.source.distribution: fault.cause for fault in registry().broken()}


# --- what is there ------------------------------------------------------------------------------


def test_builtins_come_through_the_same_hooks() -> None:
    assert registry().broken() == []
    assert registry().names("target") == ["causal_lm", "smollm2", "table"]
    assert {"none", "prompt_lookup", "ngram", "causal_lm"} <= set(registry().names("drafter"))
    assert {"token", "greedy"} <= set(registry().names("verifier"))
    assert "fixed" in registry().names("policy")


def test_hook_foredraft_drafters() -> None:
    register(offering(drafter("echo", summary="repeats")), "mine")
    offer = registry().find("drafter", "echo")
    row = (offer.kind, offer.distribution, offer.version, offer.summary, offer.lossless)
    assert row == ("drafter", "mine", "in process", "repeats", None)
    assert offer in registry().offers("drafter")


def test_hook_foredraft_verifiers() -> None:
    @hookimpl
    def foredraft_verifiers() -> list[VerifierSpec]:
        return [VerifierSpec("lossy", build, EchoConfig, lossless=False, contract=1)]

    register(SimpleNamespace(foredraft_verifiers=foredraft_verifiers), "mine")
    assert registry().find("verifier", "lossy").lossless is False
    assert registry().find("verifier", "token").lossless is True


def test_hook_foredraft_policies() -> None:
    @hookimpl
    def foredraft_policies() -> list[PolicySpec]:
        return [PolicySpec("ramp", build, EchoConfig, contract=1)]

    register(SimpleNamespace(foredraft_policies=foredraft_policies), "mine")
    assert "ramp" in registry().names("policy")


def test_registering_again_replaces() -> None:
    register(offering(drafter("echo", summary="old")), "mine")
    register(offering(drafter("echo", summary="new")), "mine")
    assert registry().find("drafter", "echo").summary == "new"


def test_a_hook_that_returns_none_offers_nothing() -> None:
    @hookimpl
    def foredraft_drafters() -> None:
        return None

    register(SimpleNamespace(foredraft_drafters=foredraft_drafters), "mine")
    with pytest.raises(ConfigError, match="unknown drafter 'x'; known: .*ngram"):
        registry().get("drafter", "x")


def test_an_unknown_name_shows_the_near_match() -> None:
    with pytest.raises(ConfigError, match="unknown drafter 'ngarm'; did you mean 'ngram'. known: "):
        registry().get("drafter", "ngarm")
    with pytest.raises(ConfigError, match="no kind of part 'draughter'; kinds: target, drafter"):
        registry().get("draughter", "ngram")


# --- what is refused ----------------------------------------------------------------------------

BAD_SPECS = {
    "wrong type": (
        VerifierSpec("echo", build, EchoConfig, contract=1),
        "gave a VerifierSpec.*DrafterSpec",
    ),
    "not a spec": ("echo", "gave a str"),
    "contract": (drafter(contract=2), "version 2 of the plugin contract .* has version 1"),
    "capitals": (drafter("Echo"), "'Echo' is not a possible name"),
    "path": (drafter("../echo"), "not a possible name"),
    "no text": (drafter(3), "3 is not a possible name"),
    "yaml word": (drafter("off"), "'off' is not a possible name"),
    "our preset": (drafter("unigram"), "the name of a preset that ships"),
    "config": (drafter(config=dict), "must be a dataclass"),
    "factory": (drafter(factory=None), "must be callable"),
}


@pytest.mark.parametrize("spec, message", BAD_SPECS.values(), ids=BAD_SPECS)
def test_a_bad_spec_is_refused(spec: Any, message: str) -> None:
    with pytest.raises(PluginFault, match=f"plugin 'mine' of mine in process: .*{message}"):
        register(offering(spec), "mine")


def test_config_fields_are_checked() -> None:
    @dataclass
    class Required:
        distance: int

    @dataclass
    class Named:
        name: str = "x"

    @dataclass
    class Callback:
        call: set[int] = None  # type: ignore[assignment]

    for config, message in (
        (Required, "no default for 'distance'"),
        (Named, "a field called 'name'"),
        (Callback, "a type that a config cannot hold"),
    ):
        with pytest.raises(PluginFault, match=message):
            register(offering(drafter(config=config)), "mine")


def test_the_same_name_twice_in_one_plugin() -> None:
    with pytest.raises(PluginFault, match="offers drafter 'echo' twice"):
        register(offering(drafter(), drafter()), "mine")


def test_a_misspelt_hook_shows_the_near_match() -> None:
    plugin = SimpleNamespace(foredraft_draftres=offering().foredraft_drafters)
    with pytest.raises(PluginFault, match="foredraft_draftres.*did you mean 'foredraft_drafters'"):
        register(plugin, "mine")


def test_a_hook_without_its_mark_is_refused() -> None:
    with pytest.raises(PluginFault, match="not marked with @hookimpl"):
        register(SimpleNamespace(foredraft_drafters=lambda: []), "mine")


@pytest.mark.parametrize("signature", ["config", "config=None", "**options", "*rest"])
def test_hook_arguments_that_the_hook_lacks_are_refused(signature: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def foredraft_drafters({signature}): return []", scope)  # one body, four signatures
    plugin = SimpleNamespace(foredraft_drafters=hookimpl(scope["foredraft_drafters"]))
    with pytest.raises(PluginFault, match="has the argument .*; the hook has: none"):
        register(plugin, "mine")


def test_hook_foredraft_config_packages(site: Path) -> None:
    def packages(*paths: str) -> SimpleNamespace:
        @hookimpl
        def foredraft_config_packages() -> list[str]:
            return list(paths)

        return SimpleNamespace(foredraft_config_packages=foredraft_config_packages)

    (site / "presets/drafter").mkdir(parents=True)
    with pytest.raises(PluginFault, match="no package with an __init__"):
        register(packages("pkg://presets"), "mine")
    (site / "presets/__init__.py").touch()
    sys.path_importer_cache.clear()
    register(packages("pkg://presets"), "mine")
    assert ("mine", "pkg://presets") in registry().config_packages()
    (site / "presets/drafter/bigram.yaml").write_text("defaults: [ngram, _self_]\n")
    with pytest.raises(PluginFault, match="'bigram' is the name of a preset that ships"):
        register(packages("pkg://presets"), "mine")
    for path in ("file:///etc", "/etc", "presets", "pkg://../x"):
        with pytest.raises(PluginFault, match="must give 'pkg://"):
            register(packages(path), "mine")


# --- installed distributions --------------------------------------------------------------------

BROKEN = {
    "syntax": ("def broken(:\n", "SyntaxError"),
    "missing": ("import no_such_module_anywhere\n", "no_such_module_anywhere"),
    "raising": ("raise RuntimeError('two\\nlines')\n", "RuntimeError: two lines"),
    "exiting": ("raise SystemExit(3)\n", "SystemExit"),
    "hook": (PLUGIN.format(name="x") + "        raise ValueError('late')\n", "ValueError: late"),
    "future": (PLUGIN.format(name="x").replace("contract=1", "contract=7"), "version 7"),
}


def test_broken_plugins_are_reported_and_stop_nobody(site: Path) -> None:
    for name, (source, _) in BROKEN.items():
        install(site, f"bad_{name}", source)
    install(site, "good", PLUGIN.format(name="echo"))
    (site / "torn-1.0.dist-info").mkdir()
    (site / "torn-1.0.dist-info/METADATA").write_text("Name: torn\nVersion: 1.0\n")
    (site / "torn-1.0.dist-info/entry_points.txt").write_text("[foredraft]\nno equals sign\n")
    assert "echo" in registry().names("drafter")
    assert set(causes()) == {f"bad_{name}" for name in BROKEN} | {"torn"}
    for name, (_, cause) in BROKEN.items():
        assert re.search(cause, causes()[f"bad_{name}"]), causes()
    assert not any("\n" in cause for cause in causes().values())


def test_an_unknown_name_mentions_the_broken_plugin(site: Path) -> None:
    install(site, "halfway", "import no_such_module_anywhere\n")
    with pytest.raises(ConfigError, match="unknown drafter 'far'.*'halfway_point'.*no_such_module"):
        registry().get("drafter", "far")


def test_two_packages_offering_one_name(site: Path) -> None:
    for package in ("first", "second"):
        install(site, package, PLUGIN.format(name="echo"))
    with pytest.raises(ConfigError, match="'echo' is offered by first 1.0 .* and second 1.0"):
        registry().get("drafter", "echo")
    assert "echo" not in registry().names("drafter")
    rows = [o for o in registry().offers() if o.name == "echo"]
    assert [o.distribution for o in rows] == ["first", "second"] and all(o.fault for o in rows)


def test_a_plugin_cannot_take_a_builtin_name(site: Path) -> None:
    install(site, "usurper", PLUGIN.format(name="ngram"))
    with pytest.raises(ConfigError, match="'ngram' is offered by foredraft .* and usurper"):
        registry().get("drafter", "ngram")


def test_plugins_can_be_chosen_and_blocked(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "first_one", PLUGIN.format(name="a"))
    install(site, "second", PLUGIN.format(name="b"))
    monkeypatch.setenv("FOREDRAFT_PLUGINS", "First.One, absent")
    assert {"a"} == {o.name for o in registry().offers() if o.version == "1.0"}
    assert "not installed" in causes()["absent"]
    plugins.reset()
    monkeypatch.delenv("FOREDRAFT_PLUGINS")
    monkeypatch.setenv("FOREDRAFT_BLOCK_PLUGINS", "second_point")
    assert {"a"} == {o.name for o in registry().offers() if o.version == "1.0"}
    assert "FOREDRAFT_BLOCK_PLUGINS" in causes()["second"]


def test_what_a_plugin_prints_stays_out_of_standard_output(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(site, "loud", "print('hello')\n" + textwrap.dedent(PLUGIN.format(name="echo")))
    assert "echo" in registry().names("drafter")
    assert capsys.readouterr().out == ""


LISTING = """
import json, sys
from foredraft.framework.plugins import registry
rows = [(o.kind, o.name, o.summary) for o in registry().offers()]
heavy = [m for m in ("torch", "transformers", "numpy") if m in sys.modules]
from foredraft.framework.config import as_dict, compose, expand_sweep
chosen = as_dict(compose(["drafter=echo", "drafter.distance=3"]))["drafter"]
swept = expand_sweep(["drafter=none,echo", "seed=range(0,2)"])
globbed = expand_sweep(["drafter=glob(ec*)"])
presets = as_dict(compose(["drafter=echo_far"]))["drafter"]
heavy += [m for m in ("torch", "transformers") if m in sys.modules]
print(json.dumps([rows, heavy, chosen, swept, globbed, presets]))
"""


def test_an_installed_plugin_needs_no_core_edit(tmp_path: Path) -> None:
    """Listed, chosen, overridden with types, swept and preset by name; nothing heavy imported."""
    import json

    hook = '@hookimpl\ndef foredraft_config_packages():\n    return ["pkg://echo_presets"]\n'
    install(tmp_path, "outside", textwrap.dedent(PLUGIN.format(name="echo")) + hook)
    (tmp_path / "echo_presets/drafter").mkdir(parents=True)
    (tmp_path / "echo_presets/__init__.py").touch()
    preset = tmp_path / "echo_presets/drafter/echo_far.yaml"
    preset.write_text("defaults: [echo, _self_]\ndistance: 99\n")
    paths = [str(tmp_path), *filter(None, sys.path)]
    environment = {"PYTHONPATH": ":".join(paths), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", LISTING],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows, heavy, chosen, swept, globbed, presets = json.loads(done.stdout)
    assert ["drafter", "echo", "a test"] in rows and heavy == []
    assert chosen == {"name": "echo", "distance": 3}
    assert len(swept) == 4 and ["drafter=echo", "seed=1"] in swept
    assert globbed == [["drafter=echo"], ["drafter=echo_far"]]
    assert presets == {"name": "echo", "distance": 99}


def test_pluggy_is_used_through_its_public_names() -> None:
    folder = Path(plugins.__file__).parent
    for path in folder.glob("*.py"):
        assert not re.search(r"pluggy\._|from pluggy import _|manager\._", path.read_text()), path
