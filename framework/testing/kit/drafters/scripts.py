"""A policy and a verifier that do as they are told, so that every fate of a draft can be had."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ....context import Context
from ....interfaces import GammaPolicy, PolicySession, Verifier
from ....records import Draft, Trial, Verdict
from ....specs import DRAWN
from ....verdicts import law_at
from .spies import Journal

Rule = Callable[[int, int], int]  # of a row's place and the round


class ScriptedPolicy(GammaPolicy):
    """``rule(place, round)`` says each row's gamma."""

    def __init__(self, rule: Rule, journal: Journal) -> None:
        self.rule, self.journal = rule, journal

    def start(self, context: Context) -> PolicySession:
        return _ScriptedSession(self, context)


class _ScriptedSession(PolicySession):
    def __init__(self, policy: ScriptedPolicy, context: Context) -> None:
        super().__init__(context)
        self.policy = policy

    def gammas(self) -> list[int]:
        index = self.context.round_index
        return [self.policy.rule(place, index) for place in self.policy.journal.places]


class ScriptedVerifier(Verifier):
    """Accepts ``fate(place, round)`` tokens of each row, whatever they are, or as many as there are:
    in a tree, the eldest child of the eldest child and so on. The next token follows the target's
    law behind them. Rounds are counted by the calls."""

    lossless = False
    chains = trees = DRAWN

    def __init__(self, fate: Rule, journal: Journal) -> None:
        self.fate, self.journal, self.round = fate, journal, 0

    def verify(self, trial: Trial) -> Verdict:
        draft, places = trial.draft, self.journal.places
        paths = [
            eldest(draft, row, self.fate(place, self.round)) for row, place in enumerate(places)
        ]
        self.round += 1
        accepted = torch.tensor([len(path) for path in paths], device=draft.tokens.device)
        padded = [[*path, *([0] * (draft.depth - len(path)))] for path in paths]
        path = torch.tensor(padded, dtype=torch.int64, device=draft.tokens.device)
        last = torch.tensor([path[-1] + 1 if path else 0 for path in paths])
        law = law_at(trial.target_probs, last.to(draft.tokens.device))
        return Verdict(accepted, law, torch.zeros_like(trial.uniforms), path.view(len(paths), -1))


def eldest(draft: Draft, row: int, count: int) -> list[int]:
    """At most ``count`` nodes of a row from the root on, each the first child of the one before."""
    parents = draft.shape.parents[row, : draft.lengths[row]].tolist()
    path: list[int] = []
    while len(path) < count:
        node = path[-1] if path else -1
        if node not in parents:
            break
        path.append(parents.index(node))
    return path


def constant(value: int) -> Rule:
    """The same for every row and round."""
    return lambda place, index: value


def pattern(*values: int) -> Rule:
    """The values in turn; each row begins with another one."""
    return lambda place, index: values[(place + index) % len(values)]


def rounds_of(*values: int) -> Rule:
    """The values in turn, for all rows alike."""
    return lambda place, index: values[index % len(values)]
