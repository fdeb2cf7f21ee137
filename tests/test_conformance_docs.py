"""The page on conformance says what the checks and the planted faults say of themselves."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from all_planted import PLANTED

from foredraft.framework.testing.kit import checks_of

PAGE = Path(__file__).parent.parent / "docs/conformance.md"
if not PAGE.exists():  # the installed wheel is tested from a folder that holds tests only
    pytest.skip("the documentation is not here", allow_module_level=True)
LEAST = {"drafter": 30, "verifier": 12, "policy": 6}
REMEDY = "run python benchmarks/conformance.py page"


def generated(marker: str) -> str:
    """The text between a pair of markers."""
    pattern = rf"<!-- begin: {marker} -->\n(.*?)<!-- end: {marker} -->"
    (found,) = re.findall(pattern, PAGE.read_text("utf-8"), re.DOTALL)
    return str(found)


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("kind", PLANTED)
def test_every_check_is_on_the_page_in_its_own_words(kind: str) -> None:
    text = one_line(generated(f"checks of a {kind}"))
    entries = re.findall(
        r"- \*\*`(\w+)`\*\*(?: \([^)]*\))?: (.*?) \*Why:\* (.*?)(?= - \*\*`|$)", text
    )
    due = [(one.name, one_line(one.meaning), one_line(one.why)) for one in checks_of(kind)]
    assert entries == due, REMEDY


@pytest.mark.parametrize("kind", PLANTED)
def test_every_planted_fault_is_on_the_page_with_the_check_that_catches_it(kind: str) -> None:
    lines = generated(f"planted in a {kind}").strip().splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    names = [[row[0].strip("`"), row[1], row[2].split(",")[0].strip("` ")] for row in rows]
    assert names == [[p.name, p.what, p.caught_by[0]] for p in PLANTED[kind]], REMEDY


@pytest.mark.parametrize("kind", PLANTED)
def test_the_checks_that_planted_faults_name_are_there(kind: str) -> None:
    known = {one.name for one in checks_of(kind)}
    wrong = {p.name: set(p.caught_by) - known for p in PLANTED[kind] if set(p.caught_by) - known}
    assert not wrong and len(PLANTED[kind]) >= LEAST[kind]
    assert all(p.kind == kind for p in PLANTED[kind])


def test_the_order_of_checks_is_not_that_of_imports() -> None:
    code = (
        "import foredraft.framework.testing.kit.verifiers, sys;"
        "from foredraft.framework.testing.kit import checks_of;"
        "print(*(one.name for one in checks_of('verifier')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [one.name for one in checks_of("verifier")]
