"""What all plugins together offer: parts by kind and name, and what could not be loaded and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import ConfigError, near_match
from ..specs import DrafterSpec, ObserverSpec, PartSpec, PolicySpec, TargetSpec, VerifierSpec

KINDS: dict[str, type[PartSpec]] = {
    "target": TargetSpec,
    "drafter": DrafterSpec,
    "verifier": VerifierSpec,
    "policy": PolicySpec,
    "observer": ObserverSpec,
}
CHOSEN = ("target", "drafter", "verifier", "policy")  # a config has one of each


@dataclass(frozen=True)
class Source:
    """Where a plugin came from.

    Args:
        plugin: the entry point's name, the built-in module, or the name it was registered under.
        distribution: the installed package that brought it.
        version: that package's version.
        module: the module that it is, empty for one that was registered from Python.
    """

    plugin: str
    distribution: str
    version: str
    module: str = ""

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


@dataclass(frozen=True)
class Plugin:
    """A plugin that passed every check at load.

    Args:
        source: where it came from.
        parts: (kind, spec) of what it offers.
        config_packages: ``pkg://`` paths of its presets.
        presets: (group, name) of the presets found there.
    """

    source: Source
    parts: tuple[tuple[str, PartSpec], ...] = ()
    config_packages: tuple[str, ...] = ()
    presets: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Broken:
    """A plugin that could not be used, with its one-sentence cause."""

    source: Source
    cause: str

    def __str__(self) -> str:
        return f"plugin {self.source.plugin!r} of {self.source}: {self.cause}"


@dataclass(frozen=True)
class Offer:
    """One row of ``foredraft plugins``.

    Args:
        kind: target, drafter, verifier, policy or observer.
        name: what a config names.
        source: the plugin that offers it.
        spec: the record the plugin yielded.
        fault: why the name cannot be used although it is offered; empty when it can.
    """

    kind: str
    name: str
    source: Source
    spec: PartSpec
    fault: str = ""

    @property
    def distribution(self) -> str:
        """The package that offers it."""
        return self.source.distribution

    @property
    def version(self) -> str:
        """That package's version."""
        return self.source.version

    @property
    def summary(self) -> str:
        """One line on what it is."""
        return self.spec.summary

    @property
    def lossless(self) -> bool | None:
        """Whether a verifier keeps the target's law; None for every other kind."""
        return self.spec.lossless if isinstance(self.spec, VerifierSpec) else None


@dataclass(frozen=True)
class Registry:
    """The parts that can be chosen by name. Built once by ``plugins.registry()``."""

    plugins: Sequence[Plugin]
    faults: Sequence[Broken]
    _claims: dict[tuple[str, str], list[Source]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for plugin in self.plugins:
            parts = [(kind, spec.name) for kind, spec in plugin.parts]
            for claim in (*parts, *plugin.presets):
                self._claims.setdefault(claim, []).append(plugin.source)

    def fault(self, group: str, name: str) -> str:
        """Why a name cannot be used although it is offered; empty when it can."""
        sources = self._claims.get((group, name), [])
        if len(sources) < 2:
            return ""
        shown = " and ".join(f"{source} (plugin {source.plugin!r})" for source in sources)
        return (
            f"{group} {name!r} is offered by {shown}, so the name means neither; uninstall one or "
            "name its plugin in FOREDRAFT_BLOCK_PLUGINS."
        )

    def find(self, kind: str, name: str) -> Offer:
        """The offer behind a name, with the package it came from."""
        if kind not in KINDS:
            raise ConfigError(f"there is no kind of part {kind!r}; kinds: {', '.join(KINDS)}.")
        if self.fault(kind, name):
            raise ConfigError(self.fault(kind, name))
        for offer in self.offers(kind):
            if offer.name == name:
                return offer
        raise self.unknown(kind, name, self.names(kind))

    def get(self, kind: str, name: str) -> PartSpec:
        """The spec behind a name, or a ConfigError that says which names there are."""
        return self.find(kind, name).spec

    def names(self, kind: str) -> list[str]:
        """The usable names of a kind, sorted."""
        return [offer.name for offer in self.offers(kind) if not offer.fault]

    def offers(self, kind: str | None = None) -> list[Offer]:
        """Every offer, also those whose name two packages claim, by kind and name."""
        rows = [
            Offer(k, spec.name, plugin.source, spec, self.fault(k, spec.name))
            for plugin in self.plugins
            for k, spec in plugin.parts
            if kind in (None, k)
        ]
        order = list(KINDS)
        return sorted(rows, key=lambda o: (order.index(o.kind), o.name, o.distribution))

    def broken(self) -> list[Broken]:
        """The plugins that could not be used."""
        return list(self.faults)

    def config_packages(self) -> list[tuple[str, str]]:
        """(distribution, ``pkg://`` path) of every folder of presets that plugins bring."""
        return [(p.source.distribution, path) for p in self.plugins for path in p.config_packages]

    def unknown(self, kind: str, name: object, known: Iterable[str]) -> ConfigError:
        """The error for a name nobody offers; it names the plugins that might have."""
        names = sorted(known)
        text = f"unknown {kind} {str(name)!r}; {near_match(str(name), names)}known: "
        text += ", ".join(names) or "none"
        if self.faults:
            causes = "; ".join(fault_text(fault) for fault in self.faults)
            text += f" (it may belong to a plugin that could not be loaded: {causes})"
        return ConfigError(text + ".")


def fault_text(fault: Broken) -> str:
    """A broken plugin as part of another sentence."""
    return str(fault).rstrip(".")
