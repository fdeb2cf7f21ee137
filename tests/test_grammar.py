"""Constraints through llguidance: masks against a brute-force reading of the grammar."""

from __future__ import annotations

import itertools
import json
import random
import re
import sys
from typing import Any

import pytest
import torch

from foredraft.framework.constraints import Constraint, ConstraintState
from foredraft.framework.errors import ConfigError
from foredraft.framework.fetch import FOLDER, cache_folder, is_whole
from foredraft.framework.grammar import grammar_constraint
from foredraft.framework.testing.tiny_tokenizer import END, VOCAB, _signs_of_bytes, tiny_tokenizer

pytest.importorskip("llguidance", reason="needs foredraft[grammar]")

EOS = VOCAB - 1
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"enum": [1, "x"]}}},
    "required": ["a"],
    "additionalProperties": False,
}
NESTED = 'start: "[" [item ("," item)*] "]"\nitem: start | /[ab]+/\n'
GRAMMARS: dict[str, tuple[str, Any]] = {
    "schema": ("json_schema", SCHEMA),
    "lark": ("lark", NESTED),
    "gbnf": ("gbnf", 'root ::= "<" root ">" | [a-c]+\n'),
    "regex": ("regex", "(ab|a)*c?"),
}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny_tokenizer()


def start(constraint: Constraint, text: str = "") -> ConstraintState:
    state = constraint.start()
    assert all(state.advance(token) for token in text.encode())
    return state


def allowed(state: ConstraintState) -> list[int]:
    return [token for token, yes in enumerate(state.allowed().tolist()) if yes]


@pytest.mark.parametrize("regex", ["(ab|a)*c?", "a{1,3}", "(abc|abd|b)", "a*b", "(a|b)?c+"])
@pytest.mark.parametrize("ends", [[EOS], [EOS, EOS - 1], []])
def test_masks_are_those_of_the_language(regex: str, ends: list[int], tokenizer: Any) -> None:
    """Every text of up to four letters; what can follow it is read off all texts of up to seven."""
    constraint = grammar_constraint("regex", regex, tokenizer, ends, VOCAB + 5)
    texts = ["".join(t) for n in range(8) for t in itertools.product("abcd", repeat=n)]
    language = [text for text in texts if re.fullmatch(regex, text)]
    prefixes = {text[:n] for text in language for n in range(len(text) + 1)}
    for prefix in (text for text in prefixes if len(text) <= 4):
        state = start(constraint, prefix)
        longer = {ord(letter) for letter in "abcd" if prefix + letter in prefixes}
        whole = prefix in language
        assert state.allowed().shape == (VOCAB + 5,)
        assert state.finished == (not longer and (whole or not ends)), prefix
        expected = longer | set(ends if whole and not state.finished else [])
        assert set(allowed(state)) == expected, prefix


def test_a_forced_text_may_be_spelt_in_every_way() -> None:
    """``xab`` by a tokenizer that has ``ab`` too; the library's default forces its own spelling."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocab = {sign: byte for byte, sign in enumerate(_signs_of_bytes())} | {"ab": 256}
    backend = Tokenizer(models.BPE(vocab, [("a", "b")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    with pytest.raises(ConfigError, match="the tokenizer cannot be used: .*decoder"):
        without_decoder = PreTrainedTokenizerFast(tokenizer_object=backend)
        grammar_constraint("regex", "xab", without_decoder, [])
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    state = start(grammar_constraint("regex", "xab", tokenizer, []), "x")
    assert allowed(state) == [ord("a"), 256]


@pytest.mark.parametrize("name", GRAMMARS)
def test_rollback_and_fork_are_exact(name: str, tokenizer: Any) -> None:
    """Fifty random walks of each grammar; after each step the state equals a fresh, replayed one."""
    kind, source = GRAMMARS[name]
    constraint = grammar_constraint(kind, source, tokenizer, [EOS])
    for seed in range(50):
        dice, state, taken = random.Random(seed), constraint.start(), list[int]()
        others: list[tuple[ConstraintState, list[int]]] = []
        for _ in range(25):
            act = dice.random()
            if act < 0.2:
                count = dice.randrange(len(taken) + 1)
                state.rollback(count)
                taken = taken[: len(taken) - count]
            elif act < 0.35:
                others.append((state.fork(), list(taken)))
            elif act < 0.5 and others:
                others.append((state, taken))
                state, taken = others.pop(dice.randrange(len(others)))
            else:
                legal = allowed(state) if act < 0.9 else []
                token = dice.choice(legal or range(VOCAB))
                yes = bool(state.allowed()[token])
                assert state.advance(token) == yes
                taken += [token] * yes
            compare(state, constraint, taken)
        for other, theirs in others:
            compare(other, constraint, theirs)


def compare(state: ConstraintState, constraint: Constraint, taken: list[int]) -> None:
    fresh = constraint.start()
    assert all(fresh.advance(token) for token in taken)
    assert torch.equal(state.allowed(), fresh.allowed())
    assert state.finished == fresh.finished == (not fresh.allowed().any())


def test_random_walks_end_in_texts_of_the_schema(tokenizer: Any) -> None:
    constraint = grammar_constraint("json_schema", json.dumps(SCHEMA), tokenizer, [EOS])
    whole = 0
    for seed in range(200):
        dice, state, text = random.Random(seed), constraint.start(), b""
        while not state.finished and len(text) < 400:
            # Shorter texts come about if what closes something is preferred.
            choice = [token for token in allowed(state) if chr(token) not in " \t\n\r"]
            closing = [token for token in choice if chr(token) in '}],"']
            token = dice.choice(closing if closing and dice.random() < 0.6 else choice)
            assert state.advance(token)
            text += bytes([token])
        if state.finished:
            whole += 1
            value = json.loads(text)
            assert isinstance(value["a"], int) and set(value) <= {"a", "b"}
            assert all(item in (1, "x") for item in value.get("b", []))
    assert whole > 150


def test_an_end_id_is_a_token_like_any_other(tokenizer: Any) -> None:
    state = start(grammar_constraint("regex", "a+", tokenizer, [EOS]), "a")
    assert allowed(state) == [ord("a"), EOS]
    assert state.advance(EOS) and state.finished and not state.advance(ord("a"))
    fork = state.fork()
    state.rollback(2)
    assert allowed(state) == [ord("a")] and not state.advance(EOS)
    assert fork.finished and allowed(fork) == []


def test_a_special_token_is_no_text(tokenizer: Any) -> None:
    state = grammar_constraint("regex", "(.|\n)*", tokenizer, []).start()
    assert not state.allowed()[256:].any()
    spelt_out = grammar_constraint("regex", re.escape(END) + ".*", tokenizer, [])
    assert start(spelt_out, END).allowed()[97:99].all()


def test_a_special_token_that_a_grammar_names(tokenizer: Any) -> None:
    state = grammar_constraint("lark", 'start: <|user|> "a"', tokenizer, [EOS]).start()
    assert allowed(state) == [256] and state.advance(256) and allowed(state) == [ord("a")]


def test_states_of_one_constraint_are_apart(tokenizer: Any) -> None:
    constraint = grammar_constraint("lark", NESTED, tokenizer, [EOS])
    one, other = start(constraint, "[[a"), start(constraint, "[")
    assert one.advance(ord("]")) and not other.finished
    assert set(allowed(other)) == {ord(sign) for sign in "[]ab"}
    assert set(allowed(constraint.start())) == {ord("[")}


@pytest.mark.parametrize(
    ("kind", "source", "message"),
    [
        ("regex", "(", "the regex cannot be used: .*invalid regex"),
        ("lark", "start: missing", "the lark cannot be used: "),
        ("gbnf", "root ::= (", "the gbnf cannot be used: "),
        ("json_schema", "{", "the json_schema cannot be used: "),
        ("json_schema", {"type": "object", "patternNo": 1}, None),
        ("json_schema", {"type": "strin"}, "the json_schema cannot be used: "),
        ("json_schema", 3, "the json_schema cannot be used: .* not int"),
        ("regex", {"a": 1}, "a regex grammar must be text, not dict"),
        ("xml", "", "kind 'xml' is not possible; it is one of json_schema, regex, lark, gbnf"),
    ],
)
def test_faults_are_one_sentence(
    kind: str, source: Any, message: str | None, tokenizer: Any
) -> None:
    if message is None:  # keywords that JSON schema does not know have no effect, as it says
        grammar_constraint(kind, source, tokenizer, [EOS])
        return
    with pytest.raises(ConfigError, match=message) as caught:
        grammar_constraint(kind, source, tokenizer, [EOS])
    assert "\n" not in str(caught.value)


def test_another_kind_of_tokenizer_is_refused() -> None:
    class Words:
        def __len__(self) -> int:
            return 8

    with pytest.raises(ConfigError, match="needs a fast transformers tokenizer; Words is none"):
        grammar_constraint("regex", "a", Words(), [])


def test_without_the_library_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tokenizer: Any
) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ConfigError, match=r"pip install 'foredraft\[grammar\]'"):
        grammar_constraint("regex", "a", tokenizer, [EOS])


@pytest.mark.model
@pytest.mark.xdist_group("smollm2")
def test_masks_over_tokens_of_many_bytes() -> None:
    """SmolLM2's vocabulary: a token is allowed exactly if its bytes go on in some text."""
    from transformers import AutoTokenizer

    folder = cache_folder() / FOLDER
    if not is_whole(folder):
        pytest.fail("SmolLM2 is not there; run `foredraft fetch smollm2` (make test does)")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    eos = tokenizer.eos_token_id
    signs = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    language = [b"yes", b"yes please", b"no", b"maybe not", "naïve Ω".encode()]
    special = set(tokenizer.all_special_ids)
    pieces = {i: spelt(sign) for i, sign in enumerate(signs) if i not in special}
    parts = {i: piece for i, piece in pieces.items() if any(piece in text for text in language)}
    regex = "|".join(text.decode() for text in language)
    constraint = grammar_constraint("regex", regex, tokenizer, [eos])
    begun = {text[:n] for text in language for n in range(1, len(text) + 1)}
    todo, dice = [(constraint.start(), b"")], random.Random(0)
    for _ in range(300):
        state, text = todo.pop(dice.randrange(len(todo)))
        longer = {i for i, piece in parts.items() if text + piece in begun}
        assert state.finished == (not longer)
        expected = longer | ({eos} if longer and text in language else set())
        assert set(allowed(state)) == expected
        for token in [*longer, *dice.sample(sorted(parts), 5), *dice.sample(sorted(pieces), 5)]:
            fork = state.fork()
            assert fork.advance(token) == (token in expected)
            if token in longer:
                todo.append((fork, text + pieces[token]))


BYTES = {sign: byte for byte, sign in enumerate(_signs_of_bytes())}


def spelt(sign: str) -> bytes:
    """A byte-level token's bytes, which ``decode`` would not give for a part of a character."""
    return bytes(BYTES[letter] for letter in sign)
