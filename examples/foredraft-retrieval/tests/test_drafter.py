"""What is drafted, what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from foredraft.framework import Answer, ForedraftError, load

DATA = Path(__file__).parent / "data"
TABLE = ("target=table", "policy.gamma=4")


def drafted(folder: Path, prompt: list[int], *overrides: str) -> list[list[int]]:
    """What each round of a run drafts."""
    found: list[list[int]] = []
    engine = load(*TABLE, "drafter=retrieval", f"drafter.path={folder}", *overrides)
    answer = Answer(engine.request(prompt, 0, max_new_tokens=8))
    for round in engine.run([answer]):
        found.append(round.rows[0].drafted)
    return found


def test_the_longest_match_is_copied(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("3 4 5 6 7\n0 4 5 1 1")
    assert drafted(tmp_path, [0, 4, 5])[0] == [1, 1]
    assert drafted(tmp_path, [3, 4, 5])[0] == [6, 7, 0, 4]


def test_a_tree_has_what_followed_at_several_places(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("4 5 6 7")
    (tmp_path / "b.txt").write_text("4 5 1 1")
    tree = ("verifier=recursive", "drafter.branches=2")
    assert sorted(drafted(tmp_path, [4, 5], *tree)[0]) == [1, 1, 6, 7]
    assert drafted(tmp_path, [4, 5], *tree, "drafter.nodes=3")[0] == [1, 1, 6]


def test_no_match_is_a_plain_step(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("4 5 6 7")
    assert drafted(tmp_path, [5, 4])[0] == []
    assert drafted(tmp_path, [6, 7], "drafter.min_match=1")[0] == []  # the document ends there


def test_greedy_answers_are_those_of_plain_decoding() -> None:
    prompts = [[0, 1, 2], [2, 1], [1]]
    plain = load(*TABLE, "drafter=none").generate_many(prompts, max_new_tokens=30)
    chosen = ("drafter=retrieval_tree", "verifier=recursive", f"drafter.path={DATA}")
    ours = load(*TABLE, *chosen, "drafter.min_match=1").generate_many(prompts, max_new_tokens=30)
    assert [answer.token_ids for answer in ours] == [answer.token_ids for answer in plain]


def test_the_experiment_chooses_the_drafter() -> None:
    engine = load("experiment=documents", "target=table", f"drafter.path={DATA}")
    assert engine.generate([0, 1, 2, 0, 1], max_new_tokens=9).metrics.drafted > 0


FILES = {
    "latin.txt": "naïve".encode("latin-1"),
    "blank.txt": b"\n",
    "words.txt": b"0 1 words",
    "high.txt": b"0 1 8",
    "good.txt": b"0 1",
}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("drafter.max_match=9", "drafter.path is not set"),
        ("drafter.path=nowhere", "drafter.path=nowhere does not exist"),
        ("drafter.glob=*.md", "no file that fits drafter.glob='*.md'"),
        ("drafter.glob=/x", "drafter.glob='/x' is not a pattern of files"),
        ("drafter.path=latin.txt", "latin.txt is not UTF-8"),
        ("drafter.path=blank.txt", "no text"),
        ("drafter.path=words.txt", "'words'"),
        ("drafter.path=high.txt", "0 to 7"),
        ("drafter.branches=0", "branches=0 must be at least 1"),
        ("drafter.min_match=20", "min_match=20 is above max_match=16"),
        ("drafter.path=1", "drafter.path=1 is not possible; it must be text"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(
    override: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    folder = ["drafter.path=."] if "glob" in override else []
    with pytest.raises(ForedraftError) as refusal:
        load(*TABLE, "drafter=retrieval", *folder, override)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)
