"""Whole-engine law tests: which rules, which controls, which planted faults.

``test_law_rules.py`` draws a few thousand answers of each; ``benchmarks/laws.py`` 100,000.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor

from foredraft.framework import biases, sampling
from foredraft.framework.constraints import Constraint, Constraints, ConstraintState
from foredraft.framework.decoding import Parts
from foredraft.framework.growth import Growth
from foredraft.framework.interfaces import Drafter, Verifier
from foredraft.framework.params import SamplingParams
from foredraft.framework.policies.builtin import FixedConfig
from foredraft.framework.policies.fixed import Fixed
from foredraft.framework.processors import HostProcessors
from foredraft.framework.stopping import Stopper
from foredraft.framework.targets.builtin import TableConfig
from foredraft.framework.targets.table import TableTarget
from foredraft.framework.testing.draws import Setting
from foredraft.framework.testing.tables import TableDrafter, TableTreeDrafter
from foredraft.framework.tree import Branches
from foredraft.verifiers.block import BlockVerifier
from foredraft.verifiers.coupled import CoupledVerifier
from foredraft.verifiers.kseq import KSeqVerifier
from foredraft.verifiers.recursive import RecursiveVerifier
from foredraft.verifiers.token import TokenVerifier
from foredraft.verifiers.traversal import TraversalVerifier

PROMPT, TOKENS = [1, 0, 1], 4


def table(seed: int, zeros: float) -> TableTarget:
    """Three tokens, two of context."""
    config = TableConfig(vocab_size=3, order=2, sharpness=1.2, zeros=zeros, seed=seed)
    return TableTarget.from_config(config)


def parts(rule: str, zeros: float = 0.2) -> Parts:
    """A rule with a drafter that it judges: ``block`` or ``recursive/independent``.

    ``zeros`` is the part of impossible tokens; with bans there must be none, or nothing may be left.
    """
    name, _, children = rule.partition("/")
    gamma = 2 if children else 3
    drafter: Drafter = TableDrafter(table(2, zeros))
    if children:
        drafter = TableTreeDrafter(table(2, zeros), Growth(widths=(2, 2), children=children))
    return Parts(table(1, zeros), drafter, VERIFIERS[name](), Fixed(FixedConfig(gamma)), {})


VERIFIERS: dict[str, Callable[[], Verifier]] = {
    "token": TokenVerifier,
    "block": BlockVerifier,
    "coupled": CoupledVerifier,
    "recursive": RecursiveVerifier,
    "kseq": KSeqVerifier,
    "traversal": TraversalVerifier,
}
RULES = ["token", "block", "coupled"] + [
    f"{name}/{children}"
    for name in VERIFIERS
    for children in VERIFIERS[name].trees  # type: ignore[attr-defined]
]
MIXED: list[Setting] = [
    {"sampling": SamplingParams(temperature=1.0)},
    {"sampling": SamplingParams(temperature=0.6, top_p=0.85)},
    {"sampling": SamplingParams(temperature=1.0, repetition_penalty=1.4, logit_bias={1: 0.5})},
    {"sampling": SamplingParams(temperature=1.3, top_k=2, draft="none")},
]


class NoDoubles(Constraint):
    """No token follows itself; token 0 twice in an answer completes it."""

    def start(self) -> ConstraintState:
        return NoDoublesState([])


class NoDoublesState(ConstraintState):
    """The answer so far."""

    def __init__(self, answer: list[int]) -> None:
        self.answer = answer

    def allowed(self) -> Tensor:
        allowed = torch.ones(3, dtype=torch.bool)
        if self.answer:
            allowed[self.answer[-1]] = False
        return allowed

    def advance(self, token: int) -> bool:
        if not bool(self.allowed()[token]):
            return False
        self.answer.append(token)
        return True

    def rollback(self, count: int) -> None:
        del self.answer[len(self.answer) - count :]

    def fork(self) -> ConstraintState:
        return NoDoublesState(list(self.answer))


def sampled(**values: Any) -> Setting:
    """A setting at temperature 1, but for what is given."""
    return {"sampling": SamplingParams(**{"temperature": 1.0, **values})}


CONTROLS: dict[str, Setting] = {
    "temperature": sampled(temperature=0.5),
    "top_k": sampled(top_k=2),
    "top_p": sampled(top_p=0.7),
    "min_p": sampled(min_p=0.5),
    "typical_p": sampled(typical_p=0.5),
    "repetition_penalty": sampled(repetition_penalty=2.0),
    "presence_penalty": sampled(presence_penalty=1.5),
    "frequency_penalty": sampled(frequency_penalty=1.0),
    "logit_bias": sampled(logit_bias={0: 1.5}),
    "bad_words": sampled(bad_words=[[1, 2], [0, 0], [2, 1]]),
    "min_new_tokens": {**sampled(min_new_tokens=3), "stop_ids": (2,)},
    "stop_ids": {**sampled(), "stop_ids": (2,)},
    "processors": {**sampled(), "processors": (NoRepeatNGramLogitsProcessor(3),)},
    "constraint": {**sampled(), "constraint": NoDoubles()},
    "all together": {
        **sampled(
            temperature=0.8, top_p=0.95, repetition_penalty=1.3, presence_penalty=0.2,
            frequency_penalty=0.3, logit_bias={2: 0.4}, bad_words=[[1, 2]], min_new_tokens=2,
        ),
        "stop_ids": (2,),
    },
}  # fmt: skip


def _blind(self: Branches) -> Tensor:
    """Drafted tokens go unseen."""
    return torch.zeros(*self.at.shape, self.tokens.shape[1], dtype=torch.bool)


def _committed_only(self: Branches, count: int, committed: Tensor) -> Tensor:
    return committed.unsqueeze(1).expand(-1, self.at.shape[1], -1)


def _last_only(self: Stopper, tokens: list[int]) -> tuple[list[int], str | None]:
    """Looks for an end at a block's last token alone."""
    self.answer.extend(tokens[:-1])
    room = self.limit - len(self.answer)
    if room <= 0:
        kept = list(tokens[: len(tokens) - 1 + room])
        return kept, "length"
    self.answer.append(tokens[-1])
    return list(tokens), self._reason(tokens[-1])


def _no_change(*given: Any) -> None:
    return None


def _same(scores: Tensor, *given: Any) -> Tensor:
    return scores


def _untempered(self: sampling.Sampler, logits: Tensor, rows: Any) -> Tensor:
    return logits


def _no_control(self: Any, logits: Tensor, committed: Any, branches: Branches) -> Tensor:
    return logits


# What to break, by the control whose law has to show it.
FAULTS: dict[str, list[tuple[Any, str, Any]]] = {
    "temperature": [(sampling.Sampler, "_filtered", _untempered)],
    "top_k": [(sampling, "top_k", _same)],
    "top_p": [(sampling, "top_p", _same)],
    "min_p": [(sampling, "min_p", _same)],
    "typical_p": [(sampling, "typical_p", _same)],
    "repetition_penalty": [(Branches, "on_path", property(_blind))],
    "presence_penalty": [(Branches, "on_path", property(_blind))],
    "frequency_penalty": [(Branches, "on_path", property(_blind))],
    "logit_bias": [(biases.LogitBias, "change", _no_change)],
    "bad_words": [(Branches, "last", _committed_only)],
    "min_new_tokens": [(Branches, "on_path", property(_blind))],
    "stop_ids": [(Stopper, "feed", _last_only)],
    "processors": [(HostProcessors, "apply", _no_control)],
    "constraint": [(Constraints, "apply", _no_control)],
}
