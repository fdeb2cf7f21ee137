"""What a newcomer has to write beyond the mathematics: three whole plugins, one file each, counted,
used and checked.

Lines of pure mathematics (formulas over tensors) are marked ``# maths`` in the files.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_model

from foredraft.framework import Answer, ForedraftError, SamplingParams, Target, load
from foredraft.framework.plugins import register_file, reset
from foredraft.framework.targets.builtin import TableConfig
from foredraft.framework.targets.table import TableTarget
from foredraft.framework.testing import check_drafter, check_policy

FOLDER = Path(__file__).parent / "newcomers"
FILES = sorted(FOLDER.glob("*.py"))
MOST, MATHS = 15, "# maths"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    for file in FILES:
        register_file(file)
    yield
    reset()


@pytest.fixture
def weights(tmp_path: Path) -> str:
    """Of small_model.py, for the table target's default vocabulary."""
    return saved(tmp_path / "small.safetensors", TableConfig().vocab_size)


def saved(file: Path, vocab: int) -> str:
    """The same network as in small_model.py."""
    torch.manual_seed(5)
    layers = [torch.nn.Embedding(vocab + 1, 8), torch.nn.Flatten(), torch.nn.Tanh()]
    save_model(torch.nn.Sequential(*layers, torch.nn.Linear(32, vocab)), str(file))
    return str(file)


def other_lines(source: str) -> list[str]:
    """The lines that are neither blank, comment, docstring nor marked as mathematics."""
    lines = source.splitlines()
    strings = {
        number
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    code = {
        number
        for token in tokens
        if token.type not in (*skipped, tokenize.ENDMARKER)
        for number in range(token.start[0], token.end[0] + 1)
    }
    maths = {t.start[0] for t in tokens if t.type == tokenize.COMMENT and t.string == MATHS}
    return [lines[number - 1] for number in sorted(code - strings - maths)]


def maths(source: str) -> list[str]:
    """The lines that are marked as mathematics."""
    return [line.strip() for line in source.splitlines() if line.endswith(MATHS)]


def test_there_are_a_bigram_a_small_model_and_a_policy() -> None:
    assert [file.stem for file in FILES] == ["bigram", "small_model", "sure"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_there_is_little_to_write_beyond_the_mathematics(file: Path) -> None:
    lines = other_lines(file.read_text())
    assert len(lines) <= MOST, "\n".join(lines)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_is_called_mathematics_is_a_formula(file: Path) -> None:
    found = maths(file.read_text())
    assert 1 <= len(found) <= 6
    for line in found:
        assert ";" not in line
        assert not line.startswith(
            ("@", "class ", "def ", "import ", "from ", "for ", "if ", "with ")
        )


def test_the_count_counts() -> None:
    source = '"""Two\nlines."""\n\n# a comment\nimport x\n\ny = 1  # maths\nz = (\n    2\n)  # not maths\n'
    assert other_lines(source) == ["import x", "z = (", "    2", ")  # not maths"]


@pytest.mark.parametrize("drafter", ["my_bigram", "small_model"])
def test_a_newcomers_drafter_drafts_and_keeps_the_greedy_text(drafter: str, weights: str) -> None:
    path = [f"drafter.path={weights}"] if drafter == "small_model" else []
    engine = load(*path, target="table", drafter=drafter)
    plain = load(target="table", drafter="none")
    answer, due = (
        one.generate([0, 1, 2, 0, 1], max_new_tokens=24, sampling=greedy())
        for one in (engine, plain)
    )
    assert answer.token_ids == due.token_ids
    assert answer.metrics.drafted > 0


def test_a_newcomers_policy_stops_early() -> None:
    engine = load(target="table", drafter="my_bigram", policy="sure")
    sampled = SamplingParams(temperature=1.0)
    answer = Answer(engine.request([0, 1, 2, 0, 1], max_new_tokens=60, sampling=sampled))
    lengths = {len(row.drafted) for outcome in engine.run([answer]) for row in outcome.rows}
    assert len(lengths) > 2, "it drafted to the end, or not at all"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("", "is not a safetensors file"),
        ("other", r"does not fit the network for 8 ids: .*\[3, 8\]"),
    ],
)
def test_a_small_model_of_another_vocabulary_is_refused(
    path: str, words: str, tmp_path: Path
) -> None:
    if path:
        path = saved(tmp_path / path, vocab=2)
    with pytest.raises(ForedraftError, match=words):
        load(f"drafter.path={path}", target="table", drafter="small_model")


def test_the_bigram_learns_from_the_text() -> None:
    cycle = torch.eye(9, 8, dtype=torch.float64).roll(1, 1)
    target = TableTarget(cycle, order=1)
    engine = load("drafter.smoothing=0.001", "policy.gamma=4", target=target, drafter="my_bigram")
    answer = engine.generate([0, 1, 2, 3, 4, 5, 6, 7, 0], max_new_tokens=20, sampling=greedy())
    assert answer.metrics.rounds == 4, "five tokens in each: it had seen all of them"


@pytest.mark.parametrize("drafter", ["my_bigram", "small_model"])
def test_a_newcomers_drafter_passes_the_kit(drafter: str, weights: str) -> None:
    if drafter == "my_bigram":
        check_drafter("my_bigram")
    else:
        check_drafter("small_model", {"path": weights}, target=table())


def test_a_newcomers_policy_passes_the_kit() -> None:
    check_policy("sure")


def greedy() -> SamplingParams:
    return SamplingParams(temperature=0.0)


def table() -> Target:
    return TableTarget.from_config(TableConfig())
