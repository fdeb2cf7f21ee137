"""``foredraft check``: tries to break what a drafter, verifier or policy promises."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import ConfigError, near_match
from .options import OneLineParser

if TYPE_CHECKING:
    from ..interfaces import Target
    from ..testing.kit import Check, Outcome, Subject

KINDS = ("drafter", "verifier", "policy")
KEYS = (*KINDS, "target", "seed")
USAGE = """\
foredraft check drafter=NAME [drafter.key=value ...] [options]
       foredraft check verifier=NAME ... | policy=NAME ... | --list [drafter|verifier|policy]"""
TEXT = """\
Runs the conformance kit on one part: on the CPU, without a download, in less than a minute. Each
check tries to break one promise of the contract; one that succeeds shows the smallest input.

  drafter=NAME     what to check: drafter=, verifier= or policy=, a preset too
  drafter.key=V    its config, as for foredraft generate
  target=NAME      what the drafter drafts for, in place of the kit's tiny targets; target.key=V
  seed=N           of everything random (default 0)"""


@dataclass
class Asked:
    """A command line, taken apart.

    Args:
        kind: of the part that is checked; empty with ``--list`` alone.
        overrides: for Hydra.
        only: names of checks, or None for all of them.
    """

    kind: str = ""
    overrides: list[str] = field(default_factory=list)
    only: list[str] | None = None
    config_dir: str | None = None
    as_json: bool = False
    list_only: bool = False


def check(argv: list[str]) -> int:
    """Runs the command: 0 if nothing failed, 1 otherwise."""
    asked = parse(argv)
    if asked.list_only:
        from .check_report import show_list

        show_list([asked.kind] if asked.kind else KINDS, asked.as_json)
        return 0
    subject = subject_from(asked)
    outcomes = run(subject, asked)
    return int(any(outcome.status == "failed" for outcome in outcomes))


def parse(argv: list[str]) -> Asked:
    """Takes the command line apart; refuses what is no part of it."""
    parser = OneLineParser("check", TEXT)
    parser.usage, parser.formatter_class = USAGE, argparse.RawDescriptionHelpFormatter
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", metavar="CHECK", help="run these checks alone")
    parser.add_argument("--list", action="store_true", help="print the checks and what they mean")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--config-dir", metavar="DIR", help="a folder with presets of your own")
    found = parser.parse_intermixed_args(argv)
    # `--only rollback drafter.order=2`: argparse takes all words that follow.
    names = [name for word in found.only or () if "=" not in word for name in word.split(",")]
    words = [*found.words, *(word for word in found.only or () if "=" in word)]
    if found.only is not None and not any(names):
        raise ConfigError("--only needs the name of a check; --list prints them.")
    only = [name for name in names if name] if found.only is not None else None
    asked = Asked("", [], only, found.config_dir, found.json, found.list)
    _sort(words, asked)
    return asked


def _sort(words: list[str], asked: Asked) -> None:
    kinds = []
    for word in words:
        key, equals, _ = word.partition("=")
        if asked.list_only and word in KINDS:
            kinds.append(word)
        elif not equals and word in KINDS:
            raise ConfigError(f"{word!r} names no {word}; write {word}=NAME.")
        elif not equals or key.split(".")[0] not in KEYS:
            raise ConfigError(
                f"foredraft check does not take {word!r}; {near_match(key, KEYS)}it takes "
                "drafter=NAME, verifier=NAME or policy=NAME with keys, target=NAME and seed=N."
            )
        else:
            asked.overrides.append(word)
            kinds += [key] if key in KINDS else []
    if len(kinds) > 1 or not (kinds or asked.list_only):
        raise ConfigError(
            f"foredraft check needs one of drafter=NAME, verifier=NAME and policy=NAME"
            f"{' and has ' + ' and '.join(kinds) if kinds else ''}."
        )
    asked.kind = kinds[0] if kinds else ""
    _check_kind(asked)


def _check_kind(asked: Asked) -> None:
    """Keys of other parts would have no effect, so they are refused."""
    allowed = (asked.kind, "seed", *(("target",) if asked.kind == "drafter" else ()))
    for word in asked.overrides:
        name, _, value = word.partition("=")
        if name == asked.kind and "," in value:
            raise ConfigError(f"{word!r} lists several; foredraft check takes one {asked.kind}.")
        if name.split(".")[0] not in allowed and not asked.list_only:
            raise ConfigError(f"{word!r} has no effect on checks of a {asked.kind}; leave it out.")


def subject_from(asked: Asked) -> Subject:
    """The part under test, its config composed like any other."""
    from ..config import as_dict, compose, to_objects

    config = as_dict(compose(asked.overrides, asked.config_dir))
    if config["seed"] is None:
        raise ConfigError("seed=null is not possible; checks have to be repeatable.")
    given = any(word.split("=")[0].split(".")[0] == "target" for word in asked.overrides)
    target: Target | None = None

    from ..factories import make_part
    from ..testing.kit import subject_of
    from ..testing.kit.report import selected

    selected(asked.kind, asked.only)  # an unknown name is refused before a target loads
    if given:
        chosen = to_objects(config).target
        target = make_part(chosen.spec, chosen.config)
    values = dict(config[asked.kind])
    return subject_of(asked.kind, values.pop("name"), values, config["seed"], target)


def run(subject: Subject, asked: Asked) -> list[Outcome]:
    """Runs the checks and prints what came out."""
    from ..testing.kit.report import selected
    from . import check_report

    checks = selected(subject.kind, asked.only)
    if not asked.as_json:
        return check_report.show(subject, checks, try_check)
    outcomes = [try_check(one, subject) for one in checks]
    print(json.dumps(check_report.as_dict(subject, outcomes), indent=2, default=str))
    return outcomes


def try_check(one: Check, subject: Subject) -> Outcome:
    """Runs one check; nothing that the part prints or exits with gets past it."""
    from ..testing.kit import Outcome, run_check

    try:
        with contextlib.redirect_stdout(sys.stderr):
            return run_check(one, subject)
    except SystemExit as end:
        return Outcome(one, "failed", f"it ended the program with SystemExit({end.code!r})")
