"""The hooks that a plugin module may implement, in the words that its author needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import pluggy

from ..specs import DrafterSpec, ObserverSpec, PolicySpec, TargetSpec, VerifierSpec
from .discovery import GROUP

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


class Hooks(Protocol):
    """The hooks a plugin module may implement. None takes an argument; each is called once."""

    @hookspec
    def foredraft_drafters(self) -> Iterable[DrafterSpec]:
        """Offers drafters.

        A whole plugin module, found by the entry point ``echo = "echo_draft"``::

            from dataclasses import dataclass
            from foredraft.framework.plugins import hookimpl
            from foredraft.framework.specs import DrafterSpec

            @dataclass
            class EchoConfig:
                distance: int = 8

            def build(config, target):
                from .drafter import EchoDrafter  # torch is imported only when it is chosen

                return EchoDrafter(config.distance)

            @hookimpl
            def foredraft_drafters():
                yield DrafterSpec("echo", build, EchoConfig, "repeats what it saw", contract=1)

        It is chosen by ``drafter=echo drafter.distance=4``.
        """

    @hookspec
    def foredraft_verifiers(self) -> Iterable[VerifierSpec]:
        """Offers verification rules, chosen by ``verifier=<name>``.

        ::

            @hookimpl
            def foredraft_verifiers():
                yield VerifierSpec("strict", lambda config: Strict(), StrictConfig, lossless=True, contract=1)
        """

    @hookspec
    def foredraft_policies(self) -> Iterable[PolicySpec]:
        """Offers draft-length policies, chosen by ``policy=<name>``.

        ::

            @hookimpl
            def foredraft_policies():
                yield PolicySpec("ramp", lambda config: Ramp(config.start), RampConfig, contract=1)
        """

    @hookspec
    def foredraft_targets(self) -> Iterable[TargetSpec]:
        """Offers kinds of target, chosen by ``target=<name>``.

        ::

            @hookimpl
            def foredraft_targets():
                yield TargetSpec("markov", lambda config: Markov(config.vocab), MarkovConfig, contract=1)
        """

    @hookspec
    def foredraft_observers(self) -> Iterable[ObserverSpec]:
        """Offers observers, listed by ``observers=[<name>]``.

        ::

            @hookimpl
            def foredraft_observers():
                yield ObserverSpec("log", lambda config: Log(config.path), LogConfig, contract=1)
        """

    @hookspec
    def foredraft_config_packages(self) -> Iterable[str]:
        """Offers folders of presets and experiments, as packages with an ``__init__.py``.

        ::

            @hookimpl
            def foredraft_config_packages():
                return ["pkg://echo_draft.conf"]  # holds drafter/echo_far.yaml

        They come after Foredraft's own, which a preset of the same name cannot replace.
        """
