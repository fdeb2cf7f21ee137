"""What ``foredraft tune`` races when no grid is given: the built-in drafters that need no file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..config.composing import to_objects
from ..plugins import registry
from ..specs import DETERMINISTIC, DrafterSpec, DraftKind, VerifierSpec
from ..targets.builtin import ModelConfig
from . import axes
from .composer import Composer, composer, one_word

# What copies is cheap and long; what computes is dear and short.
GAMMAS = {
    "prompt_lookup": (3, 6, 10),
    "ngram": (1, 3),
    "jacobi": (3, 5),
    "token_recycling": (3, 6),
    "lookup_then_quantized": (3, 6),
    "quantized": (1, 3, 5),
    "early_exit": (2, 4),
}
OF_MODELS = ("lookup_then_quantized", "quantized", "early_exit")
PARTS = ("drafter", "policy", "verifier")
OTHERS = (1, 3, 5)  # gammas of a drafter that is not among these
KEYS = ("drafter", "policy", "policy.gamma", "verifier")
Row = dict[str, Any]


def with_grid(words: Sequence[str], config_dir: str | None = None) -> list[str]:
    """The words of a sweep; where neither they nor their experiment have axes, with those of a grid
    that leaves alone what the words fix.

    Raises:
        ConfigError: a word that cannot be honoured.
    """
    given = axes.split(words)
    if given.axes:
        return list(words)
    with composer(config_dir, given.about) as composed:
        blocks = composed.blocks(given.fixed)
        if blocks.get("grid") or blocks.get("zip"):
            return list(words)
        rows = _unlike(_rows(given.fixed, composed), _keys(given.fixed))
    if not rows or not rows[0]:
        return list(words)
    return [*words, *(one_word(f"zip.{key}", [row[key] for row in rows]) for key in rows[0])]


def _rows(fixed: Sequence[str], composed: Composer) -> Iterator[Row]:
    """Every row whose parts work together."""
    chosen = dict(text.strip().split("=", 1) for text in fixed)
    others = [text for text in fixed if _root(text) not in PARTS]
    if "drafter" in chosen:
        own = [text for text in fixed if _root(text) == "drafter"]
        kinds = {chosen["drafter"]: _composed(composed, [*others, *own])}
    else:
        model = isinstance(to_objects(composed.config(others)).target.config, ModelConfig)
        able = [name for name in GAMMAS if model or name not in OF_MODELS]
        kinds = {name: _kind(name, others, composed) for name in able}
    for drafter, kind in kinds.items():
        for row in _of(drafter, kind, chosen.get("verifier")):
            if chosen.get("policy", row["policy"]) == row["policy"]:
                yield row


def _root(text: str) -> str:
    return text.partition("=")[0].split(".")[0].strip()


def _kind(drafter: str, others: Sequence[str], composed: Composer) -> DraftKind:
    """What a drafter drafts by default. Composing takes its time, so only presets are composed."""
    if drafter in registry().names("drafter"):
        spec = registry().get("drafter", drafter)
        assert isinstance(spec, DrafterSpec)
        return spec.kind_of(spec.config())
    return _composed(composed, [*others, f"drafter={drafter}"])


def _composed(composed: Composer, words: Sequence[str]) -> DraftKind:
    part = to_objects(composed.config(words)).drafter
    assert isinstance(part.spec, DrafterSpec)
    return part.spec.kind_of(part.config)


def _of(drafter: str, kind: DraftKind, verifier: str | None) -> Iterator[Row]:
    """The rows of one drafter: each with the plainest rule that can judge its drafts."""
    names = [verifier] if verifier else ["token", "recursive"]
    rules = [registry().get("verifier", name) for name in names]
    able = [rule.name for rule in rules if isinstance(rule, VerifierSpec) and rule.judges(kind)]
    policies = [("fixed", gamma) for gamma in GAMMAS.get(drafter, OTHERS)]
    policies.append(("heuristic", 1))  # it has no gamma; a row has an entry for every key
    if not kind.tree and kind.drawn != DETERMINISTIC:
        policies.append(("confidence", 1))
    for policy, gamma in policies if able else []:
        yield dict(zip(KEYS, (drafter, policy, gamma, able[0]), strict=True))


def _keys(fixed: Sequence[str]) -> list[str]:
    """What a row may still say."""
    given = {text.partition("=")[0].strip(): text.partition("=")[2].strip() for text in fixed}
    keys = [key for key in KEYS if key not in given]
    return [key for key in keys if key != "policy.gamma" or given.get("policy", "fixed") == "fixed"]


def _unlike(rows: Iterator[Row], keys: Sequence[str]) -> list[Row]:
    """Rows with these keys, each once; a key with the default value throughout is left out."""
    found: dict[str, Row] = {}
    for row in rows:
        kept = {key: row[key] for key in keys}
        found.setdefault(str(kept), kept)
    if all(row.get("verifier") == "token" for row in found.values()):
        for row in found.values():
            row.pop("verifier", None)
    return list(found.values())
