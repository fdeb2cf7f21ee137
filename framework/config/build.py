"""From a config to built parts, with the pairings checked before anything heavy is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from ..pairing import check_pair, check_policy, known_rules
from ..params import SamplingParams
from ..plugins import registry
from ..specs import DrafterSpec, PolicySpec, VerifierSpec
from . import Part, Parts, to_objects

if TYPE_CHECKING:
    from ..interfaces import Drafter, GammaPolicy, Observer, Target, Verifier


@dataclass(frozen=True)
class Built:
    """What a run needs, built, and the config it came from."""

    target: Target
    drafter: Drafter
    verifier: Verifier
    policy: GammaPolicy
    sampling: SamplingParams
    parts: Parts
    observers: tuple[Observer, ...] = ()


def build(
    config: DictConfig | Mapping[str, Any] | Parts,
    target: Target | None = None,
    drafter: Drafter | None = None,
) -> Built:
    """Builds every part of a config.

    Args:
        config: what ``compose`` or ``as_dict`` gave, or the objects made from it.
        target, drafter: built already, to be used in place of the config's.
    """
    from ..listening import close_all

    parts = config if isinstance(config, Parts) else to_objects(config)
    check_pairing(parts)
    # Cheap parts first, so that their refusals do not wait for a model to load.
    policy = _make(parts.policy)
    verifier = _make(parts.verifier)
    observers = build_observers(parts)
    try:
        target = target or _make(parts.target)
        drafter = drafter or _make(parts.drafter, target)
    except BaseException:
        close_all(observers)
        raise
    return Built(target, drafter, verifier, policy, parts.sampling, parts, observers)


def build_observers(parts: Parts) -> tuple[Observer, ...]:
    """The observers that a config lists. Whoever calls this closes them."""
    from ..listening import close_all

    made: list[Observer] = []
    try:
        for part in parts.observers:
            made.append(_make(part))
            made[-1].name = made[-1].name or part.spec.name
    except BaseException:
        close_all(made)
        raise
    return tuple(made)


def check_pairing(parts: Parts) -> None:
    """Refuses parts that cannot work together."""
    verifier, drafter = parts.verifier.spec, parts.drafter.spec
    if not isinstance(verifier, VerifierSpec) or not isinstance(drafter, DrafterSpec):
        return
    kind = drafter.kind_of(parts.drafter.config)
    temperature = parts.sampling.temperature
    check_pair(verifier, verifier.name, drafter.name, kind, temperature, known_rules())
    policy = parts.policy.spec
    if isinstance(policy, PolicySpec):
        stops = policy.ability("stops", parts.policy.config)
        check_policy(stops, policy.name, drafter.name, kind)


def _make(part: Part, *arguments: object) -> Any:
    from ..factories import make_part

    offer = registry().find(part.kind, part.spec.name)
    label = f"{part.kind} {part.spec.name!r} of {offer.source}"
    return make_part(part.spec, part.config, *arguments, label=label)
