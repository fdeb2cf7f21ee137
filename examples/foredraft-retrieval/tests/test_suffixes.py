"""The index against a search through every place."""

from __future__ import annotations

import numpy as np
import pytest

from foredraft_retrieval.suffixes import END, Corpus, best_chains, suffix_array

Documents = list[list[int]]


def random_documents(seed: int, vocab: int) -> Documents:
    random = np.random.default_rng(seed)
    return [random.integers(0, vocab, random.integers(0, 40)).tolist() for _ in range(4)]


def places_behind(documents: Documents, query: list[int]) -> list[int]:
    """Every place behind the query that has an id, in the text of a corpus."""
    text = [token for document in documents for token in [*document, END]]
    ends = range(len(query), len(text))
    return [end for end in ends if text[end - len(query) : end] == query and text[end] != END]


@pytest.mark.parametrize("vocab", [1, 2, 30])
@pytest.mark.parametrize("depth", [1, 3, 100])
def test_suffixes_are_in_order(vocab: int, depth: int) -> None:
    for seed in range(10):
        text = np.random.default_rng(seed).integers(0, vocab, 60)
        starts = suffix_array(text, depth).tolist()
        assert sorted(starts) == list(range(60))
        cut = [text[start : start + depth].tolist() for start in starts]
        assert cut == sorted(cut)


@pytest.mark.parametrize("vocab", [1, 2, 5])
def test_the_longest_match_is_found_at_all_its_places(vocab: int) -> None:
    for seed in range(20):
        documents = random_documents(seed, vocab)
        corpus = Corpus(documents, longest=4)
        newest = np.random.default_rng(seed + 100).integers(0, vocab, 6).tolist()
        lengths = [n for n in range(2, 5) if places_behind(documents, newest[-n:])]
        expected = places_behind(documents, newest[-lengths[-1] :]) if lengths else []
        found = corpus.behind(newest, shortest=2, most=1000).tolist()
        assert sorted(found) == expected


def test_of_many_places_some_are_taken_that_lie_far_apart() -> None:
    corpus = Corpus([[7] * 100], longest=1)
    every = corpus.behind([7], 1, 1000).tolist()
    assert len(every) == 99
    assert corpus.behind([7], 1, 3).tolist() == [every[0], every[33], every[66]]


def test_nothing_is_read_across_the_end_of_a_document() -> None:
    corpus = Corpus([[1, 2, 3], [2, 3, 4, 5]], longest=2)
    places = corpus.behind([2, 3], 1, 10)  # the first document ends with the match
    assert corpus.read(places, 4).tolist() == [[4, 5, END, END]]
    assert corpus.behind([3, 2], 2, 10).tolist() == []


def test_a_prompt_shorter_than_the_shortest_match_has_none() -> None:
    corpus = Corpus([[1, 2, 3]], longest=4)
    assert corpus.behind([], 1, 10).tolist() == corpus.behind([1], 2, 10).tolist() == []
    assert best_chains(corpus.read(corpus.behind([], 1, 10), 3), 2) == []


def test_the_chain_that_most_places_share_comes_first() -> None:
    seen = np.array([[1, 5, 9], [2, 3, 4], [2, 3, 6], [2, 7, END], [8, END, END]])
    # Worths of the beginnings: 2 (three rows), 2 3 (two), and one for each of the others.
    assert best_chains(seen, 1) == [[2, 3, 4]]
    assert best_chains(seen, 5) == [[2, 3, 4], [1, 5, 9], [2, 3, 6], [2, 7], [8]]
    assert best_chains(seen, 9) == best_chains(seen, 5)  # there are no more
