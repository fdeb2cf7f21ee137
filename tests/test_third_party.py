"""A drafter from another distribution: built, installed, listed, selected, overridden and swept by
name, with no change here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "foredraft-parrot"
version = "2.3"

[project.entry-points.foredraft]
parrot = "foredraft_parrot"
"""

MODULE = '''\
"""Repeats the newest tokens."""

from dataclasses import dataclass

from foredraft.framework.plugins import hookimpl
from foredraft.framework.specs import DraftKind, DrafterSpec


@dataclass
class ParrotConfig:
    distance: int = 4


def build(config, target):
    from foredraft.framework import Drafter, TokenSession

    class Session(TokenSession):
        def continuation(self, row, gamma):
            return self.context.tokens[row][-config.distance :][:gamma]

    class Parrot(Drafter):
        def start(self, context):
            return Session(context)

    return Parrot()


@hookimpl
def foredraft_drafters():
    return [DrafterSpec("parrot", build, ParrotConfig, "repeats", kind=DraftKind("deterministic"), contract=1)]
'''


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the built package."""
    source, site = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    (source / "pyproject.toml").write_text(PYPROJECT)
    (source / "foredraft_parrot.py").write_text(MODULE)
    install = ["install", "-q", "--no-deps", "--no-build-isolation", "--target", str(site)]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, *install, str(source)], check=True, capture_output=True, timeout=300)
    return site


def foredraft(site: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "foredraft.framework.cli.main", *argv],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )


COMMON = ["generate", "target=table", "prompt=0 1 2 0 1", "max_new_tokens=8", "output=json"]


def test_it_is_listed_with_its_distribution(site: Path) -> None:
    done = foredraft(site, "plugins", "--json")
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert "parrot" in text
    assert "foredraft-parrot" in text
    assert "2.3" in text


def test_it_is_selected_and_overridden(site: Path) -> None:
    done = foredraft(site, *COMMON, "drafter=parrot", "drafter.distance=2", "policy.gamma=3")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["config"]["drafter"] == {"name": "parrot", "distance": 2}
    assert answer["metrics"]["drafted"] > 0


def test_it_is_swept(site: Path) -> None:
    done = foredraft(site, *COMMON, "-m", "drafter=none,parrot")
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [a["config"]["drafter"]["name"] for a in answers] == ["none", "parrot"]
    assert answers[0]["token_ids"] == answers[1]["token_ids"]


def test_its_keys_are_checked_like_ours(site: Path) -> None:
    done = foredraft(site, *COMMON, "drafter=parrot", "drafter.distanse=2")
    assert done.returncode != 0
    assert "distance" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
