"""Documents become ids of the target, whatever its tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest
from foredraft.framework import InputError
from foredraft.framework.targets.causal_lm import CausalLM
from foredraft.framework.testing.tiny import tiny_model
from foredraft.framework.testing.tiny_tokenizer import VOCAB, tiny_tokenizer

from foredraft_retrieval import RetrievalConfig
from foredraft_retrieval.documents import read_documents


def test_text_goes_through_the_targets_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("hé", "utf-8")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "c.txt").write_text("A")
    (tmp_path / "notes.md").write_text("no document")
    target = CausalLM(tiny_model(vocab=VOCAB), tiny_tokenizer())
    documents = read_documents(RetrievalConfig(str(tmp_path)), target)
    assert documents == [list(b"A"), list("hé".encode())]


def test_a_target_without_a_tokenizer_takes_numbers(tmp_path: Path) -> None:
    file, target = tmp_path / "a.txt", CausalLM(tiny_model(vocab=8))
    file.write_text("3 1\n7")
    assert read_documents(RetrievalConfig(str(file)), target) == [[3, 1, 7]]
    for text, word in [("3 x", "'x'"), ("3 8", "the id 8"), ("-1", "'-1'")]:
        file.write_text(text)
        with pytest.raises(InputError, match=word):
            read_documents(RetrievalConfig(str(file)), target)


def test_ids_beyond_the_model_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Az")
    target = CausalLM(tiny_model(vocab=100), tiny_tokenizer())  # z is byte 122
    with pytest.raises(InputError, match="the id 122"):
        read_documents(RetrievalConfig(str(tmp_path)), target)
