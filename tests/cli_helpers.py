"""What the tests of the command line share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from foredraft.framework.cli.main import main


class Done(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[Any]:
        """Standard output as strict JSON, an object a line."""
        return [json.loads(line, parse_constant=_refuse) for line in self.out.splitlines()]


Cli = Callable[..., Done]


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


def make_cli(capsys: pytest.CaptureFixture[str], *first: str) -> Cli:
    """Calls ``main`` with the given arguments behind the first ones."""

    def run(*argv: str) -> Done:
        capsys.readouterr()
        code = main([*first, *argv])
        return Done(code, *capsys.readouterr())

    return run


def refused(done: Done, *words: str) -> None:
    """One sentence on standard error that has the words, and nothing on standard output."""
    assert done.code == 2 and done.out == "", done
    lines = [line for line in done.err.splitlines() if not line.startswith("--- run")]
    assert len(lines) == 1 and lines[0].startswith("foredraft: "), done.err
    for word in words:
        assert word in lines[0]
