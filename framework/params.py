"""How one request samples: the keys of ``sampling`` and their only defaults. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .checks import check_choice
from .errors import ConfigError

DRAFT = ("full", "temperature", "none")
_BIAS = "a bias for each token id, such as {5: 2.0}, and each bias a number or -inf"
_WORDS = "a list of words, each a list of token ids (text is not possible), such as [[1,2],[3]]"


@dataclass
class SamplingParams:
    """How one request samples.

    Args:
        temperature: 0 is greedy (an exact branch: argmax, first index on a tie, as in plain
            decoding); any positive number divides the logits.
        top_k: keep the k most likely tokens; 0 keeps all. Ties with the k-th are kept.
        top_p: keep the smallest set of tokens whose mass reaches p, in (0, 1].
        min_p: drop tokens less likely than ``min_p`` times the most likely one, in [0, 1].
        typical_p: keep the tokens whose surprise is nearest to the law's entropy until their
            mass reaches p, in (0, 1]; 1 keeps all.
        repetition_penalty: logits of tokens in prompt or answer are divided by it if positive,
            else multiplied, once however often they occur; above 0, 1 is off.
        presence_penalty: taken off the logits of tokens in the answer so far; 0 is off.
        frequency_penalty: the same, times how often the token occurs there; 0 is off.
        logit_bias: added to the logits of these token ids; -inf bans a token.
        bad_words: sequences of token ids that must not come about. Transformers' rule: one that
            is an end token and nothing else has no effect.
        min_new_tokens: no end token is possible before the answer has so many tokens.
        draft: what the drafter's law goes through: ``full`` all of these, ``temperature`` only
            that, ``none`` nothing. Changes the speed, never the law of the answer.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict, metadata={"possible": _BIAS})
    bad_words: list[list[int]] = field(default_factory=list, metadata={"possible": _WORDS})
    min_new_tokens: int = 0
    draft: str = field(default="full", metadata={"possible": f"one of {', '.join(DRAFT)}"})

    def __post_init__(self) -> None:
        self._check_numbers()
        for key in ("top_k", "min_new_tokens"):
            value = getattr(self, key)
            whole = type(value) is int and 0 <= value < 2**31
            _check(key, value, whole, "a whole number from 0 (off)")
        check_choice("sampling.draft", self.draft, DRAFT)
        self.logit_bias = _biases(self.logit_bias)
        self.bad_words = _words(self.bad_words)

    @property
    def greedy(self) -> bool:
        """True when no randomness is involved."""
        return self.temperature == 0

    @property
    def controlled(self) -> bool:
        """True when a control changes the logits: a penalty, a bias, bad words, a least length."""
        return (
            self.repeats or bool(self.logit_bias) or bool(self.bad_words) or self.min_new_tokens > 0
        )

    @property
    def repeats(self) -> bool:
        """True when it matters which tokens the text holds already."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
        )

    def for_draft(self) -> SamplingParams:
        """What the drafter's law goes through. Greedy rows draft greedily in every case."""
        if self.draft == "full":
            return self
        if self.draft == "temperature" or self.greedy:
            return SamplingParams(self.temperature)
        return SamplingParams(1.0)

    def _check_numbers(self) -> None:
        for key in ("typical_p", "top_p"):
            p = self._number(key)
            _check(key, p, 0 < p <= 1, "a number above 0 and up to 1 (off)")
        for key in ("presence_penalty", "frequency_penalty"):
            value = self._number(key)
            _check(key, value, math.isfinite(value), "a number, 0 for off")
        value = self._number("temperature")
        _check("temperature", value, 0 <= value < math.inf, "a number from 0 (greedy)")
        value = self._number("min_p")
        _check("min_p", value, 0 <= value <= 1, "a number from 0 (off) to 1")
        value = self._number("repetition_penalty")
        _check("repetition_penalty", value, 0 < value < math.inf, "a number above 0, 1 for off")

    def _number(self, key: str) -> float:
        value = getattr(self, key)
        _check(key, value, _is_number(value), "a number")
        return float(value)


def _biases(given: object) -> dict[int, float]:
    """The same with whole numbers for keys, which JSON and YAML can hold as text only."""
    _check("logit_bias", given, isinstance(given, Mapping), _BIAS)
    assert isinstance(given, Mapping)
    found: dict[int, float] = {}
    for key, bias in given.items():
        token: Any = int(key) if isinstance(key, str) and _is_digits(key) else key
        shown, once = f"logit_bias.{key}", token not in found
        _check(shown, bias, _is_id(token), f"{_BIAS}; {key!r} is no token id")
        _check(shown, bias, once, "given once for each token id")
        number = _is_number(bias) and bias < math.inf  # which NaN is not
        _check(shown, bias, number, "a number or -inf")
        found[token] = float(bias)
    return found


def _words(given: object) -> list[list[int]]:
    _check("bad_words", given, isinstance(given, list | tuple), _WORDS)
    assert isinstance(given, list | tuple)
    for word in given:
        ids = isinstance(word, list | tuple) and all(map(_is_id, word))
        _check("bad_words", given, ids, _WORDS)
        _check("bad_words", given, len(word) > 0, "a list of words of at least one token id each")
    return [list(word) for word in given]


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _is_number(value: object) -> bool:
    """No truth value, and no whole number too large for a float."""
    return type(value) is float or (type(value) is int and abs(value) < 2**1000)


def _is_id(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _check(key: str, value: object, ok: bool, possible: str) -> None:
    if not ok:
        raise ConfigError(f"sampling.{key}={value!r} is not possible; it must be {possible}.")
