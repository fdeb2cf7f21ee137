"""What ``foredraft tune`` races when no grid is given: the built-in drafters that need no file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..config.composing import to_objects
from ..errors import ConfigError
from ..plugins import registry
from ..specs import DETERMINISTIC, DrafterSpec, DraftKind, PolicySpec, VerifierSpec
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
        _check_verifier(given.fixed)
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
    policy = chosen.get("policy")
    stops = policy is not None and _stops(composed, fixed)
    for drafter, kind in kinds.items():
        policies = (
            _policies(drafter, kind) if policy is None else _only(policy, stops, drafter, kind)
        )
        yield from _of(drafter, kind, chosen.get("verifier"), policies)


def _check_verifier(fixed: Sequence[str]) -> None:
    """Refuses a verifier's value without the verifier: the rows choose it, and theirs have no keys."""
    chosen = [text for text in fixed if text.partition("=")[0].strip() == "verifier"]
    values = [text for text in fixed if text.strip().startswith("verifier.")]
    if values and not chosen:
        raise ConfigError(
            f"{values[0]} has no effect on the verifiers that a race without a grid chooses; write "
            f"verifier=NAME {values[0]}, with the verifier that it is for."
        )


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


def _stops(composed: Composer, fixed: Sequence[str]) -> bool:
    """Whether the policy of the words wants to be asked before each token."""
    part = to_objects(composed.config([t for t in fixed if _root(t) == "policy"])).policy
    assert isinstance(part.spec, PolicySpec)
    return bool(part.spec.ability("stops", part.config))


def _policies(drafter: str, kind: DraftKind) -> list[tuple[str, int]]:
    """The policies that race with a drafter, each with its gamma; a row has an entry for every key,
    also where the policy has no gamma."""
    found = [*_only("fixed", False, drafter, kind), *_only("heuristic", False, drafter, kind)]
    return [*found, *_only("confidence", True, drafter, kind)]


def _only(policy: str, stops: bool, drafter: str, kind: DraftKind) -> list[tuple[str, int]]:
    """The same for one policy; none where it cannot stop such drafts."""
    if policy == "fixed":
        return [(policy, gamma) for gamma in GAMMAS.get(drafter, OTHERS)]
    able = not stops or not (kind.tree or kind.drawn == DETERMINISTIC)
    return [(policy, 1)] if able else []


def _of(
    drafter: str, kind: DraftKind, verifier: str | None, policies: Sequence[tuple[str, int]]
) -> Iterator[Row]:
    """The rows of one drafter: each with the plainest rule that can judge its drafts."""
    names = [verifier] if verifier else ["token", "recursive"]
    rules = [registry().get("verifier", name) for name in names]
    able = [rule.name for rule in rules if isinstance(rule, VerifierSpec) and rule.judges(kind)]
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
