"""``foredraft check``: what it runs, what it prints, what it refuses."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_helpers import Cli, make_cli, refused

from foredraft.framework import plugins
from foredraft.framework.cli.check import parse, subject_from
from foredraft.framework.cli.check_report import show
from foredraft.framework.specs import VerifierSpec
from foredraft.framework.testing.kit import Check, Outcome, Subject, checks_of, subject_of

FILE = """
    import sys
    from dataclasses import dataclass
    from foredraft.framework import VerifierSpec, hookimpl

    @dataclass
    class Config:
        bound: float = 0.5

    def lying(config):
        from foredraft.verifiers.token import TokenVerifier
        print("built")
        class Lying(TokenVerifier):
            lossless = False
        return Lying()

    def leaving(config):
        sys.exit(0)

    @hookimpl
    def foredraft_verifiers():
        yield VerifierSpec("lying", lying, Config, contract=1)
        yield VerifierSpec("leaving", leaving, Config, contract=1)
"""
TOKEN = ("check", "verifier=token", "--only", "declared_abilities")


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cli]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOREDRAFT_PLUGINS", "")
    Path("mine.py").write_text(textwrap.dedent(FILE))
    plugins.reset()
    yield make_cli(capsys)
    plugins.reset()


# --- what it prints ----------------------------------------------------------------------------


def test_a_row_for_each_check_and_a_last_line(cli: Cli) -> None:
    done = cli(*TOKEN, "inputs_unchanged")
    assert done.code == 0 and done.err == ""
    lines = done.out.splitlines()
    assert lines[0] == "verifier token: nothing to set"
    assert lines[1].split()[:3] == ["check", "outcome", "seconds"]
    rows = {line.split()[0]: line.split() for line in lines[3:-2]}
    assert rows["declared_abilities"][1] == rows["inputs_unchanged"][1] == "passed"
    assert float(rows["inputs_unchanged"][2]) >= 0
    assert lines[-1] == "2 passed, 0 failed, 0 skipped"


def test_a_failure_says_what_was_found_and_why_it_matters(cli: Cli) -> None:
    (declared,) = (one for one in checks_of("verifier") if one.name == "declared_abilities")
    words = ("--plugin", "mine.py", "check", "verifier=lying", "--only", "declared_abilities")
    done = cli(*words)
    assert done.code == 1 and "built" in done.err and "built" not in done.out
    assert "declared_abilities  failed" in done.out
    assert "  found: " in done.out and "lossless" in done.out
    assert f"  why it matters: {declared.why}" in done.out
    assert done.out.endswith("0 passed, 1 failed, 0 skipped\n")


def test_a_part_that_ends_the_program_has_failed(cli: Cli) -> None:
    words = ("--plugin", "mine.py", "check", "verifier=leaving", "--only", "declared_abilities")
    done = cli(*words)
    assert done.code == 1 and "SystemExit" in done.out


def test_a_skipped_check_says_why(cli: Cli) -> None:
    done = cli("check", "--plugin", "mine.py", "verifier=lying", "--only", "light_import")
    assert done.code == 0 and "skipped: " in done.out
    assert done.out.endswith("0 passed, 0 failed, 1 skipped\n")


def test_json_is_one_object(cli: Cli) -> None:
    words = ("check", "verifier=lying", "--json", "verifier.bound=0.25", "seed=7", "--only")
    done = cli("--plugin", "mine.py", *words, "declared_abilities,light_import")
    report = json.loads(done.out)
    assert done.code == 1
    assert (report["kind"], report["name"]) == ("verifier", "lying")
    assert (report["config"], report["seed"]) == ({"bound": 0.25}, 7)
    assert (report["passed"], report["failed"], report["skipped"]) == (0, 1, 1)
    by_name = {row["check"]: row for row in report["checks"]}
    failed = by_name["declared_abilities"]
    assert failed["status"] == "failed" and "lossless" in failed["detail"]
    assert failed["why"] and failed["meaning"] and failed["seconds"] >= 0


def test_rows_appear_as_checks_end(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[str] = []
    checks = [Check("verifier", name, "is so", "or else", lambda s: None) for name in ("a", "b")]

    def run(one: Check, subject: Subject) -> Outcome:
        seen.append(capsys.readouterr().out)
        return Outcome(one, "passed", seconds=1.5)

    show(subject_of("verifier", "token"), checks, run)
    assert "a " not in seen[0].splitlines()[-1] and "1.50  is so" in seen[1]


def test_colours_are_for_terminals_only(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in cli(*TOKEN).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[32mpassed" in cli(*TOKEN).out


def test_checks_are_listed_with_their_meaning(cli: Cli) -> None:
    for argv, kinds in (
        (("--list",), ("drafter", "verifier", "policy")),
        (("--list", "policy"), ("policy",)),
        (("verifier=token", "--list"), ("verifier",)),
    ):
        done = cli("check", *argv)
        assert done.code == 0
        for kind in ("drafter", "verifier", "policy"):
            assert (f"checks of a {kind}" in done.out) == (kind in kinds)
    found = json.loads(cli("check", "--list", "--json", "verifier").out)
    assert list(found) == ["verifier"]
    assert [row["check"] for row in found["verifier"]] == [c.name for c in checks_of("verifier")]


def test_help(cli: Cli) -> None:
    done = cli("check", "--help")
    assert done.code == 0 and "foredraft check drafter=NAME" in done.out and done.err == ""


# --- what it runs ------------------------------------------------------------------------------


def test_presets_and_keys_are_composed_like_any_config() -> None:
    subject = subject_from(parse(["drafter=bigram"]))
    assert (subject.name, subject.config.order, subject.target) == ("ngram", 2, None)
    words = ["drafter=ngram", "--only", "rollback", "seeds", "drafter.order=4", "seed=3"]
    asked = parse(words)
    assert asked.only == ["rollback", "seeds"]
    assert asked.overrides == ["drafter=ngram", "drafter.order=4", "seed=3"]


def test_a_target_is_built_when_it_is_named() -> None:
    subject = subject_from(parse(["target=table", "drafter=ngram", "target.vocab_size=5"]))
    assert subject.target is not None and subject.target.vocab_size == 5
    assert subject_from(parse(["drafter=ngram", "seed=4"])).seed == 4


def test_a_users_preset(tmp_path: Path) -> None:
    (tmp_path / "drafter").mkdir()
    (tmp_path / "drafter/far.yaml").write_text("defaults: [ngram, _self_]\norder: 5\n")
    subject = subject_from(parse(["drafter=far", "--config-dir", str(tmp_path)]))
    assert subject.config.order == 5


# --- what it refuses ---------------------------------------------------------------------------

REFUSED = {
    "nothing": ((), ("needs one of drafter=NAME",)),
    "two kinds": (("drafter=ngram", "policy=fixed"), ("one of", "has drafter and policy")),
    "twice": (("drafter=ngram", "drafter=none"), ("has drafter and drafter",)),
    "keys alone": (("drafter.order=2",), ("needs one of",)),
    "no override": (("ngram",), ("does not take 'ngram'",)),
    "another key": (("drafter=ngram", "prompt=x"), ("does not take 'prompt=x'",)),
    "misspelt": (("drafer=ngram",), ("did you mean 'drafter'",)),
    "name": (("drafter=ngarm",), ("unknown drafter 'ngarm'", "did you mean 'ngram'")),
    "key": (("drafter=ngram", "drafter.ordr=2"), ("did you mean 'order'",)),
    "value": (("drafter=ngram", "drafter.order=0"), ("drafter.order=0", "1 to 6")),
    "several": (("drafter=ngram,none",), ("lists several",)),
    "no effect": (("policy=fixed", "drafter.order=2"), ("no effect on checks of a policy",)),
    "target": (("verifier=token", "target=table"), ("no effect on checks of a verifier",)),
    "seed": (("verifier=token", "seed=x"), ("seed='x'",)),
    "no seed": (("verifier=token", "seed=null"), ("seed=null", "repeatable")),
    "check": (("verifier=token", "--only", "joint_low"), ("no check 'joint_low'",)),
    "no check": (("verifier=token", "--only", ","), ("--only needs the name",)),
    "option": (("verifier=token", "--jsn"), ("--jsn",)),
    "model": (("drafter=ngram", "target=causal_lm"), ("target.model is empty",)),
}


@pytest.mark.parametrize(("argv", "words"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_one_sentence(cli: Cli, argv: tuple[str, ...], words: tuple[str, ...]) -> None:
    refused(cli("check", *argv), *words)


@dataclass
class Infinite:
    """One value.

    Args:
        bound: has no end.
    """

    bound: float = float("inf")


def test_json_has_no_infinity(cli: Cli) -> None:
    plugins.register(VerifierSpec("endless", lambda config: None, Infinite, contract=1))
    done = cli("check", "verifier=endless", "--json", "--only", "light_import")
    assert json.loads(done.out)["config"] == {"bound": "inf"}
